"""What a dry run promises of tokens, memory and disk, and which backend a machine with a GPU gets."""

import sysconfig

import pytest
from transformers import MambaConfig, Qwen2Config, T5Config

from prorl.cluster import estimate
from prorl.cluster.capacity import TILED_KEYS, pinned
from prorl.cluster.estimate import choose_backend, dry_run, estimates, machine_findings, model_size, plan_gpus
from prorl.cluster.survey import no_compiler
from prorl.config.recipe import RecipeError
from prorl.control.plan import make_plan
from prorl.learn.packing import MOST_KEYS
from support.cluster import write_nvidia_smi
from support.recipes import recipe

SHAPE = {"hidden_size": 64, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate_size": 128, "context": 512}
MODEL = {"path": "m", "shape": SHAPE, "parameters": 2**28}
SMALL = {
    "steps": 10,
    "sampling": {"prompts_per_step": 4, "samples_per_prompt": 2, "response_limit": 100},
    "dynamic_sampling": {"max_draw_factor": 3},
    "model": MODEL,
}


def said(**settings) -> str:
    config = recipe(**(SMALL | settings))
    return "\n".join(estimates(config, make_plan(config)))


NO_REFERENCE = {"kl": {"coef": 0}, "reset": {"every": 0}}
HALF = {"dtype": "bfloat16", "old_logprobs": "learner"}
ODD = MODEL | {"parameters": 3 * 2**26}
WIDE = {"micro_batch_tokens": 2**20}
STEADY = {"steps": 1000, "save": {"keep_last": 3}}
FULL = {
    "sampling": {"prompts_per_step": 8, "samples_per_prompt": 2**10, "response_limit": 2**14},
    "model": MODEL | {"shape": SHAPE | {"context": 2**15}},
}
AHEAD = {
    "sampling": FULL["sampling"] | {"max_staleness": 1},
    "mismatch": {"kind": "tis"},
    "learner": {"old_logprobs": "learner"},
}


def later(at=6, **change):
    return {"stages": [{"at": at, **change}]}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "the first step trains on 8 rollouts of 4 informative groups, at most 800 tokens"),
        ({}, "samples at most 2,400"),
        ({}, "the run trains on at most 8,000 tokens in 10 steps"),
        # stages are part of the bound
        (later(set={"sampling.samples_per_prompt": 4}), "at most 11,200 tokens in 10 steps"),
        ({}, "a reference is held"),
        (NO_REFERENCE, "a reference is not held"),
        # float32: weights, gradients, two moments, reference, the engine's copy = 6 times 1 GiB
        ({}, "optimizer and copies 6.00 GiB"),
        (NO_REFERENCE, "copies 5.00 GiB"),
        ({"learner": HALF}, "copies 6.50 GiB"),  # autocast keeps one of the weights
        # 2^20 tokens x 2 layers x (32 bytes x 64 hidden + 16 x 128 feed-forward + 8 x 32 key-value)
        ({"learner": WIDE}, "activations of a micro-batch about 8.50 GiB"),
        ({"learner": WIDE | HALF}, "activations of a micro-batch about 6.00 GiB"),
        (
            {"learner": WIDE | {"activation_checkpointing": True}},
            "activations of a micro-batch about 4.75 GiB",
        ),
        # a response of 2^14 tokens is never cut
        (FULL | {"learner": {"micro_batch_tokens": 64}}, "activations of a micro-batch about 0.13 GiB"),
        # each of two worker processes has two gradients and a copy, and a pass of its own
        ({"workers": 2, "device": "cpu"}, "optimizer and copies 12.00 GiB"),
        ({"learner": WIDE, "workers": 2, "device": "cpu"}, "of a micro-batch about 17.00 GiB"),
        # 2^18 or 256^2 keys and values x 32 wide x 2 layers x 4 bytes, copied by each worker
        ({"learner": WIDE, "device": "cpu"}, "and up to about 0.12 GiB more where responses share a prompt"),
        ({"learner": WIDE, "workers": 2, "device": "cpu"}, "and up to about 0.25 GiB more where"),
        ({"learner": {"micro_batch_tokens": 512}}, "and up to about 0.03 GiB more where"),
        # 2^14 rows x 100 tokens x 2 layers x keys and values x 32 wide x 4 bytes
        ({"engine": {"max_rows": 2**14}}, "key-value cache at most 0.78 GiB"),
        # weights and moments; from a GPU to pinned memory, which for a matrix of 0.75 GiB is 1 GiB
        ({"model": ODD}, "while a checkpoint is written 2.25 GiB"),
        ({"model": ODD, "device": "cuda"}, "while a checkpoint is written 3.00 GiB"),
        # that of the longest stage
        (
            later(set={"sampling.response_limit": 200}) | {"engine": {"max_rows": 2**14}},
            "key-value cache at most 1.56 GiB",
        ),
        (STEADY, "24.00 GiB for 8 checkpoints of 3.00 GiB"),
        (STEADY | {"save": {"keep_last": 3, "keep_every": 100}}, "for 18 checkpoints"),
        (STEADY | {"reset": {"every": 300}} | later(at=3, reset_reference=True), "5.00 GiB for 5 references"),
        # at a high KL, at validations that stall, by a command
        (STEADY, "5 references, 1.00 GiB for each that no schedule foresees"),
        (NO_REFERENCE, "0.00 GiB for 0 references"),
        # 8 groups of 2^24 tokens, drawn 3 times over: 12 bytes each, and as much again where a step is sampled ahead
        (FULL, "for a step's responses at most 4.50 GiB"),
        (FULL | AHEAD, "for a step's responses at most 9.00 GiB"),
        (FULL | later(set={"sampling.samples_per_prompt": 2**11}), "for a step's responses at most 9.00 GiB"),
    ],
)
def test_an_estimate_is_what_is_worked_out_by_hand(settings, text):
    assert text in said(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"device": "cuda"},
        *[{"learner": one} for one in (HALF, {"compile": True}, {"activation_checkpointing": True})],
    ],
)
def test_responses_share_no_prompt_where_each_has_a_row_of_its_own(settings):
    assert "share a prompt" not in said(**settings)


