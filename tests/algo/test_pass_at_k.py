import math
import random
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.algo.pass_at_k import bootstrap_means, pass_at_k, pass_rates, percentiles


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


def test_large_numbers_lose_nothing():
    assert pass_at_k(100_000, 1, 1) == 1e-5
    assert pass_at_k(100_000, 1, 50_000) == 0.5
    assert pass_at_k(512, 256, 256) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5), (0, 0, 1)])
def test_nonsense_is_refused(n, c, k):
    with pytest.raises(ValueError, match=r"passes must|needs k"):
        pass_at_k(n, c, k)


def test_rates_are_those_of_each_problem_at_each_k():
    counts = [(4, 1), (8, 0), (4, 1), (2, 2)]
    rates = pass_rates(counts, (1, 2))
    assert rates.tolist() == [[pass_at_k(n, c, 1), pass_at_k(n, c, 2)] for n, c in counts]


def test_a_problem_with_fewer_responses_than_k_counts_with_all_it_has():
    assert pass_rates([(2, 1), (4, 1)], (4,)).tolist() == [[1.0], [1.0]]


def interval(values, *, seed, resamples=2000, level=0.95, strata=None):
    column = np.array(values, dtype=float).reshape(-1, 1)
    means = bootstrap_means(column, seed=seed, strata=strata, resamples=resamples)
    low, high = percentiles(means, level=level)
    return float(low[0]), float(high[0])


@settings(max_examples=20)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=15), st.integers(0, 2**62))
def test_an_interval_is_reproducible_and_ordered_within_the_data(values, seed):
    low, high = interval(values, seed=seed, resamples=50)
    assert (low, high) == interval(values, seed=seed, resamples=50)
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12


def test_a_constant_has_an_interval_of_no_width():
    assert interval([0.25] * 8, seed=1, resamples=20) == (0.25, 0.25)


def test_the_interval_matches_the_normal_one_on_many_problems():
    rng = random.Random(7)
    values = [float(rng.random() < 0.3) for _ in range(400)]
    mean = sum(values) / 400
    error = math.sqrt(mean * (1 - mean) / 400)
    low, high = interval(values, seed=3)
    assert low == pytest.approx(mean - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.15 * error)


def test_a_higher_level_is_wider_and_another_seed_differs():
    values = [index / 30 for index in range(30)]
    low, high = interval(values, seed=1, resamples=300, level=0.8)
    wide_low, wide_high = interval(values, seed=1, resamples=300, level=0.99)
    assert wide_low < low < high < wide_high
    assert interval(values, seed=2, resamples=300, level=0.8) != (low, high)


def test_strata_weigh_alike_however_unequal_they_are():
    assert interval([1.0] + [0.0] * 9, seed=0, strata=["few"] + ["many"] * 9) == (0.5, 0.5)


def test_columns_are_resampled_together():
    values = np.random.default_rng(0).random((30, 1))
    means = bootstrap_means(np.hstack([values, 2 * values]), seed=4, resamples=50)
    assert np.allclose(means[:, 1], 2 * means[:, 0])


@pytest.mark.parametrize("values", [[], [math.nan]])
def test_a_senseless_bootstrap_is_refused(values):
    with pytest.raises(ValueError, match="bootstrap needs"):
        interval(values, seed=0)
