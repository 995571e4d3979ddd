"""Constraint families: independent checkers of every rule, all solutions accepted, shortcuts refused."""

from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.extract import respond
from prorl.envs.families.logic import Countdown, GraphColouring, TruthTable, truth_row

TASKS = (GraphColouring(), TruthTable(), Countdown())
RUNGS = [(task, level) for task in TASKS for level in (*task.levels, *task.ood_levels)]


def drafts(task, level, count=100):
    rng = Random(level)
    return [task.generate(rng, level) for _ in range(count)]


@pytest.mark.parametrize(("task", "level"), RUNGS, ids=lambda value: getattr(value, "name", value))
def test_witness_scores_one_and_shortcuts_score_zero(task, level):
    for draft in drafts(task, level):
        answer = draft.witness.answer
        assert task.score(draft.payload, f" {answer}\n") == 1
        for wrong in (
            "",
            answer + answer[-1],
            answer[:-1],
            answer + "=",
            draft.prompt,
            draft.witness.steps + ";",
        ):
            assert task.score(draft.payload, wrong) == 0
        for wrong in ("1 2 3 4", "16+67", "0", "?", "1" * 9999, "(" * 9999):
            assert task.score(draft.payload, wrong) == 0


@pytest.mark.parametrize("split", ["train", "exam", "test", "ood"])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_problems_are_pure_and_solved_by_their_witness(task, split):
    for index in range(20):
        problem = task.problem(index, split)
        assert problem == task.problem(index, split)
        assert task.verify(problem, respond(problem.witness.steps, problem.witness.answer)).score == 1


@pytest.mark.parametrize(
    ("task", "level", "bound"),
    [(task, level, 0.2) for task, level in RUNGS if (task.name, level) != ("graph_colouring", 1)]
    + [(GraphColouring(), 1, 0.4)],  # three vertices, one of them given: only two answers remain
    ids=lambda value: getattr(value, "name", value),
)
def test_no_constant_answer_pays(task, level, bound):
    batch = drafts(task, level, 300)
    for guess in {draft.witness.answer for draft in batch[:60]}:
        assert sum(task.score(draft.payload, guess) for draft in batch) < bound * len(batch)


@pytest.mark.parametrize(("task", "level"), RUNGS, ids=lambda value: getattr(value, "name", value))
def test_problems_vary_and_are_short(task, level):
    batch = drafts(task, level, 300)
    assert len({draft.prompt for draft in batch}) > (0.8 if level in task.levels else 0.5) * len(batch)
    assert max(len(draft.prompt) for draft in batch) <= 100
    longest = max(len(draft.witness.steps) + len(draft.witness.answer) for draft in batch)
    assert longest <= (90 if level in task.levels else 125)


@given(st.one_of(st.text(), st.text(alphabet="0123+-*/() ", max_size=12)))
def test_no_text_raises(text):
    for task in TASKS:
        assert task.score(task.problem(0, "train").payload, text) in (0.0, 1.0)


# graph colouring


def test_colouring_by_hand():
    task, payload = GraphColouring(), (4, ((0, 1), (2, 1), (0, 3), (3, 2)), (2, 3))
    assert task.score(payload, "1232") == 1
    assert task.score(payload, "3231") == 1  # another solution is as good
    assert task.score(payload, "1131") == 0  # edge 01 within colour 1
    assert task.score(payload, "1212") == 0  # vertex 2 must have colour 3
    assert task.score(payload, "4232") == 0
    assert task.score(payload, "12321") == 0


@pytest.mark.parametrize("level", GraphColouring.levels)
def test_colouring_accepts_exactly_the_solutions_of_the_prompt(level):
    task = GraphColouring()
    for draft in drafts(task, level, 10):
        head, tail = draft.prompt.removeprefix("color ").split(": ")
        edges, given_colour = tail.split("; ")
        vertex, colour = given_colour.split("=")
        for colours in product("123", repeat=int(head)):
            right = colours[int(vertex)] == colour
            right = right and all(colours[int(edge[0])] != colours[int(edge[1])] for edge in edges.split())
            assert task.score(draft.payload, "".join(colours)) == right


def test_colouring_sizes_four_and_five_are_trained_and_the_others_held_out():
    task = GraphColouring()
    trained = {task.problem(index, "train").payload[0] for index in range(50)}
    held_out = {task.problem(index, "ood").payload[0] for index in range(100)}
    assert trained == {4, 5}
    assert held_out == {3, 6, 7, 8}


# truth tables


@pytest.mark.parametrize("level", [*TruthTable.levels, *TruthTable.ood_levels])
def test_truth_tables_agree_with_python(level):
    for draft in drafts(TruthTable(), level, 30):
        formula = draft.prompt.removeprefix("truth pqr 000..111: ")
        rows = [eval(formula, {"p": p, "q": q, "r": r}) & 1 for p, q, r in product((0, 1), repeat=3)]
        assert draft.witness.answer == "".join(map(str, rows))
        assert sum(formula.count(connective) for connective in "&|^") == level + 1


def test_truth_table_by_hand():
    payload = "rq|~p&"  # ~(r|q)&p: only row 100
    assert truth_row(payload) == 0b00001000
    assert TruthTable().score(payload, "00001000") == 1
    assert TruthTable().score(payload, "00001001") == 0
    assert TruthTable().score(payload, "0000 1000") == 0


def test_truth_steps_end_with_the_answer():
    for draft in drafts(TruthTable(), 3):
        assert draft.witness.steps.endswith("=" + draft.witness.answer)


# countdown


def test_countdown_by_hand():
    task, payload = Countdown(), ((4, 6, 8, 3), 26)
    assert task.score(payload, "4*6+8-6") == 0  # 6 twice, 3 not at all
    assert task.score(payload, "4*8-6") == 0  # 26, but 3 is not used
    assert task.score(payload, "26") == 0
    assert task.score(payload, "(4*8-6)*3/3") == 0
    assert task.score(payload, "4*(8-3)+6") == 1
    assert task.score(payload, "6 + (8 - 3) * 4") == 1
    assert task.score(payload, "4*(8-3)+6=26") == 0
    assert task.score(((8, 3, 8, 3), 24), "8/(3-8/3)") == 1  # exact fractions on the way


def test_countdown_counts_equal_numbers():
    task, payload = Countdown(), ((5, 5), 10)
    assert task.score(payload, "5+5") == 1
    assert task.score(payload, "5+5+5-5") == 0
    assert task.score(payload, "5") == 0


def test_countdown_accepts_every_order_of_a_sum():
    for order in permutations("234"):
        assert Countdown().score(((2, 3, 4), 9), "+".join(order)) == 1


@pytest.mark.parametrize("level", [*Countdown.levels, *Countdown.ood_levels])
def test_countdown_prompt_is_what_the_verifier_checks(level):
    for draft in drafts(Countdown(), level):
        numbers, target = draft.payload
        assert draft.prompt == f"make {target} from {' '.join(map(str, numbers))} once each"
        assert draft.witness.steps.endswith(f"={target}")
