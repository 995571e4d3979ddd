"""From recipe to plan: knobs, schedules and stages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.schedule import on_off
from prorl.config.fields import PointsConfig, RampConfig
from prorl.config.recipe import RecipeError
from prorl.config.schema import KNOBS, LengthPenaltyConfig
from prorl.control.plan import knobs_at, make_plan
from support.defaults import some_exams, some_resets
from support.recipes import recipe

OFF = {"length_penalty": {"weight": 0}}


def staged(*stages, **settings):
    return make_plan(recipe(stages=stages, **settings))


def test_every_knob_holds_what_the_recipe_says():
    config = recipe(**OFF)
    knobs = knobs_at(make_plan(config), 0)
    for key, knob in KNOBS.items():
        section, name = key.split(".")
        assert getattr(knobs, knob) == getattr(getattr(config, section), name)
    assert knobs.mixture == {"arithmetic": 1.0, "countdown": 1.0}


def test_rules_and_cadences_are_taken_over():
    plan = make_plan(
        recipe(
            seed=4,
            steps=9,
            reset={"every": 5, "kl_ceiling": 0.5, "optimizer": "clear"},
            exam={"every": 7, "samples": 2},
            save={"every": 3},
            sample_every=2,
        )
    )
    assert plan.reset == some_resets(every=5, kl_ceiling=0.5, optimizer="clear")
    assert plan.exam == some_exams(every=7, samples=2)
    assert (plan.seed, plan.steps, plan.save_every, plan.sample_every) == (4, 9, 3, 2)


@given(
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 10),
    st.integers(0, 40),
    st.sampled_from([0.0, 0.1, 2.0]),
)
def test_the_length_penalty_is_on_when_its_cycle_is(on_steps, off_steps, start_step, step, weight):
    cycle = {"on_steps": on_steps, "off_steps": off_steps, "start_step": start_step}
    plan = make_plan(recipe(length_penalty=cycle | {"weight": weight}))
    on = on_off(step, on_steps, off_steps, start_step)
    assert knobs_at(plan, step).length_weight == (weight if on else 0.0)


def test_dials_become_schedules():
    plan = make_plan(
        recipe(
            kl={"coef": {"points": [[0, 0], [5, 0.1]]}},
            optimizer={"lr": {"ramp": "linear", "start": 0, "end": 1, "steps": 10}},
            **OFF,
        )
    )
    assert plan.schedules == {
        "kl_coef": PointsConfig(points=((0, 0.0), (5, 0.1))),
        "learning_rate": RampConfig(ramp="linear", start=0, end=1, steps=10),
    }
    assert [knobs_at(plan, step).kl_coef for step in (0, 4, 5)] == [0, 0, 0.1]


def test_a_stage_is_the_knobs_that_it_changes():
    plan = staged(
        {"at": 5, "set": {"sampling.samples_per_prompt": 32, "clip.high": 0.28}},
        {"at": 9, "set": {"kl.coef": {"ramp": "linear", "start": 0, "end": 1, "steps": 5}}},
        {"at": 12, "mixture": {"countdown": 3}, "reset_reference": True, "optimizer": "clear"},
    )
    assert [dict(stage.knobs) for stage in plan.stages] == [
        {"samples_per_prompt": 32},
        {"kl_coef": RampConfig(ramp="linear", start=0, end=1, steps=5)},
        {"mixture": {"arithmetic": 1.0, "countdown": 3.0}},
    ]
    assert [(s.at, s.reset_reference, s.optimizer) for s in plan.stages] == [
        (5, False, "keep"),
        (9, False, "keep"),
        (12, True, "clear"),
    ]


def test_what_a_stage_sets_holds_until_another_one_sets_it_back():
    key = "sampling.samples_per_prompt"
    plan = staged(
        {"at": 2, "set": {key: 32}}, {"at": 4, "mixture": {"countdown": 0}}, {"at": 6, "set": {key: 16}}
    )
    assert [knobs_at(plan, step).samples_per_prompt for step in (1, 2, 5, 6)] == [16, 32, 32, 16]
    assert knobs_at(plan, 6).mixture == {"arithmetic": 1.0, "countdown": 0.0}


def test_a_stage_may_change_the_cycle_of_the_length_penalty_and_end_it():
    plan = staged(
        {"at": 5, "set": {"length_penalty.off_steps": 0}}, {"at": 9, "set": {"length_penalty.weight": 0}}
    )
    assert plan.stages[0].knobs["length_weight"] == LengthPenaltyConfig(on_steps=100, off_steps=0)
    assert [knobs_at(plan, step).length_weight for step in (5, 8, 9)] == [0.1, 0.1, 0]


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        ({"set": {"sampling.temprature": 1}}, "did you mean 'sampling.temperature'?"),
        ({"set": {"save.every": 1}}, "'save.every' cannot change during a run; what can: sampling"),
        ({"set": {"sampling.temperature": 0}}, "sampling.temperature: Input should be greater than 0, not 0"),
        ({"set": {"sampling.samples_per_prompt": 1}}, "samples_per_prompt must be at least 2"),
        ({"set": {"optimizer.updates_per_step": 5}}, "does not divide"),
        ({"set": {"clip.high": 0.1}}, "clip.high (0.1) is below clip.low (0.2)"),
        ({"mixture": {"arithmetic": 0, "countdown": 0}}, "every task has weight 0"),
    ],
)
def test_a_stage_is_checked_like_a_recipe(stage, told):
    with pytest.raises(RecipeError) as error:
        staged({"at": 7, **stage})
    assert str(error.value).startswith("stage at step 7: ")
    assert told in str(error.value)


def test_a_stage_is_checked_together_with_those_before_it():
    before = {"at": 1, "set": {"clip.low": 0.1, "clip.high": 0.15}}
    assert knobs_at(staged(before), 1).clip_high == 0.15
    with pytest.raises(RecipeError, match=r"step 2: clip.high \(0.15\) is below clip.low \(0.3\)"):
        staged(before, {"at": 2, "set": {"clip.low": 0.3}})


def test_a_stage_must_fit_into_the_context():
    shape = {"path": "m", "shape": {"context": 9000}}
    with pytest.raises(RecipeError, match=r"step 3: .*leaves no room"):
        staged({"at": 3, "set": {"sampling.response_limit": 9000}}, model=shape)


ON, OFF_AGAIN, LATER = {"set": {"kl.coef": 1e-3}}, {"set": {"kl.coef": 0}}, {"set": {"clip.high": 0.3}}


@pytest.mark.parametrize(
    "settings",
    [
        {"kl": {"coef": 0}, "stages": [{"at": 5, **LATER}, {"at": 9, **ON}]},
        {"kl": {"coef": 0}, "stages": [{"at": 5, **ON}, {"at": 9, **OFF_AGAIN}]},
        {"stages": [{"at": 5, **OFF_AGAIN}]},
        {"kl": {"coef": {"points": [[0, 0], [9, 0.1]]}}},
        {"kl": {"coef": 0}, "reset": {"every": 0}, "stages": [{"at": 5, **LATER}]},
    ],
)
def test_a_reference_may_be_reset_where_a_penalty_is_paid_at_any_step(settings):
    plan = make_plan(recipe(**settings))
    assert plan.needs_reference or not plan.reset.every


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"reset": {"every": 0, "kl_ceiling": 0.5}},
        {"reset": {"every": 0, "stalled_exams": 2}},
        {"reset": {"every": 0}, "stages": [{"at": 5, "reset_reference": True}]},
        {"stages": [{"at": 5, **LATER}]},
    ],
)
def test_a_reference_that_is_never_paid_for_cannot_be_reset(settings):
    with pytest.raises(RecipeError, match="a reference reset means nothing"):
        make_plan(recipe(kl={"coef": 0}, **settings))