def test_keys_in_tiles_are_bounded_as_the_learner_bounds_them():
    assert TILED_KEYS == MOST_KEYS


def test_parameters_are_counted_from_the_shape_of_a_base_to_be_made():
    warmup = {"shape": SHAPE, "vocab_size": 1000}
    size = model_size(recipe(**(SMALL | {"model": {"warmup": warmup}})))
    attention, mlp, embedding = 64 * (64 + 32 + 32 + 64), 3 * 64 * 128, 1000 * 64
    assert size.parameters == 2 * (attention + mlp) + embedding
    assert (size.hidden_size, size.layers, size.kv_width, size.context) == (64, 2, 32, 512)


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ({"arithmetik": {}}, "did you mean 'arithmetic'?"),
        ({"arithmetic": {"levels": {99: 1}}}, "no level [99]"),
        ({"mine": {"grade": "gone.py:score", "path": "rows.jsonl"}}, "gone.py:score: the file cannot"),
    ],
)
def test_a_dry_run_refuses_tasks_levels_and_functions_that_do_not_exist(tasks, told):
    with pytest.raises(RecipeError) as error:
        dry_run(recipe(tasks=tasks))
    assert told in str(error.value)


def test_a_dry_run_is_yaml_and_comments():
    short, full = (dry_run(recipe(**SMALL), full=full).splitlines() for full in (False, True))
    assert sum(line.startswith("# ") for line in full) == len(said().splitlines())
    assert full[len(said().splitlines())] == "name: r"
    assert len(short) < len(full) / 2


def test_a_dry_run_for_a_cluster_prints_the_placement():
    config = recipe(**SMALL).model_copy(update={"backend": "ray"})
    text = "\n".join(estimates(config, make_plan(config)))
    assert "placement on 8 GPUs of 80 GiB in 1 node" in text
    assert "key-value cache at most" not in text  # what one process would hold


def test_a_model_of_unknown_size_is_not_placed():
    with pytest.raises(RecipeError, match=r"model\.shape and model\.parameters"):
        plan_gpus(recipe())


def test_gpus_that_cannot_share_a_stored_model_are_told_before_an_engine_starts(tmp_path):
    heads = {"num_attention_heads": 6, "num_key_value_heads": 6}
    Qwen2Config(
        hidden_size=96, intermediate_size=96, vocab_size=100, num_hidden_layers=1, **heads
    ).save_pretrained(tmp_path)
    config = recipe(model={"path": str(tmp_path)}, backend="ray", cluster={"tensor_parallel": 3})
    with pytest.raises(
        RecipeError, match=r"\(3\) does not divide the model's vocabulary, padded to 128: take 1 or 2"
    ):
        plan_gpus(config)


@pytest.mark.parametrize("kind", [T5Config(num_layers=1), MambaConfig(num_hidden_layers=1)])
def test_a_model_that_cannot_be_trained_has_no_size_and_is_told_of_when_it_is_loaded(kind, tmp_path):
    kind.save_pretrained(tmp_path)
    assert model_size(recipe(model={"path": str(tmp_path)})) is None


