"""What a recipe may say, and every contradiction that is refused."""

import pytest

from prorl.config.checks import shape_of
from prorl.config.recipe import RecipeError, config_hash
from prorl.config.schema import RunConfig
from prorl.control.plan import make_plan
from support.defaults import some_detectors
from support.recipes import recipe

SHAPE = {"context": 8192}
QWEN_1_5B = {"hidden_size": 1536, "heads": 12, "kv_heads": 2, "intermediate_size": 8960}
UNSEEN = {"validation": {"every": 0}}
SHORT = {"sampling": {"response_limit": 100}}
WARMED = {"model": {"warmup": {"shape": {"layers": 7, "context": 9000}}}}
RISE = {"ramp": "linear", "start": 0, "end": 1, "steps": 3}
RAY = {"backend": "ray"}
STALE = {"sampling": {"max_staleness": 1}, "learner": {"old_logprobs": "learner"}}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "../../x"}, "name '../../x' cannot be a folder below runs/"),
        ({"name": ".x"}, "cannot be a folder"),
        ({"name": "a\\b"}, "cannot be a folder"),
        ({"sampling": {"prompts_per_step": 60_000, "samples_per_prompt": 20}}, "is 1,200,000 rollouts"),
        ({"sampling": {"samples_per_prompt": 1}}, "samples_per_prompt must be at least 2"),
        (
            {"sampling": {"prompts_per_step": 10}, "optimizer": {"updates_per_step": 4}},
            r"prompts_per_step \(10\) does not divide into optimizer.updates_per_step \(4\)",
        ),
        ({"model": {"path": "m", "shape": SHAPE}}, r"limit \(8192\) leaves no room .* of 8192 tokens"),
        ({"model": {"warmup": {"shape": {"context": 100}}}}, "leaves no room for a prompt"),
        ({"reset": {"every": 5}}, r"reset.every \(5\) is below reset.cooldown \(20\)"),
        (SHORT | {"model": {"warmup": {"weights": {"sort": 2}}}}, "the recipe has no task 'sort'"),
        (
            SHORT | {"tasks": {"arithmetic": {}}, "model": {"warmup": {"weights": {"arithmetic": 0}}}},
            "every task has weight 0",
        ),
        (SHORT | {"model": {"warmup": {"levels": {"sort": {1: 1}}}}}, "the recipe has no task 'sort'"),
        (RAY | {"sampling": {"top_p": 0.9}}, "backend=ray needs sampling.top_p 1"),
        (RAY | {"deadlines": {"validation": 500.0}}, r"engine_deadline \(600 s\) is not below"),
        ({"device": "cpu", "cluster": {"transfer": "nccl"}}, "transfer=nccl moves weights between GPUs"),
        (RAY | {"cluster": {"colocate": True, "engines": 2}}, "make them equal"),
        (RAY | STALE | {"cluster": {"colocate": True}, "mismatch": {"kind": "tis"}}, "take turns on shared"),
        (
            RAY | {"cluster": {"colocate": True, "tensor_parallel": 2}},
            "on which GPUs an engine of several lies",
        ),
        (RAY | {"cluster": {"offload": True}}, "set cluster.offload=false, or more"),
        (
            RAY | WARMED | {"cluster": {"tensor_parallel": 3}},
            r"tensor_parallel \(3\) does not divide .* 4 attention heads and 2 key-value heads: take 1, 2 or 4",
        ),
        (
            RAY | SHORT | {"cluster": {"tensor_parallel": 6}, "model": {"path": "m", "shape": QWEN_1_5B}},
            r"tensor_parallel \(6\) does not divide the model's feed-forward width of 8,960: take 1, 2 or 4",
        ),
        ({"advantage": {"pass_at_k": 17}}, r"advantage.pass_at_k \(17\) is above sampling"),
        ({"clip": {"high": 0.1}}, r"clip.low \(0.2\) is above clip.high \(0.1\)"),
        ({"length_penalty": {"eta_min": 1}}, r"eta_min \(1.0\) is above length_penalty.eta_max \(0.0\)"),
        ({"mismatch": {"kind": "tis"}}, "it needs learner.old_logprobs=learner"),
        ({"learner": {"dtype": "bfloat16"}}, "bfloat16 rounds otherwise than the engine"),
        ({"sampling": {"max_staleness": 1}}, "max_staleness above 0 learn.* with mismatch.kind=tis"),
        ({"sampling": {"partial": 0.5}}, "sampling.partial above 0 learn.* with mismatch.kind=tis"),
        ({"mismatch": {"low": 3}}, r"mismatch.low \(3.0\) is above mismatch.high \(2.0\)"),
        (UNSEEN | {"reset": {"stalled_validations": 2}}, "need validations: set validation.every above 0"),
        (UNSEEN | {"reset": {"target": "best"}}, "need validations: set validation.every above 0"),
        ({"reset": {"kl_count": 6}}, r"reset.kl_count \(6\) is above reset.kl_window \(5\)"),
        ({"tasks": {"arithmetic": {"weight": 0}}}, "every task has weight 0"),
        ({"stages": [{"at": 5}, {"at": 5}]}, r"stages must begin at ascending steps, not \[5, 5\]"),
        ({"stages": [{"at": 5}, {"at": 3}]}, r"ascending steps, not \[5, 3\]"),
        ({"stages": [{"at": 5, "mixture": {"sudoku": 1}}]}, r"step 5: the mixture names \['sudoku'\]"),
        ({"model": {}}, "exactly one"),
        ({"model": {"path": "m", "warmup": {}}}, "exactly one"),
        ({"kl": {"coef": {"points": []}}}, "at least 1"),
        *(
            ({"kl": {"coef": {"points": points}}}, "begin at step 0 and ascend")
            for points in ([[5, 1]], [[0, 1], [5, 2], [5, 3]], [[0, 1], [9, 2], [5, 3]])
        ),
        ({"optimizer": {"lr": {"points": [[0, -1]]}}}, r"^r: optimizer.lr[.:\d]"),
        ({"optimizer": {"lr": RISE | {"start": -1}}}, r"^r: optimizer.lr.start: "),
        ({"optimizer": {"lr": RISE | {"ramp": "steep"}}}, r"^r: optimizer.lr[.:]"),
        ({"detectors": {"kl_spike": {"treshold": 3}}}, "did you mean 'detectors.kl_spike.threshold'"),
        ({"detectors": {"kl_spike": {"hits": 4}}}, r"hits \(4\) is above of_last \(3\)"),
        ({"detectors": {"kl_spike": {"mode": "act", "action": "warn"}}}, "mode: act needs an action"),
        ({"detectors": {"kl_spike": {"rearm": 9}}}, r"kl_spike: rearm \(9\) is above its threshold \(8\)"),
        ({"detectors": {"no_signal": {"rearm": 0}}}, r"rearm \(0\) is below its threshold \(0.01\)"),
    ],
)
def test_settings_that_mean_nothing_alone_or_together_are_refused(settings, sentence):
    with pytest.raises(RecipeError, match=sentence):
        recipe(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "a run of mine, 2"},
        {"backend": "ray", "evaluation": {"top_p": 0.9, "temperature": 0}},
        {"sampling": {"prompts_per_step": 12}, "optimizer": {"updates_per_step": 4}},
        {"model": {"path": "m", "shape": {"context": 8193}}},
        {"clip": {"high": 0.2}},
        {"length_penalty": {"eta_min": 0}},
        {"mismatch": {"kind": "tis"}, "learner": {"old_logprobs": "learner"}},
        {"learner": {"dtype": "bfloat16", "old_logprobs": "learner"}},
        STALE | {"mismatch": {"kind": "icepop"}},
        {"mismatch": {"low": 2}},
        {"backend": "local", "cluster": {"offload": True}},
        {"backend": "ray", "cluster": {"offload": True, "learners": 2}},
        UNSEEN,
        {"reset": {"kl_count": 5}},
        {"tasks": {"arithmetic": {"weight": 0}, "countdown": {}}},
        {"stages": [{"at": 0}, {"at": 5, "mixture": {"countdown": 0}}]},
    ],
)
def test_settings_at_the_edge_of_meaning_are_not(settings):
    assert isinstance(recipe(**settings), RunConfig)


