"""The patterns on curves whose truth is known: nearly always right, hardly ever a false alarm."""

from collections import Counter

import numpy as np
import pytest

from prorl.lab.evals.comparison import patterns
from support.studies import results

PROBLEMS, SAMPLES, TRIALS = 60, 64, 30


def skills(truth, rng):
    """Chances to solve each problem: of the base, halfway, at the end."""
    base = rng.beta(0.5, 2, size=PROBLEMS) * (rng.random(PROBLEMS) < 0.5)
    never, order = base == 0, rng.random(PROBLEMS)
    if truth == "nothing":
        return base, base, base
    if truth == "diminish":  # what it knew it says more often, and what it hardly knew no more
        kept = base > np.median(base[base > 0])
        return base, np.where(kept, base**0.5, base / 4), np.where(kept, base**0.3, 0)
    early = np.where(never & (order < 0.4), 0.2, base**0.7)
    if truth == "plateau":
        return base, early, early
    return base, early, np.where(never & (order >= 0.4), 0.2, early)


def found(truth, trial, *, halfway=True):
    rng = np.random.default_rng([trial, *truth.encode()])
    base, between, trained = (
        results(map(int, rng.binomial(SAMPLES, skill)), SAMPLES) for skill in skills(truth, rng)
    )
    (row,) = patterns(base, trained, between=between if halfway else None, k=SAMPLES, seed=trial)
    return row.pattern


def tally(truth, **how):
    return Counter(found(truth, trial, **how) for trial in range(TRIALS))


@pytest.mark.parametrize("truth", ["diminish", "plateau", "sustained"])
def test_a_pattern_is_recognised(truth):
    said = tally(truth)
    assert said[truth] >= 0.9 * TRIALS, said


def test_where_nothing_happened_nothing_is_said():
    said = tally("nothing")
    assert said["unclear"] >= 0.9 * TRIALS, said


def test_two_models_tell_a_gain_from_a_loss_but_not_when():
    assert tally("diminish", halfway=False)["diminish"] >= 0.9 * TRIALS
    assert tally("sustained", halfway=False)["gain"] >= 0.9 * TRIALS
    assert tally("nothing", halfway=False)["unclear"] >= 0.9 * TRIALS


def test_tasks_and_parts_are_decided_apart_on_their_common_problems():
    base = [*results([0] * 12), *results([16] * 12, part="ood"), *results([3] * 12, task="u")]
    trained = [*results([16] * 12), *results([0] * 12, part="ood"), *results([3] * 11, task="u")]
    rows = {(row.task, row.part): row for row in patterns(base, trained, k=16)}
    assert {key: row.pattern for key, row in rows.items()} == {
        ("t", "test"): "gain",
        ("t", "ood"): "unclear",
        ("u", "test"): "unclear",
    }
    assert rows["u", "test"].problems == 11
    assert rows["t", "test"].at_k.gain == 1.0
    assert rows["t", "test"].early is None


def test_a_single_problem_decides_nothing():
    (row,) = patterns(results([0]), results([16]), k=16)
    assert row.pattern == "unclear"
