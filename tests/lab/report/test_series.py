"""What is drawn keeps what matters: extremes and ends of a curve, honest intervals over seeds."""

import math
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.lab.report.series import calm, over_seeds, short, thin

CURVES = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=400)


@given(ys=CURVES, limit=st.integers(8, 60))
def test_thinning_keeps_ends_extremes_and_order(ys, limit):
    xs = list(range(len(ys)))
    kept_x, kept_y = thin(xs, ys, limit)
    assert len(kept_x) == len(kept_y) <= max(limit, 2)
    assert (kept_x[0], kept_x[-1]) == (xs[0], xs[-1])
    assert kept_x == sorted(set(kept_x))
    assert all(ys[x] == y or math.isnan(y) for x, y in zip(kept_x, kept_y, strict=True))
    finite = [y for y in ys if math.isfinite(y)]
    if finite:
        drawn = [y for y in kept_y if math.isfinite(y)]
        assert (min(drawn), max(drawn)) == (min(finite), max(finite))


def test_a_short_curve_is_left_alone():
    assert thin([1, 2, 3], [5.0, 6.0, 7.0]) == ([1, 2, 3], [5.0, 6.0, 7.0])


def test_a_stretch_without_numbers_is_a_gap():
    ys = [1.0] * 100 + [math.nan] * 100 + [1.0] * 100
    xs, kept = thin(range(300), ys, 30)
    assert any(math.isnan(y) for x, y in zip(xs, kept, strict=True) if 100 <= x < 200)


def test_calm_is_the_mean_of_the_neighbours():
    assert calm([0.0, 3.0, 6.0, 9.0], window=3) == [1.5, 3.0, 6.0, 7.5]


def test_calm_leaves_out_what_is_missing():
    smooth = calm([1.0, math.inf, 3.0, math.nan, 5.0], window=3)
    assert smooth[0] == 1.0
    assert math.isnan(smooth[1])
    assert smooth[2] == 3.0
    assert smooth[4] == 5.0


@given(ys=st.lists(st.floats(-100, 100), min_size=1, max_size=200))
def test_calm_stays_within_the_curve(ys):
    smooth = calm(ys)
    assert all(min(ys) - 1e-9 <= y <= max(ys) + 1e-9 for y in smooth)


def test_seeds_become_mean_and_t_interval_at_common_steps():
    found = over_seeds([{1: 1.0, 2: 2.0, 3: 9.0}, {1: 3.0, 2: 2.0}, {1: 5.0, 2: 2.0}])
    assert found.steps == [1, 2]
    assert found.mean == [3.0, 2.0]
    half = 4.30265 * stdev([1.0, 3.0, 5.0]) / math.sqrt(3)
    assert (found.low[0], found.high[0]) == pytest.approx((3 - half, 3 + half), abs=1e-4)
    assert (found.low[1], found.high[1]) == (2.0, 2.0)


def test_one_run_and_a_gap_have_no_interval():
    alone = over_seeds([{1: 1.0}])
    broken = over_seeds([{1: 1.0}, {1: math.inf}])
    assert all(map(math.isnan, (*alone.low, *alone.high, *broken.mean, *broken.low)))


def test_numbers_travel_short_and_without_what_json_lacks():
    assert short([1 / 3, math.nan, -math.inf, 2e-7]) == [0.333333, None, None, 2e-7]