def test_a_placement_knows_the_cache_and_the_offload_of_the_recipe():
    cluster = {"learners": 2, "engines": 2, "offload": True, "cache_gib": 0.01}
    config = recipe(**SMALL | {"backend": "ray", "cluster": cluster})
    planned = plan_gpus(config, nodes=1)
    assert planned.cache == 0.01 * 2**30
    assert "moments" not in planned.learning
    # float32 weights, gradients, two moments and reference of both ranks; a checkpoint; the engines' weights; of
    # 2,400 tokens sampled 12 bytes each, of 800 learned from 8 each on their way and in the ranks
    grown = pinned(model_size(config), shards=2)
    assert sum(planned.node.values()) == pytest.approx(
        ((5 + 3) * grown + 2) * 2**30 + 12 * 2400 + 8 * 800 * 2
    )


def test_responses_are_part_of_the_host_memory():
    on_cluster = recipe(**SMALL | FULL | {"backend": "ray"})
    eight = plan_gpus(on_cluster, 8).node["responses"]
    assert eight == 2**27 * (3 * 12 + 8 + 8)  # sampled; on their way to ranks; in the ranks
    # of four nodes, the one with the driver
    assert plan_gpus(on_cluster, 32).node["responses"] == 2**27 * (3 * 12 + 8 + 2)


def gpus_here(monkeypatch, tmp_path, *mebibytes):
    """A machine whose driver lists such GPUs, which torch uses, with the packages of a cluster."""
    write_nvidia_smi(tmp_path, *(f"{size}, 580.95" for size in mebibytes))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    there = {"ray": "2.60.0", "vllm": "0.32.0", "torch": "2.13.0", "transformers": "5.17.0"}
    monkeypatch.setattr(estimate, "installed", lambda: there)
    monkeypatch.setattr(estimate, "no_compiler", lambda: ())
    monkeypatch.setattr(estimate, "machine_memory", lambda: (64 << 30, 64 << 30))
    return there


def test_a_machine_without_a_gpu_computes_in_one_process_and_says_nothing_of_it():
    chosen, why = choose_backend(recipe(**SMALL))
    assert (chosen.backend, why) == ("local", "")


def test_on_one_gpu_vllm_and_the_learner_take_turns_if_both_fit(monkeypatch, tmp_path):
    gpus_here(monkeypatch, tmp_path, 81559)
    chosen, why = choose_backend(recipe(**SMALL))
    assert (chosen.backend, chosen.cluster.colocate) == ("ray", True)
    assert "take turns on the GPU (backend=ray cluster.colocate=true)" in why


@pytest.mark.parametrize(
    ("settings", "mebibytes", "missing", "why"),
    [
        (
            {"model": {"warmup": {}}, "tasks": {"countdown": {}}},
            [81559],
            None,
            "so small a model gains nothing",
        ),
        ({}, [81559, 81559], None, "for 2 GPUs see prorl doctor --recipe RECIPE --gpus 2"),
        ({}, [81559], "vllm", "vllm >=0.25.1,<0.33 is missing"),
        ({}, [8192], None, "learning needs"),
        (
            {"sampling": SMALL["sampling"] | {"top_p": 0.9}},
            [81559],
            None,
            "backend=ray needs sampling.top_p 1",
        ),
    ],
)
def test_else_one_process_samples_and_learns_on_it_and_says_why(
    monkeypatch, tmp_path, settings, mebibytes, missing, why
):
    there = gpus_here(monkeypatch, tmp_path, *mebibytes)
    there |= {missing: ""} if missing else {}
    chosen, told = choose_backend(recipe(**(SMALL | settings)))
    assert chosen.backend == "local"
    assert "by itself (backend=local)" in told
    assert why in told


def test_turns_need_a_compiler_and_memory_of_the_machine(monkeypatch, tmp_path):
    gpus_here(monkeypatch, tmp_path, 81559)
    monkeypatch.setattr(estimate, "machine_memory", lambda: (1 << 30, 1 << 30))
    assert "GiB in the machine's memory, which has 1" in choose_backend(recipe(**SMALL))[1]
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.setattr(estimate, "no_compiler", no_compiler)
    assert "apt-get install gcc" in choose_backend(recipe(**SMALL))[1]
    assert [one.partition(": ")[2] for one in no_compiler()] == [
        "apt-get install gcc",
        "apt-get install python3-dev",
    ]


def test_a_gpu_that_torch_does_not_see_is_told(monkeypatch, tmp_path):
    gpus_here(monkeypatch, tmp_path, 81559)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "torch does not see the GPU" in choose_backend(recipe(**SMALL))[1]
    lacking = {one.name: one.cost for one in machine_findings() if not one.works}
    assert list(lacking) == ["torch"]
    assert "install a torch for CUDA" in lacking["torch"]


@pytest.mark.parametrize("backend", ["local", "ray"])
def test_what_a_recipe_says_of_the_backend_stays(monkeypatch, tmp_path, backend):
    gpus_here(monkeypatch, tmp_path, 81559)
    assert choose_backend(said := recipe(**SMALL, backend=backend)) == (said, "")
