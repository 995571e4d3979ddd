"""All 105 tasks of reasoning-gym at the library's default configuration, and fourteen at levels of their own.

Run as a program, this prints a digest of their problems, so that a second interpreter can be compared with this one.
"""

import hashlib
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random

import pytest
import reasoning_gym
from hypothesis import given, settings
from hypothesis import strategies as st
from reasoning_gym.factory import DATASETS

from prorl.envs.base import canonical
from prorl.envs.check import constant_baseline
from prorl.envs.extract import extract_answer, respond
from prorl.envs.families.gym import HELD_OUT_9, PREFIX, ROWS, TRAINED_96, ReasoningGym
from prorl.envs.registry import TASKS, make_task

ALL = tuple(sorted((*TRAINED_96, *HELD_OUT_9)))
WITH_LEVELS = tuple(name for name, row in ROWS.items() if row.steps)
each_task = pytest.mark.parametrize("name", ALL)
with_levels = pytest.mark.parametrize("name", WITH_LEVELS)

SLOW = {  # tens to hundreds of milliseconds for an item
    f"{PREFIX}{name}"
    for name in (
        *("advanced_geometry", "countdown", "futoshiki", "game_of_life", "game_of_life_halting", "jugs"),
        *("intermediate_integration", "knight_swap", "polynomial_equations", "polynomial_multiplication"),
        *("puzzle24", "quantum_lock", "rearc", "rubiks_cube", "simple_integration", "sokoban", "sudoku"),
        *("word_ladder", "zebra_puzzles"),
    )
}
PARTLY = 0.5  # most that a lucky text earns where letters or words in place count
BASELINES = {  # best constant answer, over 200 problems (slow tasks: 20); at most 0.2 for all others
    f"{PREFIX}{name}": most
    for most, names in (
        (0.25, "graph_color"),
        (0.3, "aiw binary_alternation calendar_arithmetic emoji_mystery family_relationships zebra_puzzles"),
        (0.3, "polynomial_equations"),
        (0.4, "letter_counting maze rectangle_count rotten_oranges shortest_path"),
        (0.45, "acre"),
        (0.5, "gcd mahjong_puzzle self_reference"),
        (0.65, "course_schedule game_of_life_halting isomorphic_strings knight_swap ransom_note"),
        (0.7, "circuit_logic"),
        (0.75, "syllogism"),
        (0.8, "propositional_logic"),  # "P or Q" follows from most premises, and is a conclusion
    )
    for name in names.split()
}
WATCHED = {"compile", "exec", "open", "os.system", "subprocess.Popen", "import"}
WORTHLESS = (
    *("?", "[]", "{}", "None", "nan", "inf", "True False", "yes no", "answer"),
    *(" ".join(map(str, range(100))), ", ".join(map(str, range(-9, 10)))),
)
HOSTILE = (
    *("9" * 3900, "-" * 3900, "(" * 3900, "[" * 3900, "{" * 3900, "[[" * 900 + "]]" * 900, "1+" * 1900),
    *("9**9**9**9", "1e999999", "1/0", "NaN", "null", "[null]", '{"a": null}', "[1e400]", "A+9999999999"),
    *(
        "R999999999",
        "A=1,A=",
        "fill A",
        '["fill Z"]',
        '["w,A1,B3"]',
        '["w"]',
        "Move disk 9 from Peg 9 to Peg 9",
    ),
    *("\x00", "٣", "½", "__import__('os').abort()", "{0}", "%s%s", "×", "1×" * 900, "A→" * 900, "a" * 3900),
)


@cache
def task(name):
    return ReasoningGym(ROWS[name], None if name in HELD_OUT_9 else {0: 1.0})


@cache
def problems(name):
    split = "train" if task(name).levels else "ood"
    return tuple(task(name).problem(index, split) for index in range(2 if name in SLOW else 5))


def digest():
    text = repr([(p.prompt, p.payload, p.solution) for name in ALL for p in problems(name)])
    return hashlib.blake2b(text.encode()).hexdigest()


def score(problem, answer):
    return task(problem.task).verify(problem, respond("", answer)).score


def test_every_task_of_the_library_is_here():
    assert {PREFIX + name for name in DATASETS} - {"rg_composite"} == set(ALL)
    assert (len(TRAINED_96), len(HELD_OUT_9), len(WITH_LEVELS)) == (96, 9, 14)
    assert set(ALL) <= set(TASKS)


@each_task
def test_the_nine_are_only_measured_and_the_others_trained(name):
    splits = {"ood"} if name in HELD_OUT_9 else {"train", "validation", "test"}
    assert task(name).splits == splits
    assert {problem.level for problem in problems(name)} == {0}


def test_the_same_index_gives_the_same_problem_whatever_the_hash_seed():
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest()


@each_task
def test_problems_differ_and_can_be_answered(name):
    given_problems = problems(name)
    assert len({canonical(p.prompt) for p in given_problems}) >= len(given_problems) - 1
    for problem in given_problems:
        assert problem.prompt == problem.prompt.strip() != ""
        if problem.solution is not None:
            response = respond("", problem.solution.answer)
            assert extract_answer(response) == problem.solution.answer.strip()
            assert task(name).verify(problem, response).score == 1.0


def test_only_rush_hour_has_no_solution():
    assert {name for name in ALL if problems(name)[0].solution is None} == {"rg_rush_hour"}


@each_task
def test_a_payload_is_small_plain_data_that_judges_elsewhere(name):
    problem = problems(name)[0]
    parcel = pickle.dumps(problem.payload)
    assert len(parcel) < 12_000
    assert b"reasoning_gym" not in parcel
    assert b"numpy" not in parcel


