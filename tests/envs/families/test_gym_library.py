"""All 105 tasks of reasoning-gym at the library's default configuration.

Run as a program, this prints a digest of their problems, so that a second interpreter can be compared with this one.
"""

import hashlib
import os
import pickle
import subprocess
import sys
from functools import cache
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reasoning_gym.factory import DATASETS

from prorl.envs.base import canonical
from prorl.envs.baseline import constant_baseline
from prorl.envs.extract import extract_answer, respond
from prorl.envs.families.gym_library import HELD_OUT_9, SOURCES
from prorl.envs.reasoning_gym import PREFIX
from prorl.envs.registry import TASKS, TRAINED_96, make_task, task_names

ALL = tuple(sorted((*TRAINED_96, *HELD_OUT_9)))
each_task = pytest.mark.parametrize("name", ALL)

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
    "rg_acre": 0.45,
    "rg_aiw": 0.3,
    "rg_binary_alternation": 0.3,
    "rg_calendar_arithmetic": 0.3,
    "rg_circuit_logic": 0.7,
    "rg_course_schedule": 0.65,
    "rg_emoji_mystery": 0.3,
    "rg_family_relationships": 0.3,
    "rg_game_of_life_halting": 0.65,
    "rg_gcd": 0.5,
    "rg_graph_color": 0.25,
    "rg_isomorphic_strings": 0.65,
    "rg_knight_swap": 0.65,  # twelve of these twenty swaps are impossible; one in five is the library's share
    "rg_letter_counting": 0.4,
    "rg_mahjong_puzzle": 0.5,
    "rg_maze": 0.4,
    "rg_polynomial_equations": 0.3,
    "rg_propositional_logic": 0.8,  # "P or Q" follows from most premises, and is a conclusion
    "rg_ransom_note": 0.65,
    "rg_rectangle_count": 0.4,
    "rg_rotten_oranges": 0.4,
    "rg_self_reference": 0.5,
    "rg_shortest_path": 0.4,  # "infeasible"
    "rg_syllogism": 0.75,
    "rg_zebra_puzzles": 0.3,
}
WATCHED = {"compile", "exec", "open", "os.system", "subprocess.Popen", "import"}
WORTHLESS = (
    "?",
    "[]",
    "{}",
    "None",
    "nan",
    "inf",
    "True False",
    "yes no",
    " ".join(map(str, range(100))),
    ", ".join(map(str, range(-9, 10))),
    "answer",
)
HOSTILE = (
    *("9" * 3900, "-" * 3900, "(" * 3900, "[" * 3900, "{" * 3900, "[[" * 900 + "]]" * 900, "1+" * 1900),
    *(
        "9**9**9**9",
        "1e999999",
        "1/0",
        "NaN",
        "null",
        "[null]",
        '{"a": null}',
        "[1e400]",
        "A+9999999999",
    ),
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
    return make_task(name, {0: 1.0} if TASKS[name].levels else None)


@cache
def problems(name):
    split = "train" if task(name).levels else "ood"
    return tuple(task(name).problem(index, split) for index in range(2 if name in SLOW else 5))


def digest():
    text = repr([(p.prompt, p.payload, p.witness) for name in ALL for p in problems(name)])
    return hashlib.blake2b(text.encode()).hexdigest()


def score(problem, answer):
    return task(problem.task).verify(problem, respond("", answer)).score


def test_every_task_of_the_library_is_here():
    assert {PREFIX + name for name in DATASETS} - {"rg_composite"} == set(ALL)
    assert (len(TRAINED_96), len(HELD_OUT_9), len(SOURCES)) == (96, 9, 91)
    assert set(ALL) <= set(task_names())


@each_task
def test_the_nine_are_only_measured_and_the_others_trained(name):
    splits = {"ood"} if name in HELD_OUT_9 else {"train", "exam", "test"}
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
        if problem.witness is not None:
            response = respond("", problem.witness.answer)
            assert extract_answer(response) == problem.witness.answer.strip()
            assert task(name).verify(problem, response).score == 1.0


def test_only_rush_hour_has_no_witness():
    assert {name for name in ALL if problems(name)[0].witness is None} == {"rg_rush_hour"}


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
        if problem.witness:
            score(problem, problem.witness.answer)
        score(problem, "0")
        assert pickle.dumps(problem.payload) == before


@each_task
def test_empty_answers_and_echoes_earn_nothing(name):
    for problem in problems(name):
        for text in ("", problem.prompt, "<answer></answer>"):
            assert task(name).verify(problem, text).score == 0.0
        assert score(problem, problem.prompt) <= (PARTLY if task(name).partial_credit else 0.0)


@each_task
def test_worthless_answers_earn_nothing(name):
    for answer in WORTHLESS:
        earned = [score(problem, answer) for problem in problems(name)]
        assert max(earned) <= (PARTLY if task(name).partial_credit else 0.0), answer


@each_task
def test_a_right_answer_among_candidates_is_not_right(name):
    for problem, other in pairwise(p for p in problems(name) if p.witness):
        first, right = other.witness.answer, problem.witness.answer
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


@each_task
def test_mutated_answers_break_no_scorer(name):
    problem = problems(name)[0]
    for answer in mutations(problem.witness.answer.strip() if problem.witness else "A+1 B-2 C+3", 100):
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
def test_ten_thousand_mutated_answers_break_no_scorer(name):
    problem = problems(name)[0]
    for answer in mutations(problem.witness.answer.strip() if problem.witness else "A+1 B-2 C+3", 10_000):
        verdict = task(name).verify(problem, respond("", answer))
        assert verdict.status in ("ok", "wrong"), (answer, verdict)
        assert 0.0 <= verdict.score <= 1.0


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
    wrong = {"True": "False", "False": "True"}[halting.witness.answer]
    assert score(halting, wrong) == 0.0  # the library: any text
    assert score(first("puzzle24"), "6*4*1*1") == 0.0  # the library: any four small numbers
    assert score(first("complex_arithmetic"), "nan") == 0.0  # the library: 1
    integral = first("intermediate_integration")
    copied = f"Integral({integral.payload[1]['metadata']['integrand']}, x)"
    assert score(integral, copied) == 0.0  # the library: 1
    product = first("polynomial_multiplication")
    assert score(product, product.prompt.split(": ")[1].split("\n")[0]) == 0.0


if __name__ == "__main__":
    print(digest())


def test_what_a_scorer_prints_is_not_for_the_terminal(capsys):
    task = make_task("rg_tower_of_hanoi")
    problem = task.problem(0, "train")
    task.verify(problem, respond("", "Move disk 3 from Peg 2 to Peg 4"))
    assert capsys.readouterr().out == ""