def test_the_shape_is_that_of_the_base_or_the_one_told():
    assert shape_of(recipe()) is None
    assert shape_of(recipe(model={"path": "m", "shape": {"layers": 7, "context": 9000}})).layers == 7
    assert shape_of(recipe(**WARMED)).layers == 7


def test_a_checked_recipe_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        recipe().steps = 5


def test_where_a_run_is_computed_is_no_part_of_what_it_is():
    elsewhere = recipe(backend="ray", cluster={"learners": 8, "engines": 8}, save={"every": 7})
    assert config_hash(elsewhere) == config_hash(recipe()) == config_hash(recipe(steps=3000))
    others = {config_hash(recipe(**said)) for said in ({"seed": 1}, {"steps": 3001}, {"kl": {"coef": 2e-4}})}
    assert len(others - {config_hash(recipe())}) == 3


# -- detectors


def test_the_plan_has_the_detectors_that_are_on():
    plan = make_plan(recipe(detectors={"kl_spike": {"mode": "off"}, "no_signal": {"cooldown": 7}}))
    assert plan.detectors.keys() == some_detectors().keys() - {"kl_spike"}
    assert plan.detectors["no_signal"].cooldown == 7


def test_every_detector_has_an_action_of_its_own_to_turn_on():
    every = some_detectors(**{name: {"mode": "act"} for name in some_detectors()})
    assert all(rule.action != "warn" for rule in every.values())


def test_without_a_penalty_no_detector_resets_the_reference():
    off = {"kl": {"coef": 0}, "reset": {"every": 0}}
    with pytest.raises(RecipeError, match=r"take out detectors\.kl_spike, or set"):
        make_plan(recipe(detectors={"kl_spike": {"mode": "act"}}, **off))
    assert make_plan(recipe(detectors={"kl_spike": {"mode": "warn"}}, **off))
