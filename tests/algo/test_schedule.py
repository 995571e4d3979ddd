import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.schedule import cosine, linear, on_off, piecewise

steps = st.integers(0, 5_000)
values = st.floats(-10, 10)
ramps = pytest.mark.parametrize("ramp", [linear, cosine])


def test_the_published_cycle():
    on = [step for step in range(1_250) if on_off(step, 100, 500, start_step=50)]
    assert on == [*range(50, 150), *range(650, 750)]


@given(steps, st.integers(0, 50), st.integers(0, 50), st.integers(0, 200))
def test_a_cycle_equals_walking_it(step, on_steps, off_steps, start):
    walked, phase = False, 0
    if step >= start and on_steps:
        phase = step - start
        while phase >= on_steps + off_steps:
            phase -= on_steps + off_steps
        walked = phase < on_steps
    assert on_off(step, on_steps, off_steps, start) is walked


@given(steps, st.integers(1, 50), st.integers(0, 200))
def test_no_off_steps_is_on_from_the_start_for_good(step, on_steps, start):
    assert on_off(step, on_steps, 0, start) == (step >= start)


@given(steps, st.integers(0, 50))
def test_off_value_no_on_steps_is_never_on(step, off_steps):
    assert not on_off(step, 0, off_steps)


@pytest.mark.parametrize(("on_steps", "off_steps"), [(-1, 5), (5, -1)])
def test_negative_cycles_are_refused(on_steps, off_steps):
    with pytest.raises(ValueError, match="cycle"):
        on_off(0, on_steps, off_steps)


def test_pieces_hold_until_the_next_point():
    points = [(0, 1.0), (10, 2.0), (15, 0.5)]
    assert [piecewise(step, points) for step in (0, 9, 10, 14, 15, 10**6)] == [1.0, 1.0, 2.0, 2.0, 0.5, 0.5]


@given(steps, st.lists(st.tuples(st.integers(1, 5_000), values), unique_by=lambda point: point[0]), values)
def test_pieces_equal_a_walk_over_the_points(step, later, first):
    points = [(0, first), *sorted(later)]
    walked = first
    for at, value in points:
        if at <= step:
            walked = value
    assert piecewise(step, points) == walked


@pytest.mark.parametrize("points", [[], [(5, 1.0), (5, 2.0)], [(5, 1.0), (2, 2.0)]])
def test_points_that_do_not_ascend_are_refused(points):
    with pytest.raises(ValueError, match="ascending"):
        piecewise(9, points)


def test_a_step_before_the_first_point_is_refused():
    with pytest.raises(ValueError, match="before the first point"):
        piecewise(4, [(5, 1.0)])


def test_a_linear_ramp_in_numbers():
    got = [linear(step, start=1.0, end=0.0, steps=4, start_step=10) for step in (0, 10, 11, 12, 13, 14, 99)]
    assert got == [1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]


def test_a_cosine_ramp_in_numbers():
    got = [cosine(step, start=0.0, end=1.0, steps=4) for step in range(6)]
    eighth = math.sin(math.pi / 8) ** 2
    assert got == pytest.approx([0, eighth, 0.5, 1 - eighth, 1, 1])


@ramps
@given(start=values, end=values, length=st.integers(1, 500), begin=st.integers(0, 500))
def test_ramps_meet_their_ends_exactly(ramp, start, end, length, begin):
    shape = {"start": start, "end": end, "steps": length, "start_step": begin}
    assert ramp(0, **shape) == ramp(begin, **shape) == start
    assert ramp(begin + length, **shape) == ramp(begin + length + 7, **shape) == end


@ramps
@given(start=values, end=values, length=st.integers(1, 60))
def test_ramps_only_move_towards_their_end(ramp, start, end, length):
    curve = [ramp(step, start=start, end=end, steps=length) for step in range(length + 1)]
    sign = 1 if end >= start else -1
    assert all(sign * (later - earlier) >= -1e-12 for earlier, later in pairwise(curve))


@ramps
@given(step=steps, value=values, length=st.integers(1, 500))
def test_off_value_a_ramp_between_equal_ends_is_the_constant(ramp, step, value, length):
    assert ramp(step, start=value, end=value, steps=length) == value


@ramps
def test_a_ramp_of_no_steps_is_refused(ramp):
    with pytest.raises(ValueError, match="at least one step"):
        ramp(0, start=0.0, end=1.0, steps=0)
