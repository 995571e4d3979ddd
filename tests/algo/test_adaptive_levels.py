"""Adaptive levels: what is drawn while a task climbs, and when it goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.adaptive_levels import is_mastered, level_weights, remembered


def test_the_highest_levels_share_what_is_not_replayed():
    shares = dict(level_weights((1, 2, 3, 4, 5), 4, window=2, replay=0.2))
    assert shares == pytest.approx({1: 0.05, 2: 0.05, 3: 0.45, 4: 0.45})
    assert dict(level_weights((6, 8, 10), 6, window=4, replay=0.1)) == pytest.approx({6: 1.0})
    assert dict(level_weights((1, 2, 3), 3, window=1, replay=0.0)) == {1: 0.0, 2: 0.0, 3: 1.0}


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0, 1))
def test_weights_are_shares_of_the_levels_in_play(highest, window, replay):
    weights = level_weights(tuple(range(1, 13)), highest, window=window, replay=replay)
    assert [level for level, _ in weights] == list(range(1, highest + 1))
    assert sum(share for _, share in weights) == pytest.approx(1)
    assert min(share for _, share in weights) >= replay / highest * 0.999


def test_a_level_is_mastered_by_its_newest_rollouts():
    rules = {"rollouts": 32, "raise_at": 0.5}
    assert not is_mastered([], **rules)
    assert not is_mastered([(16, 1.0)], **rules), "too few"
    assert is_mastered([(16, 0.5), (16, 0.5)], **rules)
    assert is_mastered([(512, 0.0), (16, 0.4), (16, 0.6)], **rules), "how it began does not count"
    assert not is_mastered([(512, 1.0), (16, 0.4), (16, 0.5)], **rules)


def test_any_number_of_rollouts_is_reached_in_few_entries_and_the_newest_stay_as_they_were():
    recent: tuple[tuple[int, float], ...] = ()
    for step in range(1000):
        recent = remembered((*recent, (2, step / 1000)), 64)
        assert len(recent) == min(step + 1, 64)
    assert recent[-32:] == tuple((2, step / 1000) for step in range(968, 1000))
    assert sum(rollouts for rollouts, _ in recent) == 2000
    assert sum(rollouts * score for rollouts, score in recent) / 2000 == pytest.approx(0.4995)
    assert max(rollouts for rollouts, _ in recent) < 4 * 2000 / 64, "the fewest are joined"
    assert is_mastered(recent, rollouts=256, raise_at=0.8)
    assert not is_mastered(recent, rollouts=512, raise_at=0.9), "the newest 256 steps have a mean of 0.87"
    assert remembered(((0, 0.0),) * 65, 64) == ((0, 0.0),) * 64, "steps in which nothing could be judged"
