"""Whose turn it is on shared GPUs, without any."""

import pytest

from prorl.cluster.turns import Turns, apart, one_of_each_node


class Named:
    """Writes down when it leaves, or refuses to."""

    def __init__(self, name, left):
        self.name, self.left, self.busy = name, left, False

    def leave(self):
        if self.busy:
            raise RuntimeError(f"{self.name} is at work")
        self.left.append(self.name)


@pytest.fixture
def left():
    return []


@pytest.fixture
def learner(left):
    return Named("learner", left)


@pytest.fixture
def engines(left):
    return Named("engines", left)


def test_one_leaves_before_the_other_computes_and_nobody_leaves_for_himself(learner, engines, left):
    turns = Turns()
    for party in (learner, learner, engines, engines, engines, learner):
        turns.take(party)
    assert left == ["learner", "engines"]


def test_who_is_at_work_keeps_his_turn(learner, engines, left):
    turns = Turns()
    turns.take(engines)
    engines.busy = True
    with pytest.raises(RuntimeError, match="at work"):
        turns.take(learner)
    turns.take(engines)
    assert left == []
    engines.busy = False
    turns.take(learner)
    assert left == ["engines"]


def test_apart_nobody_ever_leaves(learner, engines, left):
    for party in (learner, engines, learner):
        apart(party)
    assert left == []


@pytest.mark.parametrize(
    ("nodes", "waves"),
    [
        ("a", [[0]]),
        ("aaa", [[0], [1], [2]]),
        ("abc", [[0, 1, 2]]),
        ("aabba", [[0, 2], [1, 3], [4]]),
    ],
)
def test_those_of_a_node_come_one_after_the_other(nodes, waves):
    assert one_of_each_node(list(nodes)) == waves
