"""What holds now: plan, then the operator, then a learning rate lowered for a while."""

from prorl.config.fields import RampConfig
from prorl.control.plan import knobs_now
from prorl.control.state import RunState
from support.defaults import some_knobs, some_plan, some_stage

PLAN = some_plan(
    seed=0,
    steps=10,
    knobs=some_knobs(learning_rate=1.0, kl_coef=0.5),
    schedules={"kl_coef": RampConfig(ramp="linear", start=0, end=1, steps=10)},
    stages=(some_stage(at=5, knobs={"samples_per_prompt": 32, "kl_coef": 0.25}),),
)


def test_without_orders_the_plan_holds():
    assert knobs_now(PLAN, RunState(step=4)).kl_coef == 0.4
    assert knobs_now(PLAN, RunState(step=5)).kl_coef == 0.25


def test_what_the_operator_holds_is_constant_over_schedules_and_stages():
    held = {"kl_coef": 0.125}
    assert [knobs_now(PLAN, RunState(step=step, overrides=held)).kl_coef for step in (0, 4, 5)] == [0.125] * 3
    assert knobs_now(PLAN, RunState(step=5, overrides=held)).samples_per_prompt == 32


def test_a_lowered_learning_rate_scales_whatever_it_is():
    assert knobs_now(PLAN, RunState(lr_scale=0.5)).learning_rate == 0.5
    assert knobs_now(PLAN, RunState(lr_scale=0.5, overrides={"learning_rate": 3.0})).learning_rate == 1.5
