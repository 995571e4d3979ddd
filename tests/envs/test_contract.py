"""What every task promises: on some problems of each split, and for reasoning-gym at the library's defaults too.

Run as a program, this prints a digest of those problems, so that a second interpreter can be compared with this one.
"""

import hashlib
import os
import pickle
import subprocess
import sys
from functools import cache
from itertools import combinations, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.base import canonical, split_of
from prorl.envs.check import TRICKS, constant_baseline
from prorl.envs.extract import extract_answer, respond
from prorl.envs.families.gym import HELD_OUT_9, ROWS
from prorl.envs.registry import TASKS, make_task
from prorl.envs.verifiers.programs import NeedsSandbox

SPLITS = ("train", "validation", "test", "ood")
FEW = 8
# short questions, quick to draw
SMALL = tuple(name for name in TASKS if name not in ROWS or ROWS[name].has_trained_levels)
LARGE = tuple(f"{name} as in the library" for name in ROWS)
ALL = (*SMALL, *LARGE)
SLOW = {  # tens to hundreds of milliseconds for an item
    *("advanced_geometry", "countdown", "futoshiki", "game_of_life", "game_of_life_halting", "jugs"),
    *("intermediate_integration", "knight_swap", "polynomial_equations", "polynomial_multiplication"),
    *("puzzle24", "quantum_lock", "rearc", "rubiks_cube", "simple_integration", "sokoban", "sudoku"),
    *("word_ladder", "zebra_puzzles"),
}
PARTLY = 0.5  # most that a lucky text earns where letters or words in place count
BASELINE = 0.2  # most that one answer to every question may earn
BASELINES = {  # exceptions: few possible answers
    "rg_calendar_arithmetic": 0.25,  # seven weekdays
    "rg_family_relationships": 0.35,  # a small family has few relations
} | {
    f"rg_{name} as in the library": most
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
        (0.5, "propositional_logic"),  # few formulas follow from two premises and from neither alone
    )
    for name in names.split()
}
LONG_PROMPTS = {"rg_knights_knaves": 640}
# a state for every operator
LONG_WORKINGS = ("operator_chain", "digit_algebra", "variable_trace", "strand_edits")
WORTHLESS = (*TRICKS, "{}", "nan", "inf", "yes no", "answer")
HOSTILE = (
    *("9" * 3900, "-" * 3900, "(" * 3900, "[" * 3900, "{" * 3900, "[[" * 900 + "]]" * 900, "1+" * 1900),
    *("9**9**9**9", "1e999999", "1/0", "NaN", "nan", "inf", "null", "[null]", '{"a": null}', "[1e400]"),
    *("A+9999999999", "R999999999", "A=1,A=", "fill A", '["fill Z"]', '["w,A1,B3"]', '["w"]'),
    *("Move disk 9 from Peg 9 to Peg 9", "\x00", "٣", "½", "\ud800"),
    *("__import__('os').abort()", "{0}", "%s%s"),
    *("\\frac{1}{0}", "×", "1×" * 900, "A→" * 900, "1:" * 900, "a" * 3900, "\n" * 50 + "."),
)
WATCHED = {"compile", "exec", "open", "os.system", "subprocess.Popen", "import"}

each_task, each_small_task = pytest.mark.parametrize("name", ALL), pytest.mark.parametrize("name", SMALL)


def make(name):
    base = name.split()[0]
    return make_task(base, {0: 1.0} if name in LARGE and base not in HELD_OUT_9 else None)


task = cache(make)


@cache
def problems(name, split, count=FEW):
    return tuple(task(name).problem(index, split) for index in range(count))


@cache
def all_problems(name):
    if name in LARGE:
        split = "ood" if name.split()[0] in HELD_OUT_9 else "train"
        return problems(name, split, 2 if row(name).name in SLOW else 5)
    return tuple(p for split in SPLITS if split in task(name).splits for p in problems(name, split))


def row(name):
    return ROWS.get(name.split()[0])


def lucky(name):
    """Most that a worthless text may earn."""
    return PARTLY if row(name) is not None and row(name).partial else 0.0


