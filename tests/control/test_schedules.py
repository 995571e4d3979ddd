"""Schedules as data: values at the corners, and no memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.config.fields import PointsConfig, RampConfig
from prorl.config.schema import LengthPenaltyConfig

SCHEDULES = [
    PointsConfig(points=((0, 1.0), (10, 0.5), (20, 0.0))),
    RampConfig(ramp="linear", start=0.0, end=1.0, steps=10, start_step=5),
    RampConfig(ramp="cosine", start=1.0, end=0.0, steps=10),
    LengthPenaltyConfig(weight=0.1, on_steps=2, off_steps=3, start_step=4),
]


@pytest.mark.parametrize(("step", "value"), [(0, 1.0), (9, 1.0), (10, 0.5), (19, 0.5), (20, 0.0), (999, 0.0)])
def test_pieces_hold_from_their_first_step_on(step, value):
    assert SCHEDULES[0].at(step) == value


@pytest.mark.parametrize(("step", "value"), [(0, 0.0), (5, 0.0), (10, 0.5), (15, 1.0), (999, 1.0)])
def test_a_linear_ramp_is_constant_before_and_after(step, value):
    assert SCHEDULES[1].at(step) == value


def test_a_cosine_ramp_meets_a_linear_one_at_both_ends_and_in_the_middle():
    linear, cosine = (RampConfig(ramp=shape, start=1.0, end=0.0, steps=10) for shape in ("linear", "cosine"))
    assert [cosine.at(step) for step in (0, 10)] == [linear.at(step) for step in (0, 10)]
    assert cosine.at(5) == pytest.approx(linear.at(5))
    assert cosine.at(2) > linear.at(2)
    assert cosine.at(8) < linear.at(8)


def test_a_cycle_is_off_before_its_start_and_repeats():
    assert [SCHEDULES[3].at(step) for step in range(12)] == [0] * 4 + [0.1, 0.1, 0, 0, 0, 0.1, 0.1, 0]


@given(st.sampled_from(SCHEDULES), st.lists(st.integers(0, 100), min_size=1))
def test_the_value_at_a_step_does_not_depend_on_what_was_asked_before(schedule, steps):
    last = schedule.at(steps[-1])
    for step in steps:
        schedule.at(step)
    assert schedule.at(steps[-1]) == last


@given(st.sampled_from(SCHEDULES), st.integers(0, 10_000))
def test_values_stay_between_the_extremes(schedule, step):
    assert 0 <= schedule.at(step) <= 1
