import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.pass_at_k import best_of_k_parts

groups = st.lists(st.floats(0, 1), min_size=2, max_size=7)


def expected_best(rates, values, k):
    """E[max of k] of independent draws of an answer with such rates."""
    return sum(
        math.prod(rates[i] for i in drawn) * max(values[i] for i in drawn)
        for drawn in itertools.product(range(len(rates)), repeat=k)
    )


@given(groups, st.integers(1, 7))
def test_a_part_is_the_mean_best_of_the_subsets_that_hold_the_response(scores, k):
    k = min(k, len(scores))
    for i, part in enumerate(best_of_k_parts(scores, k)):
        held = [
            max(scores[j] for j in drawn)
            for drawn in itertools.combinations(range(len(scores)), k)
            if i in drawn
        ]
        assert part == pytest.approx(statistics.fmean(held), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_gradient_is_that_of_the_best_of_k(k):
    """Enumerated over every group of four: E[Σ_i s_i ∇log π(y_i)] · k/n equals ∇E[max of k]."""
    rates, values, n = [0.5, 0.3, 0.2], [0.0, 1.0, 0.4], 4
    estimate = [0.0] * 3  # with respect to each rate, taken as free
    for drawn in itertools.product(range(3), repeat=n):
        chance = math.prod(rates[i] for i in drawn)
        for i, part in zip(drawn, best_of_k_parts([values[i] for i in drawn], k), strict=True):
            estimate[i] += chance * part / rates[i] * k / n
    step = 1e-6
    for i in range(3):
        up, down = ([*rates] for _ in range(2))
        up[i] += step
        down[i] -= step
        slope = (expected_best(up, values, k) - expected_best(down, values, k)) / (2 * step)
        assert estimate[i] == pytest.approx(slope, rel=1e-6)


@given(groups)
def test_of_one_it_is_the_score_itself(scores):
    assert best_of_k_parts(scores, 1) == scores


def test_k_above_the_group_is_its_size():
    assert best_of_k_parts([0.2, 0.7], 9) == pytest.approx([0.7, 0.7])
