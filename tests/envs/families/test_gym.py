"""All 105 tasks of reasoning-gym, fourteen of them at levels of their own, and what is repaired or replaced in them.

What every task promises (solutions, splits, baselines, hostile texts) is in `test_contract.py`.
"""

from dataclasses import replace
from random import Random

import pytest
import reasoning_gym
from reasoning_gym.factory import DATASETS

from prorl.envs.extract import respond
from prorl.envs.families.gym import HELD_OUT_9, PREFIX, ROWS, ReasoningGym
from prorl.envs.registry import TASKS, make_task

WITH_LEVELS = tuple(name for name, row in ROWS.items() if row.has_trained_levels)
with_levels = pytest.mark.parametrize("name", WITH_LEVELS)


def test_every_task_of_the_library_is_here_and_nine_are_only_measured():
    assert {PREFIX + name for name in DATASETS} - {"rg_composite"} == set(ROWS)
    assert (len(set(ROWS) - set(HELD_OUT_9)), len(HELD_OUT_9), len(WITH_LEVELS)) == (96, 9, 14)
    for name in ROWS:
        task = TASKS[name](None if name in HELD_OUT_9 else {0: 1.0})
        assert task.splits == ({"ood"} if name in HELD_OUT_9 else {"train", "validation", "test"})


def test_the_librarys_holes_are_closed():
    def first(name):
        task = make_task(PREFIX + name)
        problem = task.problem(0, min(task.splits))
        return problem, lambda answer: task.verify(problem, respond("", answer)).score

    halting, score = first("game_of_life_halting")
    assert score({"True": "False", "False": "True"}[halting.solution.answer]) == 0.0  # the library: any text
    assert first("puzzle24")[1]("6*4*1*1") == 0.0  # the library: any four small numbers
    assert first("complex_arithmetic")[1]("nan") == 0.0  # the library: 1
    integral, score = first("intermediate_integration")
    assert score(f"Integral({integral.payload[1]['metadata']['integrand']}, x)") == 0.0  # the library: 1
    product, score = first("polynomial_multiplication")
    assert score(product.prompt.split(": ")[1].split("\n")[0]) == 0.0


def test_what_a_scorer_prints_is_not_for_the_terminal(capsys):
    task = make_task("rg_tower_of_hanoi")
    task.verify(task.problem(0, "train"), respond("", "Move disk 3 from Peg 2 to Peg 4"))
    assert capsys.readouterr().out == ""


@with_levels
def test_an_item_is_what_a_fresh_dataset_with_that_seed_begins_with(name):
    task, row = make_task(name), ROWS[name]
    for level in (*task.levels, *task.ood_levels):
        item = Random(level).getrandbits(63)
        config = row.levels.get(level, {})
        fresh = reasoning_gym.create_dataset(row.name, seed=item, size=1, **config)[0]
        if row.usable is None or row.usable(fresh):
            draft = task.generate(Random(level), level)
            assert (draft.prompt, draft.solution.answer) == (fresh["question"].strip(), fresh["answer"])


@with_levels
def test_neighbouring_indices_share_no_run_of_problems_and_payloads_hold_what_the_scorer_reads(name):
    asked = [make_task(name).problem(index, "train") for index in range(6)]
    assert len({problem.prompt for problem in asked}) >= 4
    level, entry = asked[0].payload
    assert (level, entry.keys()) == (asked[0].level, {"answer", "metadata"})
    assert set(entry["metadata"]) == set(ROWS[name].fields.split())


@with_levels
def test_the_librarys_defaults_must_be_asked_for_and_leave_nothing_out_of_domain(name):
    plain, defaults = make_task(name), make_task(name, {0: 1.0})
    assert "ood" in plain.splits
    assert {plain.problem(index, "train").level for index in range(12)} <= set(plain.levels) - {0}
    problem = defaults.problem(0, "train")
    assert (problem.level, problem.solution.steps) == (0, "")
    assert plain.verify(problem, respond("", problem.solution.answer)).score == 1  # by a judge of any levels
    assert defaults.splits == make_task(name, {0: 1.0, 1: 2.0}).splits == {"train", "validation", "test"}
    assert "ood" in make_task(name, {0: 0.0, 1: 1.0}).splits


def test_a_failure_of_a_scorer_is_an_error_and_an_absurd_answer_wrong():
    row = ROWS["rg_time_intervals"]
    task, forgetful = ReasoningGym(row), ReasoningGym(replace(row, fields=""))
    verdict = task.verify(task.problem(0, "train"), respond("", "9" * 400 + ":00"))
    assert (verdict.score, verdict.status) == (0.0, "wrong")
    verdict = forgetful.verify(forgetful.problem(0, "train"), respond("", "00:10"))
    assert (verdict.score, verdict.status) == (0.0, "error")
    assert "task_type" in verdict.note


def test_a_dataset_without_usable_items_is_an_error():
    with pytest.raises(ValueError, match="rg_chain_sum: 1000 items in a row"):
        ReasoningGym(replace(ROWS["rg_chain_sum"], usable=lambda entry: False)).problem(0, "train")


@pytest.mark.parametrize(
    ("name", "level", "near"),
    [
        ("chain_sum", 1, "{0} 1"),
        ("lcm", 1, "{0} 12"),
        ("knights_knaves", 1, "Zed is a knave. {0}"),
        ("time_intervals", 1, "00:30"),
        ("time_intervals", 0, "{0}; 12:00"),
        ("fraction_simplification", 1, "1/1"),
    ],
)
def test_lists_of_candidates_and_near_misses_earn_nothing(name, level, near):
    task, rng = make_task(PREFIX + name), Random(0)
    for _ in range(10):
        draft = task.generate(rng, level)
        answer = near.format(draft.solution.answer)
        assert answer == draft.solution.answer or task.score(draft.payload, answer) == 0


def test_spelling_backward_pays_for_letters_in_place():
    task, payload = make_task("rg_spell_backward"), (1, {"answer": "nus", "metadata": {}})
    assert task.score(payload, "nus") == 1
    assert task.score(payload, "nut") == pytest.approx(2 / 3)
    assert 0 < task.score(payload, "nus and more") < 1
    assert task.score(payload, "xyz") == 0
