"""How unusual a number is, and whether it lasts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.unusual import above_usual, divergence, lasts, times_usual

values = st.lists(st.floats(0.1, 100), min_size=3, max_size=20)


@given(values, st.floats(0, 100), st.floats(0.1, 10))
def test_the_unit_plays_no_part(earlier, value, unit):
    scaled = times_usual(value * unit, [unit * v for v in earlier], floor=unit * 1e-3, least=3)
    assert scaled == pytest.approx(times_usual(value, earlier, floor=1e-3, least=3))


@given(values, st.floats(1e3, 1e9))
def test_one_spike_does_not_raise_the_bar(earlier, spike):
    calm = [1.0] * len(earlier)
    assert times_usual(5.0, [*calm, spike], floor=0.1, least=3) == 5.0


def test_next_to_nothing_counts_as_the_floor():
    assert times_usual(0.5, [0.0, 0.0, 0.0], floor=0.1, least=3) == 5.0


@pytest.mark.parametrize("number", [0, 7])
def test_nothing_is_unusual_before_there_is_something_usual(number):
    assert times_usual(9.0, [1.0] * number, floor=0.1, least=8) is None
    assert above_usual(9.0, [1.0] * number, least=8) is None


def test_a_rise_is_a_difference():
    assert above_usual(0.5, [0.1, 0.2, 0.3], least=3) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("hot", "expected"),
    [("", False), ("1", False), ("11", True), ("101", True), ("110", False), ("1001", False)],
)
def test_two_of_the_last_three_the_newest_among_them(hot, expected):
    assert lasts([mark == "1" for mark in hot], hits=2, of_last=3) is expected


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], 0),
        ([(0.2, 0.3)], 0),
        ([(0.2, 0.3), (0.5, 0.4)], 0),  # both rise
        ([(0.5, 0.4), (0.3, 0.2)], -0.2),  # both fall
        ([(0.2, 0.4), (0.5, 0.3)], 0.1),
        ([(0.2, 0.4), (0.25, 0.1)], 0.05),
        ([(0.2, 0.4), (0.3, 0.4), (0.5, 0.3)], 0.1),  # of equal validations the earliest
    ],
)
def test_divergence_is_the_smaller_of_rise_and_fall_since_the_best_validation(pairs, expected):
    assert divergence(pairs) == pytest.approx(expected)