@each_task
def test_scoring_leaves_the_payload_as_it_is(name):
    for problem in problems(name)[:2]:
        before = pickle.dumps(problem.payload)
        if problem.solution:
            score(problem, problem.solution.answer)
        score(problem, "0")
        assert pickle.dumps(problem.payload) == before


@each_task
def test_empty_answers_and_echoes_earn_nothing(name):
    for problem in problems(name):
        for text in ("", problem.prompt, "<answer></answer>"):
            assert task(name).verify(problem, text).score == 0.0
        assert score(problem, problem.prompt) <= (PARTLY if ROWS[name].partial else 0.0)


@each_task
def test_worthless_answers_earn_nothing(name):
    for answer in WORTHLESS:
        earned = [score(problem, answer) for problem in problems(name)]
        assert max(earned) <= (PARTLY if ROWS[name].partial else 0.0), answer


@each_task
def test_a_right_answer_among_candidates_is_not_right(name):
    for problem, other in pairwise(p for p in problems(name) if p.solution):
        first, right = other.solution.answer, problem.solution.answer
        for text in (f"{first}, {right}", f"{first} or {right}", f"{right}, {first}", f"{right} or {first}"):
            assert score(problem, text) < 1.0, text


@each_task
def test_hostile_texts_are_wrong_quickly_and_never_an_error(name):
    problem = problems(name)[0]
    for answer in HOSTILE:
        verdict = task(name).verify(problem, respond("", answer))
        assert verdict.status == "wrong", (answer[:20], verdict)
        assert verdict.score <= PARTLY


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(ALL), st.text(max_size=60))
def test_no_text_breaks_a_scorer(name, answer):
    verdict = task(name).verify(problems(name)[0], respond("", answer))
    assert verdict.status in ("ok", "wrong"), verdict
    assert 0.0 <= verdict.score <= 1.0


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
@each_task
def test_mutated_answers_break_no_scorer(name, count):
    problem = problems(name)[0]
    for answer in mutations(problem.solution.answer.strip() if problem.solution else "A+1 B-2 C+3", count):
        verdict = task(name).verify(problem, respond("", answer))
        assert verdict.status in ("ok", "wrong"), (answer, verdict)
        assert 0.0 <= verdict.score <= 1.0


def mutations(right, count):
    """Right answers with a piece cut out and characters of all scorers' grammars put in."""
    rng = Random(right)
    for _ in range(count):
        at, cut = rng.randint(0, len(right)), rng.randint(0, 9)
        piece = "".join(rng.choices("0123456789+-*/()[]{},\"' \nABCabcxRUL=→×∧¬._", k=rng.randint(0, 9)))
        yield right[:at] + piece + right[at + cut :]


def test_no_answer_is_executed_or_compiled():
    for name in ALL:  # whatever is imported or built lazily is so by now
        score(problems(name)[0], "0")
    seen = []
    watching = True
    sys.addaudithook(
        lambda event, args: seen.append((event, args)) if watching and event in WATCHED else None
    )
    for name in ALL:
        for answer in ("__import__('os').abort()", "[].__class__", "open('x')", "(1).__class__", "exec('1')"):
            score(problems(name)[0], answer)
    watching = False
    assert seen == []


@pytest.mark.slow
@each_task
def test_one_answer_to_every_question_earns_at_most_the_documented_baseline(name):
    split = "train" if task(name).levels else "ood"
    baseline = constant_baseline(task(name), split, 20 if name in SLOW else 200)
    assert baseline.score <= BASELINES.get(name, 0.2), baseline


def test_the_librarys_holes_are_closed():
    def first(name):
        return problems(PREFIX + name)[0]

    halting = first("game_of_life_halting")
    wrong = {"True": "False", "False": "True"}[halting.solution.answer]
    assert score(halting, wrong) == 0.0  # the library: any text
    assert score(first("puzzle24"), "6*4*1*1") == 0.0  # the library: any four small numbers
    assert score(first("complex_arithmetic"), "nan") == 0.0  # the library: 1
    integral = first("intermediate_integration")
    copied = f"Integral({integral.payload[1]['metadata']['integrand']}, x)"
    assert score(integral, copied) == 0.0  # the library: 1
    product = first("polynomial_multiplication")
    assert score(product, product.prompt.split(": ")[1].split("\n")[0]) == 0.0


def test_what_a_scorer_prints_is_not_for_the_terminal(capsys):
    task = make_task("rg_tower_of_hanoi")
    problem = task.problem(0, "train")
    task.verify(problem, respond("", "Move disk 3 from Peg 2 to Peg 4"))
    assert capsys.readouterr().out == ""


# those with levels of their own


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
    assert level == asked[0].level
    assert entry.keys() == {"answer", "metadata"}
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


def test_an_untrained_level_is_refused():
    with pytest.raises(ValueError, match=r"rg_chain_sum: no level \[4\]"):
        make_task("rg_chain_sum", {4: 1.0})


@pytest.mark.parametrize(
    ("name", "level", "near"),
    [
        ("chain_sum", 1, "{0} 1"),
        ("lcm", 1, "{0} 12"),
        ("knights_knaves", 1, "Zed is a knave. {0}"),
        ("calendar_arithmetic", 1, "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        ("time_intervals", 1, "00:30"),
        ("time_intervals", 0, "{0}; 12:00"),
        ("time_intervals", 0, "{0} or 3 days"),
        ("fraction_simplification", 1, "1/1"),
        ("fraction_simplification", 0, "{0} or 1/2"),
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


if __name__ == "__main__":
    print(digest())
