import random

import pytest

from prorl.algo.forecast import FEWEST, forecast


def run(limit, first, middle, sharp, count, noise, seed=0, steps=1000):
    """A validation curve of the form that is fitted, with noise."""
    source, points = random.Random(seed), []
    for i in range(count):
        step = steps * i / (count - 1)
        rise = 1 / (1 + (middle / step) ** sharp) if step else 0.0
        points.append((step, first + (limit - first) * rise + source.gauss(0, noise)))
    return tuple(points)


@pytest.mark.parametrize("count", [FEWEST, 20, 200])
def test_a_curve_without_noise_tells_its_limit(count):
    found = forecast(run(0.5, 0.25, 250, 2.0, count, 0))
    assert found.value == pytest.approx(0.5, abs=0.01)
    assert found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high


def test_the_interval_holds_the_limit_nearly_always_and_narrows_as_the_curve_flattens():
    early = [forecast(run(0.5, 0.25, 400, 1.4, 20, 0.01, seed)) for seed in range(12)]
    late = [forecast(run(0.5, 0.25, 80, 1.4, 20, 0.01, seed)) for seed in range(12)]
    for found in (early, late):
        shown = [one for one in found if one]
        assert len(shown) >= 9
        assert sum(one.low <= 0.5 <= one.high for one in shown) >= 0.75 * len(shown)
    width = [sum(one.high - one.low for one in found if one) for found in (early, late)]
    assert width[1] < width[0] / 2


def test_what_its_own_past_does_not_foretell_gets_no_forecast():
    flat_then_up = tuple((10 * i, 0.3 + 0.001 * (i % 3) + 0.3 * (i >= 20)) for i in range(30))
    assert forecast(flat_then_up) is None


def test_too_few_points_say_nothing():
    assert forecast(run(0.5, 0.25, 100, 1.0, FEWEST - 1, 0)) is None
    assert forecast(()) is None


def test_scores_that_do_not_move_head_for_where_they_are():
    assert forecast(tuple((10 * i, 0.4) for i in range(20))) == pytest.approx((0.4, 0.4, 0.4), abs=0.05)


@pytest.mark.parametrize(
    ("middle", "sharp", "count", "noise"),
    [(2000, 1.0, 20, 0.01), (3000, 1.0, 20, 0.01), (5000, 1.0, 20, 0.01), (400, 2.0, 60, 0.01)],
)
def test_the_interval_holds_a_limit_that_is_far_away_or_told_by_exact_points(middle, sharp, count, noise):
    found = [forecast(run(0.8, 0.2, middle, sharp, count, noise, seed)) for seed in range(20)]
    shown = [one for one in found if one]
    assert sum(one.low <= 0.8 <= one.high for one in shown) >= 0.8 * len(shown) > 9


def test_a_limit_is_a_share():
    assert forecast(run(1.0, 0.1, 300, 2.0, 25, 0.01)).high == 1
    assert forecast(run(0.0, 0.9, 300, 2.0, 25, 0.01)).low == 0
    assert [forecast(run(limit, 0.5, 400, 2.0, 20, 0)) for limit in (1.3, -0.3)] == [None, None]