def score(name, problem, answer):
    return task(name).verify(problem, respond("", answer)).score


def digest():
    text = repr([(p.prompt, p.level, p.payload, p.solution) for name in ALL for p in all_problems(name)])
    return hashlib.blake2b(text.encode()).hexdigest()


@pytest.mark.slow
def test_problems_do_not_depend_on_the_hash_seed():
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest()


@each_small_task
def test_a_problem_is_a_function_of_its_index_and_split_or_level_and_says_where_it_comes_from(name):
    asked, again = task(name), make(name)
    for problem in all_problems(name):
        assert again.problem(problem.index, problem.split) == problem
        assert (problem.task, problem.domain) == (name, asked.domain)
        assert problem.level in (asked.ood_levels if problem.split == "ood" else asked.levels)
    assert set(asked.all_levels) >= {p.level for p in all_problems(name)}, "trained and beyond"
    for level in asked.all_levels:
        problem = asked.problem_at(0, level)
        assert (problem.task, problem.level) == (name, level)
        assert problem == again.problem_at(0, level)
        assert split_of(problem.prompt) == "test"
        assert score(name, problem, problem.solution.answer) == 1.0
    with pytest.raises(ValueError, match="no level 99"):
        asked.problem_at(0, 99)


@each_task
def test_there_is_a_known_solution_and_it_solves_its_problem(name):
    asked = all_problems(name)
    assert len({canonical(problem.prompt) for problem in asked}) >= 0.8 * len(asked)
    for problem in asked:
        assert problem.prompt == problem.prompt.strip() != ""
        if problem.solution is None:
            assert problem.task == "rg_rush_hour"
            continue
        response = respond(problem.solution.steps, problem.solution.answer)
        assert extract_answer(response) == problem.solution.answer.strip()
        verdict = task(name).verify(problem, response)
        assert (verdict.score, verdict.status) == (1.0, "ok"), problem.prompt


@each_small_task
def test_boxed_answers_count_and_unfinished_ones_do_not(name):
    for problem in all_problems(name)[::3]:
        answer = problem.solution.answer
        texts = (f"so \\boxed{{{answer}}}", answer, f"<think><answer>{answer}</answer>", f"<answer>{answer}")
        assert [task(name).verify(problem, text).score for text in texts] == [1.0, 0.0, 0.0, 0.0]


@each_task
def test_saying_nothing_or_echoing_the_prompt_earns_nothing(name):
    for problem in all_problems(name):
        assert task(name).verify(problem, problem.prompt).score == 0.0
        for text in ("", " ", "<answer></answer>", respond("working", "")):
            verdict = task(name).verify(problem, text)
            assert (verdict.score, verdict.status, verdict.note) == (0.0, "wrong", "no answer")


@each_task
def test_worthless_answers_earn_nothing(name):
    for problem in all_problems(name):
        for answer in (*WORTHLESS, problem.prompt):
            assert score(name, problem, answer) <= lucky(name), answer


@each_task
def test_a_right_answer_among_candidates_is_not_right(name):
    for problem, other in pairwise(p for p in all_problems(name) if p.solution):
        first, right = other.solution.answer, problem.solution.answer
        texts = [f"{first}, {right}", f"{first} or {right}", f"{first} = {right}"]
        if name in LARGE:
            texts += [f"{right}, {first}", f"{right} or {first}"]
        assert all(score(name, problem, text) < 1.0 or first == right for text in texts), texts


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_one_answer_to_every_question_earns_little(name):
    held = ("validation", "ood") if name in SMALL else ("train", "ood")
    for split in (split for split in held if split in task(name).splits):
        count = 40 if name in SMALL else 20 if row(name).name in SLOW else 200
        # each problem is asked every other one's answer, and a program is slow to judge
        count = 14 if isinstance(task(name), NeedsSandbox) else count
        answer, earned = constant_baseline(task(name), problems(name, split, count))
        assert earned <= BASELINES.get(name, BASELINE), answer


