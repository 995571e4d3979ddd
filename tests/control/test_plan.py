"""What every knob is at every step."""

import pytest

from prorl.config.fields import PointsConfig, RampConfig
from prorl.config.schema import LengthPenaltyConfig
from prorl.control.plan import knobs_at
from support.defaults import some_knobs, some_plan, some_stage

LINEAR = RampConfig(ramp="linear", start=0, end=1, steps=10)
PLAN = some_plan(
    seed=0,
    steps=100,
    knobs=some_knobs(samples_per_prompt=16, temperature=1.2),
    schedules={"length_weight": LengthPenaltyConfig(weight=0.1, on_steps=1, off_steps=1)},
    stages=(
        some_stage(at=10, knobs={"samples_per_prompt": 32, "length_weight": 0.5}),
        some_stage(
            at=20,
            knobs={
                "samples_per_prompt": 16,
                "learning_rate": RampConfig(ramp="linear", start=0, end=1, steps=10),
            },
        ),
    ),
)


def test_a_plan_without_schedules_and_stages_is_its_constants():
    plan = some_plan(seed=0, steps=5, knobs=some_knobs(temperature=0.7))
    assert {knobs_at(plan, step) == plan.knobs for step in range(10)} == {True}


@pytest.mark.parametrize(("step", "samples"), [(0, 16), (9, 16), (10, 32), (19, 32), (20, 16), (99, 16)])
def test_a_stage_holds_until_another_one_says_otherwise(step, samples):
    assert knobs_at(PLAN, step).samples_per_prompt == samples
    assert knobs_at(PLAN, step).temperature == 1.2


def test_a_stage_replaces_a_schedule_and_may_bring_one():
    assert [knobs_at(PLAN, step).length_weight for step in (0, 1, 10, 11, 30)] == [0.1, 0, 0.5, 0.5, 0.5]
    assert [knobs_at(PLAN, step).learning_rate for step in (19, 20, 25)] == [1e-6, 1, 1]


OFF, ON = some_knobs(kl_coef=0.0), some_knobs(kl_coef=0.1)
NEVER_PAID = some_plan(seed=0, steps=9, knobs=OFF, stages=(some_stage(at=3, knobs={"temperature": 2.0}),))


@pytest.mark.parametrize(
    ("plan", "needed"),
    [
        (some_plan(seed=0, steps=9, knobs=ON), True),
        (NEVER_PAID, False),
        (some_plan(seed=0, steps=9, knobs=OFF, stages=(some_stage(at=3, knobs={"kl_coef": 0.1}),)), True),
        (some_plan(seed=0, steps=9, knobs=ON, stages=(some_stage(at=3, knobs={"kl_coef": 0.0}),)), True),
        (
            some_plan(
                seed=0, steps=9, knobs=OFF, schedules={"kl_coef": PointsConfig(points=((0, 0.0), (5, 1.0)))}
            ),
            True,
        ),
        (
            some_plan(
                seed=0,
                steps=9,
                knobs=OFF,
                stages=(
                    some_stage(at=3, knobs={"kl_coef": RampConfig(ramp="linear", start=0, end=1, steps=3)}),
                ),
            ),
            True,
        ),
    ],
)
def test_a_reference_is_needed_if_a_penalty_is_ever_paid(plan, needed):
    assert plan.needs_reference is needed
