"""Functions of the step that a hyperparameter may follow: pieces, ramps, and the on/off cycle."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.config.fields import PointsConfig, RampConfig
from prorl.config.schema import LengthPenaltyConfig

values = st.floats(0, 10)
kinds = pytest.mark.parametrize("ramp", ["linear", "cosine"])


def curve(at, /, **shape):
    return [RampConfig(**shape).at(step) for step in at]


@given(st.integers(0, 300), st.integers(0, 50), st.integers(0, 50), st.integers(0, 200))
def test_a_cycle_equals_walking_it(step, on_steps, off_steps, start):
    walked, phase = False, 0
    if step >= start and on_steps:
        phase = step - start
        while phase >= on_steps + off_steps:
            phase -= on_steps + off_steps
        walked = phase < on_steps
    cycle = LengthPenaltyConfig(on_steps=on_steps, off_steps=off_steps, start_step=start, weight=0.25)
    assert cycle.at(step) == (0.25 if walked else 0.0)


@given(st.integers(0, 5000), st.dictionaries(st.integers(1, 5000), values), values)
def test_pieces_hold_until_the_next_point(step, later, first):
    points = [(0, first), *sorted(later.items())]
    walked = [value for at, value in points if at <= step][-1]
    assert PointsConfig(points=points).at(step) == walked


def test_ramps_in_numbers():
    line = curve((0, 10, 11, 12, 13, 14, 99), ramp="linear", start=1.0, end=0.0, steps=4, start_step=10)
    assert line == [1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    eighth = math.sin(math.pi / 8) ** 2
    arc = curve(range(6), ramp="cosine", start=0.0, end=1.0, steps=4)
    assert arc == pytest.approx([0, eighth, 0.5, 1 - eighth, 1, 1])


@kinds
@given(start=values, end=values, length=st.integers(1, 60), begin=st.integers(0, 500))
def test_ramps_only_move_towards_their_end_and_meet_it_exactly(ramp, start, end, length, begin):
    steps = [0, *range(begin, begin + length + 1), begin + length + 7]
    found = curve(steps, ramp=ramp, start=start, end=end, steps=length, start_step=begin)
    assert found[0] == found[1] == start
    assert found[-2] == found[-1] == end
    sign = 1 if end >= start else -1
    assert all(sign * (later - earlier) >= -1e-12 for earlier, later in pairwise(found))
