"""From recipe to plan: every hyperparameter at every step, by constants, schedules, stages and the operator."""

from itertools import pairwise

import pytest

from prorl.config.fields import RampConfig
from prorl.config.recipe import RecipeError
from prorl.config.schema import HPARAMS, setting
from prorl.control.plan import hparams_at, hparams_now, make_plan
from prorl.control.state import RunState
from support.recipes import recipe

RAMP = RampConfig(ramp="linear", start=0, end=1, steps=10)


def staged(*stages, **settings):
    return make_plan(recipe(stages=stages, **settings))


def test_every_hparam_holds_what_the_recipe_says():
    config = recipe(length_penalty={"weight": 0})
    plan = make_plan(config)
    hparams = hparams_at(plan, 0)
    assert {hparams_at(plan, step) == hparams for step in range(10)} == {True}
    assert all(getattr(hparams, name) == setting(config, key) for key, name in HPARAMS.items())
    assert hparams.mixture == {"arithmetic": 1.0, "countdown": 1.0}


def test_what_the_recipe_schedules_follows_its_schedule():
    points = {"points": [[0, 0], [5, 0.1]]}
    plan = make_plan(recipe(kl={"coef": points}, optimizer={"lr": RAMP.model_dump()}))
    assert [hparams_at(plan, step).kl_coef for step in (0, 4, 5)] == [0, 0, 0.1]
    assert [hparams_at(plan, step).learning_rate for step in (0, 4, 99)] == [0, 0.4, 1]


def test_a_stage_changes_the_hparams_that_it_sets_and_no_others():
    plan = staged(
        {"at": 5, "set": {"sampling.samples_per_prompt": 32, "clip.high": 0.28}},
        {"at": 9, "set": {"kl.coef": RAMP.model_dump()}},
        {"at": 12, "mixture": {"countdown": 3}, "reset_reference": True, "optimizer": "clear"},
    )
    changed = [{n: v for n, v in after.items() if v != b[n]} for b, after in pairwise(plan.settings)]
    assert changed == [
        {"samples_per_prompt": 32},
        {"kl_coef": RAMP},
        {"mixture": {"arithmetic": 1.0, "countdown": 3.0}},
    ]


def test_what_a_stage_sets_holds_until_another_one_sets_it_back():
    key = "sampling.samples_per_prompt"
    plan = staged(
        {"at": 2, "set": {key: 32}}, {"at": 4, "mixture": {"countdown": 0}}, {"at": 6, "set": {key: 16}}
    )
    assert [hparams_at(plan, step).samples_per_prompt for step in (1, 2, 5, 6, 99)] == [16, 32, 32, 16, 16]
    assert hparams_at(plan, 6).mixture == {"arithmetic": 1.0, "countdown": 0.0}


def test_a_stage_replaces_a_schedule_and_may_bring_or_end_one():
    plan = staged(
        {"at": 5, "set": {"length_penalty.off_steps": 0}},
        {"at": 9, "set": {"length_penalty.weight": 0, "optimizer.lr": RAMP.model_dump()}},
        length_penalty={"on_steps": 1, "off_steps": 1},
    )
    assert [hparams_at(plan, step).length_weight for step in (0, 1, 5, 6, 9)] == [0.1, 0, 0.1, 0.1, 0]
    assert [hparams_at(plan, step).learning_rate for step in (8, 9, 25)] == [1e-6, 0.9, 1]


def test_what_the_operator_holds_is_constant_over_schedules_and_stages():
    plan = staged(
        {"at": 5, "set": {"sampling.samples_per_prompt": 32, "kl.coef": 0.25}}, kl={"coef": RAMP.model_dump()}
    )
    assert [hparams_now(plan, RunState(step=step)).kl_coef for step in (4, 5)] == [0.4, 0.25]
    held = [RunState(step=step, overrides={"kl_coef": 0.125}) for step in (0, 4, 5)]
    assert [hparams_now(plan, state).kl_coef for state in held] == [0.125] * 3
    assert hparams_now(plan, held[-1]).samples_per_prompt == 32


def test_a_lowered_learning_rate_scales_whatever_it_is():
    plan = make_plan(recipe(optimizer={"lr": 1.0}))
    assert hparams_now(plan, RunState(lr_scale=0.5)).learning_rate == 0.5
    assert hparams_now(plan, RunState(lr_scale=0.5, overrides={"learning_rate": 3.0})).learning_rate == 1.5


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        ({"set": {"sampling.temprature": 1}}, "did you mean 'sampling.temperature'?"),
        ({"set": {"save.every": 1}}, "'save.every' cannot change during a run; what can: sampling"),
        ({"set": {"sampling.temperature": 0}}, "sampling.temperature: Input should be greater than 0, not 0"),
        ({"set": {"sampling.samples_per_prompt": 1}}, "samples_per_prompt must be at least 2"),
        ({"set": {"clip.high": 0.1}}, "clip.low (0.2) is above clip.high (0.1)"),
        ({"set": {"sampling.response_limit": 9000}}, "leaves no room"),
        ({"mixture": {"arithmetic": 0, "countdown": 0}}, "every task has weight 0"),
        (
            {"set": {"optimizer.lr": {"ramp": "linear", "start": 0, "end": 1, "steps": 7}}},
            "the ramp of optimizer.lr ends before it: say start_step: 7",
        ),
    ],
)
def test_a_stage_is_checked_like_a_recipe(stage, told):
    with pytest.raises(RecipeError) as error:
        staged({"at": 7, **stage}, model={"path": "m", "shape": {"context": 9000}})
    assert str(error.value).startswith("stage at step 7: ")
    assert told in str(error.value)


def test_a_stage_is_checked_together_with_those_before_it():
    before = {"at": 1, "set": {"clip.low": 0.1, "clip.high": 0.15}}
    assert hparams_at(staged(before), 1).clip_high == 0.15
    with pytest.raises(RecipeError, match=r"step 2: clip.low \(0.3\) is above clip.high \(0.15\)"):
        staged(before, {"at": 2, "set": {"clip.low": 0.3}})


ON, OFF, LATER = {"set": {"kl.coef": 1e-3}}, {"set": {"kl.coef": 0}}, {"set": {"clip.high": 0.3}}


@pytest.mark.parametrize(
    ("needed", "settings"),
    [
        (True, {"kl": {"coef": 0}, "stages": [{"at": 5, **LATER}, {"at": 9, **ON}]}),
        (True, {"kl": {"coef": 0}, "stages": [{"at": 5, **ON}, {"at": 9, **OFF}]}),
        (True, {"stages": [{"at": 5, **OFF}]}),
        (True, {"kl": {"coef": {"points": [[0, 0], [9, 0.1]]}}}),
        (True, {"kl": {"coef": 0}, "stages": [{"at": 3, "set": {"kl.coef": RAMP.model_dump()}}]}),
        (False, {"kl": {"coef": 0}, "reset": {"every": 0}, "stages": [{"at": 5, **LATER}]}),
    ],
)
def test_a_reference_is_needed_if_a_penalty_is_ever_paid(needed, settings):
    assert make_plan(recipe(**settings)).needs_reference is needed


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"reset": {"every": 0, "kl_ceiling": 0.5}},
        {"reset": {"every": 0, "stalled_validations": 2}},
        {"reset": {"every": 0}, "stages": [{"at": 5, "reset_reference": True}]},
        {"stages": [{"at": 5, **LATER}]},
    ],
)
def test_a_reference_that_is_never_paid_for_cannot_be_reset(settings):
    with pytest.raises(RecipeError, match="a reference reset means nothing"):
        make_plan(recipe(kl={"coef": 0}, **settings))
