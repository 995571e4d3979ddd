"""Arithmetic families: by hand, by substitution, and against answers that look right and are not."""

import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.base import canonical
from prorl.envs.extract import respond
from prorl.envs.families.math import Arithmetic, LinearEquation, ModularProduct

TASKS = (Arithmetic(), LinearEquation(), ModularProduct())
RUNGS = [(task, level) for task in TASKS for level in (*task.levels, *task.ood_levels)]


def drafts(task, level, count=100):
    rng = Random(level)
    return [task.generate(rng, level) for _ in range(count)]


@pytest.mark.parametrize(("task", "level"), RUNGS, ids=lambda value: getattr(value, "name", value))
def test_witness_scores_one_and_its_neighbours_zero(task, level):
    for draft in drafts(task, level):
        right = int(draft.witness.answer)
        assert task.score(draft.payload, f" {right}\n") == 1
        assert task.score(draft.payload, str(right + 1)) == 0
        assert task.score(draft.payload, str(right - 1)) == 0
        for wrong in (
            draft.prompt,
            draft.witness.steps,
            "",
            f"{right} {right}",
            f"{right}+0",
            f"{right}.0",
            "1 2 3 4",
            "x" * 9999,
        ):
            assert task.score(draft.payload, wrong) == 0


@pytest.mark.parametrize("split", ["train", "exam", "test", "ood"])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_problems_are_pure_and_solved_by_their_witness(task, split):
    for index in range(20):
        problem = task.problem(index, split)
        assert problem == task.problem(index, split)
        assert problem.level in (task.ood_levels if split == "ood" else task.levels)
        text = respond(problem.witness.steps, problem.witness.answer)
        assert task.verify(problem, text).score == 1


def test_splits_share_no_prompt():
    task = LinearEquation({1: 1.0})
    seen = {
        split: {canonical(task.problem(index, split).prompt) for index in range(300)}
        for split in ("train", "exam", "test")
    }
    assert not seen["train"] & seen["exam"]
    assert not seen["train"] & seen["test"]
    assert not seen["exam"] & seen["test"]


@pytest.mark.parametrize(("task", "level"), RUNGS, ids=lambda value: getattr(value, "name", value))
def test_no_constant_answer_pays_and_problems_vary(task, level):
    batch = drafts(task, level, 500)
    assert Counter(draft.witness.answer for draft in batch).most_common(1)[0][1] < 0.1 * len(batch)
    assert len({draft.prompt for draft in batch}) > 0.8 * len(batch)


@pytest.mark.parametrize(("task", "level"), RUNGS, ids=lambda value: getattr(value, "name", value))
def test_problems_and_workings_are_short(task, level):
    shown = level in task.levels  # nobody is shown the working of a held-out level
    for draft in drafts(task, level):
        assert len(draft.prompt) <= 30
        assert len(draft.witness.steps) + len(draft.witness.answer) <= (90 if shown else 150)


@pytest.mark.parametrize(
    ("task", "level"),
    [rung for rung in RUNGS if rung[0].name != "linear_equation"],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_every_equation_of_a_working_is_true(task, level):
    for draft in drafts(task, level):
        for step in draft.witness.steps.split(";"):
            left, right = step.split("=")
            first, operator, second = re.fullmatch(r"(-?\d+)([-+*])(\d+)", left).groups()
            a, b = int(first), int(second)
            assert {"+": a + b, "-": a - b, "*": a * b}[operator] == int(right)


def test_worked_examples():
    assert Arithmetic().score((16, 67, -53), "30") == 1
    assert Arithmetic().score((16, 67), "16+67") == 0
    assert LinearEquation().score((2, 16, 0, -8), "-12") == 1  # 2x+16=-8
    assert LinearEquation().score((3, 16, 5, -8), "12") == 1  # 3x+16=5x-8
    assert LinearEquation().score((3, 16, 5, -8), "x=12") == 0
    assert ModularProduct().score(((14, 27), 29), "1") == 1  # 378 = 13*29 + 1
    assert ModularProduct().score(((14, 27), 29), "30") == 0  # congruent, but not the remainder
    assert ModularProduct().score(((14, 27), 29), "-28") == 0


def test_the_prompt_states_the_equation_of_the_payload():
    for level in LinearEquation.levels:
        for draft in drafts(LinearEquation(), level):
            a, b, c, d = draft.payload
            left, right = draft.prompt.removeprefix("solve ").removesuffix(" x=?").split("=")
            for x in (-3, 0, 5):
                sides = []
                for side in (left, right):
                    terms = re.findall(r"[-+]?\d+x?", side)
                    assert "".join(terms) == side
                    sides.append(sum(int(t[:-1]) * x if t.endswith("x") else int(t) for t in terms))
                assert sides == [a * x + b, c * x + d]


@given(st.text())
def test_no_text_raises(text):
    for task in TASKS:
        assert task.score(task.problem(0, "train").payload, text) in (0.0, 1.0)


def test_held_out_moduli_are_never_trained():
    rungs = ModularProduct.rungs
    trained = {modulus for level in ModularProduct.levels for modulus in rungs[level - 1].moduli}
    assert trained.isdisjoint(
        modulus for level in ModularProduct.ood_levels for modulus in rungs[level - 1].moduli
    )
