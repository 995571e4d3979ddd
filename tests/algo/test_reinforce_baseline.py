import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.reinforce_baseline import advantages

rollouts = st.lists(st.tuples(st.floats(-2, 2), st.integers(1, 30)), min_size=1, max_size=6)
batches = st.lists(rollouts, min_size=1, max_size=6)
levels = st.sampled_from(["token", "sequence", "group"])


def split(batch):
    return [[r for r, _ in group] for group in batch], [[n for _, n in group] for group in batch]


def slow_advantages(rewards, lengths, level):
    """The formula, with the weighting done by writing out one value per token."""
    centred = [[r - statistics.fmean(group) for r in group] for group in rewards]

    def whiten(group, population):
        mu, var = statistics.fmean(population), statistics.pvariance(population)
        return [(a - mu) / math.sqrt(var + 1e-8) for a in group]

    if level == "group":
        return [whiten(group, group) for group in centred]
    times = lengths if level == "token" else [[1] * len(group) for group in rewards]
    population = [
        a
        for group, counts in zip(centred, times, strict=True)
        for a, count in zip(group, counts, strict=True)
        for _ in range(count)
    ]
    return [whiten(group, population) for group in centred]


@given(batches)
def test_without_normalisation_a_reward_is_its_own_advantage(batch):
    rewards, lengths = split(batch)
    assert advantages(rewards, lengths, "none") == rewards


def flat(groups):
    return [value for group in groups for value in group]


@given(batches, levels)
def test_equals_the_slow_formula(batch, level):
    rewards, lengths = split(batch)
    got = advantages(rewards, lengths, level)
    want = slow_advantages(rewards, lengths, level)
    assert [len(group) for group in got] == [len(group) for group in rewards]
    assert flat(got) == pytest.approx(flat(want), rel=1e-6, abs=1e-9)


def test_worked_numbers():
    # Centred: ±0.5 and 0, 0; weighted by tokens: μ = (0.5·30 - 0.5·10)/80 = 0.125, E[a²] = 0.25·40/80 = 0.125.
    got = advantages([[1.0, 0.0], [1.0, 1.0]], [[30, 10], [20, 20]], "token")
    scale = math.sqrt(0.125 - 0.125**2)
    assert got == [
        pytest.approx([0.375 / scale, -0.625 / scale]),
        pytest.approx([-0.125 / scale, -0.125 / scale]),
    ]


@pytest.mark.parametrize("level", ["token", "sequence", "group"])
@pytest.mark.parametrize("reward", [0.0, 0.1, 1e6 + 0.1])
def test_identical_rewards_teach_nothing(level, reward):
    assert flat(advantages([[reward] * 3] * 2, [[3, 50, 7]] * 2, level)) == pytest.approx([0] * 6, abs=1e-5)


def test_an_empty_batch_has_no_advantages():
    assert [advantages([], [], level) for level in ("token", "sequence", "group")] == [[], [], []]


def test_a_reward_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        advantages([[float("nan")]], [[3]], "token")
