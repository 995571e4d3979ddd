"""Held-out families: rules replayed by hand, consistency of the deductions, and no way into training."""

from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.extract import respond
from prorl.envs.families.logic_held_out import Blicket, BoxLine, predict

TASKS = (BoxLine(), Blicket())
RUNGS = [(task, level) for task in TASKS for level in task.ood_levels]


def drafts(task, level, count=40):
    rng = Random(level)
    return [task.generate(rng, level) for _ in range(count)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_can_never_be_trained(task):
    for split in ("train", "exam", "test"):
        with pytest.raises(ValueError, match=f"has no {split} problems"):
            task.problem(0, split)
    with pytest.raises(ValueError, match="no level"):
        type(task)({1: 1.0})


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_problems_are_pure_and_solved_by_their_witness(task):
    for index in range(15):
        problem = task.problem(index, "ood")
        assert problem == task.problem(index, "ood")
        assert task.verify(problem, respond(problem.witness.steps, problem.witness.answer)).score == 1


@pytest.mark.parametrize(("task", "level"), RUNGS, ids=lambda value: getattr(value, "name", value))
def test_witness_scores_one_and_shortcuts_score_zero(task, level):
    for draft in drafts(task, level):
        assert task.score(draft.payload, f" {draft.witness.answer}\n") == 1
        for wrong in ("", "1 2 3 4", "16+67", draft.prompt, draft.witness.steps, "x" * 9999, "LR" * 9999):
            assert task.score(draft.payload, wrong) == 0
        assert len(draft.prompt) <= 100
        assert len(draft.witness.answer) <= 30


@pytest.mark.parametrize(("task", "level"), RUNGS, ids=lambda value: getattr(value, "name", value))
def test_no_constant_answer_pays_and_problems_vary(task, level):
    batch = drafts(task, level, 120)
    assert len({draft.prompt for draft in batch}) > 0.7 * len(batch)
    guesses = Counter(draft.witness.answer for draft in batch).most_common(10)
    for guess, _ in guesses:
        assert sum(task.score(draft.payload, guess) for draft in batch) < 0.2 * len(batch)


@given(st.one_of(st.text(), st.text(alphabet="UDLR"), st.text(alphabet="01?")))
def test_no_text_raises(text):
    for task in TASKS:
        assert task.score(task.problem(0, "ood").payload, text) in (0.0, 1.0)


# box pushing: `..@.|.o..|.x..`

PAYLOAD = ((3, 4), ((0, 2), (1, 1)), (2, 1))


def test_box_pushing_by_hand():
    task = BoxLine()
    assert task.score(PAYLOAD, "LD") == 1
    assert task.score(PAYLOAD, "RLLD") == 1  # any way that works
    assert task.score(PAYLOAD, "D") == 0  # walks, but pushes nothing
    assert task.score(PAYLOAD, "DL") == 0  # pushes the box to (1, 0)
    assert task.score(PAYLOAD, "ULD") == 0  # leaves the grid
    assert task.score(PAYLOAD, "LDD") == 0  # the box stands at the wall
    assert task.score(PAYLOAD, "ld") == 0
    assert task.score(PAYLOAD, "L D") == 0
    assert task.score(PAYLOAD, "LD" + "UD" * 30) == 1  # walks away and back, and the box stays


def test_box_must_stay_on_the_goal():
    payload = ((1, 5), ((0, 0), (0, 1)), (0, 2))
    assert BoxLine().score(payload, "R") == 1
    assert BoxLine().score(payload, "RR") == 0


def test_a_box_on_a_line_needs_the_pusher_behind_it():
    for draft in drafts(BoxLine(), 1):
        size, ((_, pusher), (_, box)), (_, goal) = draft.payload
        assert size == (1, 16)
        assert pusher < box < goal or pusher > box > goal
        letter = "R" if box < goal else "L"
        assert draft.witness.answer == letter * (abs(box - pusher) - 1 + abs(goal - box))


def test_no_shorter_moves_than_the_witness_solve_a_small_grid():
    for draft in drafts(BoxLine(), 2, 30):
        length = len(draft.witness.answer) - 1
        if length <= 4:
            tries = ("".join(moves) for moves in product("UDLR", repeat=length))
            assert not any(BoxLine().score(draft.payload, moves) for moves in tries)


# blickets


def test_blickets_by_hand():
    trials = (("AB", 1), ("C", 0), ("AD", 0))
    assert predict("ABCD", trials, ("A", "B", "D", "AC")) == "0100"
    assert predict("ABC", (("AB", 1),), ("A", "B", "AB", "C", "ABC")) == "??1?1"
    task, payload = Blicket(), ("ABCD", trials, ("A", "B", "D", "AC"))
    assert task.score(payload, "0100") == 1
    assert task.score(payload, "0?00") == 0
    assert task.score(payload, "010") == 0


@pytest.mark.parametrize("level", Blicket.ood_levels)
def test_blicket_answers_extend_what_was_observed(level):
    for draft in drafts(Blicket(), level):
        objects, trials, questions = draft.payload
        assert predict(objects, trials, [chosen for chosen, _ in trials]) == "".join(
            str(on) for _, on in trials
        )
        assert set(questions).isdisjoint(chosen for chosen, _ in trials)
        surely_off = {name for chosen, on in trials if not on for name in chosen}
        for chosen, outcome in zip(questions, draft.witness.answer, strict=True):
            assert (outcome == "0") == (set(chosen) <= surely_off)