@each_small_task
def test_no_prompt_is_in_two_splits(name):
    prompts = {s: {canonical(p.prompt) for p in problems(name, s, 30)} for s in task(name).splits}
    for one, other in combinations(prompts, 2):
        assert not prompts[one] & prompts[other], (one, other)
    for split in set(SPLITS) - task(name).splits:
        with pytest.raises(ValueError, match=f"no {split} problems"):
            task(name).problem(0, split)


@each_small_task
def test_prompts_and_solutions_are_short(name):
    for problem in all_problems(name):
        assert len(problem.prompt) <= LONG_PROMPTS.get(name, 310 if name in ROWS else 120)
        response = len(problem.solution.steps + problem.solution.answer)
        if name in LONG_WORKINGS:
            assert response <= 20 * (problem.level + 1), problem.solution
        else:
            most = 150 if problem.split == "ood" else 100  # ood is never shown
            assert response <= most, problem.solution


@each_task
def test_hostile_texts_are_wrong_quickly_and_never_an_error(name):
    asked = all_problems(name)[::4]
    for problem in asked[:1] if isinstance(task(name), NeedsSandbox) else asked:
        for answer in HOSTILE:
            verdict = task(name).verify(problem, respond("", answer))
            assert (verdict.status, verdict.score <= PARTLY) == ("wrong", True), (answer[:20], verdict)


def check_verdict(name, problem, text):
    verdict = task(name).verify(problem, text)
    assert verdict.status in ("ok", "wrong"), (text, verdict)
    assert 0.0 <= verdict.score <= 1.0


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(ALL), st.integers(0, FEW - 1), st.text(max_size=60), st.booleans())
def test_no_text_breaks_a_verifier(name, index, text, tagged):
    asked = all_problems(name)
    check_verdict(name, asked[index % len(asked)], respond("", text) if tagged else text)


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
@each_task
def test_mutated_answers_break_no_verifier(name, count):
    problem = all_problems(name)[0]
    right = problem.solution.answer.strip() if problem.solution else "A+1 B-2 C+3"
    rng = Random(right)
    for _ in range(count):  # a piece cut out, and characters of all verifiers' grammars put in
        at, cut = rng.randint(0, len(right)), rng.randint(0, 9)
        piece = "".join(rng.choices("0123456789+-*/()[]{},\"' \nABCabcxRUL=→×∧¬._%#", k=rng.randint(0, 9)))
        check_verdict(name, problem, respond("", right[:at] + piece + right[at + cut :]))


@each_task
def test_a_payload_is_small_plain_data_that_judging_leaves_as_it_is(name):
    for problem in all_problems(name)[:2]:
        parcel = pickle.dumps(problem.payload)
        assert len(parcel) < 12_000
        assert not any(library in parcel for library in (b"prorl", b"reasoning_gym", b"numpy"))
        score(name, problem, problem.solution.answer if problem.solution else "1")
        score(name, problem, "0")
        assert pickle.dumps(problem.payload) == parcel


def test_no_answer_is_executed_or_compiled():
    names = [name for name in ALL if not isinstance(task(name), NeedsSandbox)]
    for name in names:  # whatever is imported or built lazily is so by now
        score(name, all_problems(name)[0], "0")
    seen = []
    watching = True
    sys.addaudithook(lambda *event: seen.append(event) if watching and event[0] in WATCHED else None)
    for name in names:
        for answer in ("__import__('os').abort()", "[].__class__", "open('x')", "(1).__class__", "exec('1')"):
            score(name, all_problems(name)[0], answer)
    watching = False
    assert seen == []


@given(st.text())
def test_a_prompt_belongs_to_one_split_however_it_is_spaced_and_cased(prompt):
    assert split_of(f"  {prompt.lower()}\n") == split_of(prompt)


def test_a_tenth_of_the_prompts_is_held_out_twice():
    for split in ("validation", "test"):
        assert sum(split_of(str(n)) == split for n in range(2000)) / 2000 == pytest.approx(0.1, abs=0.02)


if __name__ == "__main__":
    print(digest())
