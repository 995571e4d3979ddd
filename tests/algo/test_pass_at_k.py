import math
import random
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.algo.pass_at_k import bootstrap_interval, mean_pass_at_k, pass_at_k


@st.composite
def problems(draw, largest=12):
    n = draw(st.integers(1, largest))
    return n, draw(st.integers(0, n)), draw(st.integers(1, n))


@given(problems(largest=8))
def test_equals_trying_every_choice_of_k_responses(problem):
    n, c, k = problem
    passed = [index < c for index in range(n)]
    choices = list(combinations(passed, k))
    assert pass_at_k(n, c, k) == sum(any(choice) for choice in choices) / len(choices)


@given(problems(largest=600))
def test_equals_the_product_form(problem):
    n, c, k = problem
    product = math.prod(Fraction(i - k, i) for i in range(n - c + 1, n + 1)) if n - c >= k else Fraction(0)
    assert pass_at_k(n, c, k) == float(1 - product)


@given(problems())
def test_off_value_k_one_is_the_share_of_passes(problem):
    n, c, _ = problem
    assert pass_at_k(n, c, 1) == c / n


@given(problems(largest=300))
def test_it_grows_with_passes_and_with_k_within_the_unit_interval(problem):
    n, c, k = problem
    value = pass_at_k(n, c, k)
    assert 0 <= value <= 1
    assert (value == 0) == (c == 0)
    assert k == n or pass_at_k(n, c, k + 1) >= value
    assert c == n or pass_at_k(n, c + 1, k) >= value


def test_large_numbers_lose_nothing():
    assert pass_at_k(100_000, 1, 1) == 1e-5
    assert pass_at_k(100_000, 1, 50_000) == 0.5
    assert pass_at_k(512, 256, 256) == 1.0


def test_it_is_unbiased():
    # For a problem solved with probability p, the estimate's mean over all outcomes of n tries is 1 - (1-p)^k.
    n, k, p = 10, 4, 0.3
    mean = sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1))
    assert mean == pytest.approx(1 - (1 - p) ** k)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5), (0, 0, 1)])
def test_nonsense_is_refused(n, c, k):
    with pytest.raises(ValueError, match=r"passes must|needs k"):
        pass_at_k(n, c, k)


def test_the_mean_is_over_problems_not_over_responses():
    assert mean_pass_at_k([(4, 4), (400, 0)], 1) == 0.5
    assert mean_pass_at_k([(4, 1), (2, 1)], 2) == pytest.approx((0.5 + 1.0) / 2)
    with pytest.raises(ValueError, match="no problems"):
        mean_pass_at_k([], 1)


@settings(max_examples=20)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=15), st.integers(0, 2**62))
def test_an_interval_is_reproducible_and_ordered_within_the_data(values, seed):
    low, high = bootstrap_interval(values, seed=seed, resamples=50)
    assert (low, high) == bootstrap_interval(values, seed=seed, resamples=50)
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12


def test_a_constant_has_an_interval_of_no_width():
    assert bootstrap_interval([0.25] * 8, seed=1, resamples=20) == (0.25, 0.25)


def test_the_interval_matches_the_normal_one_on_many_problems():
    rng = random.Random(7)
    values = [float(rng.random() < 0.3) for _ in range(400)]
    mean = sum(values) / 400
    error = math.sqrt(mean * (1 - mean) / 400)
    low, high = bootstrap_interval(values, seed=3)
    assert low == pytest.approx(mean - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.15 * error)


def test_a_higher_level_is_wider_and_another_seed_differs():
    values = [index / 30 for index in range(30)]
    low, high = bootstrap_interval(values, seed=1, resamples=300, level=0.8)
    wide_low, wide_high = bootstrap_interval(values, seed=1, resamples=300, level=0.99)
    assert wide_low < low < high < wide_high
    assert bootstrap_interval(values, seed=2, resamples=300, level=0.8) != (low, high)


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ([], {}),
        ([math.nan], {}),
        ([0.5], {"resamples": 0}),
        ([0.5], {"level": 1.0}),
        ([0.5], {"level": 0.0}),
    ],
)
def test_a_senseless_bootstrap_is_refused(values, changes):
    with pytest.raises(ValueError, match=r"bootstrap needs|resamples"):
        bootstrap_interval(values, seed=0, **changes)
