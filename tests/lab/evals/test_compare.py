"""Paired differences: domains alike, intervals and p-values that hold what they promise."""

from itertools import product

import numpy as np
import pytest

from prorl.lab.evals.comparison import compare, differences, paired
from prorl.lab.evals.statistics import by_task
from support.studies import results

N = 4


def domains(**solved):
    return [
        problem for name, numbers in solved.items() for problem in results(numbers, N, domain=name, task=name)
    ]


def test_there_is_a_row_per_domain_and_their_mean():
    moves = paired(domains(math=[0, 2, 4, 2], code=[0, 0]), domains(math=[4, 4, 4, 4], code=[0, 2]))
    math, code, mean = compare(moves, (1, 4))
    assert [row.label for row in (math, code, mean)] == ["math", "code", "mean"]
    assert (math.base.rates, math.trained.rates) == ((0.5, 0.75), (1.0, 1.0))
    assert (code.base.rates, code.trained.rates) == ((0.0, 0.0), (0.25, 0.5))
    assert [difference.gain for difference in mean.differences] == pytest.approx([0.375, 0.375])
    assert [row.label for row in compare(moves, (1,), by=by_task)] == ["math", "code", "mean"]


def test_the_interval_of_the_mean_is_that_of_the_domains_however_unequal_they_are():
    moves = paired(domains(math=[0], code=[0] * 20), domains(math=[4], code=[0, 4] * 10))
    math, code, mean = (row.differences[0] for row in compare(moves, (1,)))
    assert (math.low, math.high, mean.gain) == (1.0, 1.0, 0.75)
    assert code.low < 0.5 < code.high < mean.gain
    assert mean.low < mean.gain < mean.high


def test_a_model_gains_nothing_on_itself():
    same = domains(math=[0, 2, 4], code=[1])
    for row in compare(paired(same, same), (1, 4)):
        for found in row.differences:
            assert (found.gain, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)
            assert (found.up, found.down) == (False, False)


def test_without_a_common_problem_there_is_nothing_to_compare():
    assert compare([], (1,)) == []


def test_the_p_value_is_that_of_all_sign_flips():
    base, trained = results([0, 1, 2, 0, 3, 1, 0, 2], N), results([2, 1, 4, 1, 2, 3, 1, 3], N)
    gains = [(b.solved - a.solved) / N for a, b in zip(base, trained, strict=True)]
    sums = [abs(np.dot(signs, gains)) for signs in product((-1, 1), repeat=len(gains))]
    exact = np.mean(np.array(sums) >= abs(sum(gains)) - 1e-12)
    (found,) = differences(paired(base, trained), (1,))
    assert found.p == pytest.approx(exact, abs=0.02)


def test_few_problems_that_agree_are_not_enough():
    (found,) = differences(paired(results([0] * 3, N), results([4] * 3, N)), (1,))
    assert (found.low, found.high) == (1.0, 1.0)
    assert not found.up
    (found,) = differences(paired(results([0] * 8, N), results([4] * 8, N)), (1,))
    assert found.up


def test_false_alarms_are_as_rare_as_promised():
    rng = np.random.default_rng(0)
    alarms = 0
    for trial in range(100):
        skill = rng.beta(0.5, 1, size=40)
        base, trained = (results(map(int, rng.binomial(16, skill))) for _ in range(2))
        (found,) = differences(paired(base, trained), (16,), seed=trial)
        alarms += found.up or found.down
    assert alarms <= 0.1 * 100
