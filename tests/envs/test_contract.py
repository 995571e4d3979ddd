"""What every task of the registry promises, checked on a few problems of each split.

Run as a program, this prints a digest of those problems, so that a second interpreter can be compared with this one.
"""

import hashlib
import os
import subprocess
import sys
from functools import cache
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.base import belongs, canonical
from prorl.envs.check import TRICKS, constant_baseline
from prorl.envs.extract import respond
from prorl.envs.families.gym import ROWS
from prorl.envs.registry import TASKS, make_task
from prorl.envs.verifiers.programs import NeedsSandbox

SPLITS = ("train", "validation", "test", "ood")
FEW = 8
BASELINE = 0.2  # most that one answer to every question may earn
BASELINES = {  # exceptions: few possible answers
    "rg_calendar_arithmetic": 0.25,  # seven weekdays
    "rg_family_relationships": 0.3,  # a small family has few relations
}
LONG_PROMPTS = {"rg_knights_knaves": 640}
WORTHLESS = ("0", "1", "yes", "A", "answer", *TRICKS)
HOSTILE = (
    *(
        "9" * 3900,
        "-" * 3900,
        "(" * 3900,
        "[" * 3900,
        "1+" * 1900,
        "9**9**9**9",
        "1e999999",
        "1/0",
        "nan",
        "inf",
    ),
    *(
        "-0",
        "\x00",
        "٣",
        "½",
        "\ud800",
        "__import__('os').abort()",
        "{0}",
        "%s%s",
        "\\frac{1}{0}",
        "1:" * 900,
    ),
    *("a" * 3900, "\n" * 50 + "1"),
)

task = cache(make_task)
# the others have long questions and slow items: see families/test_gym.py
NAMES = tuple(name for name in TASKS if name not in ROWS or ROWS[name].steps)
each_task = pytest.mark.parametrize("name", NAMES)


@cache
def problems(name, split, count=FEW):
    return tuple(task(name).problem(index, split) for index in range(count))


def splits(name):
    return tuple(split for split in SPLITS if split in task(name).splits)


def all_problems(name):
    return [problem for split in splits(name) for problem in problems(name, split)]


def digest():
    text = repr([(p.prompt, p.level, p.payload, p.solution) for name in NAMES for p in all_problems(name)])
    return hashlib.blake2b(text.encode()).hexdigest()


def test_problems_do_not_depend_on_the_hash_seed():
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest()


@each_task
def test_a_problem_is_a_function_of_its_index_and_split_and_says_where_it_comes_from(name):
    again = make_task(name)
    for problem in all_problems(name):
        assert again.problem(problem.index, problem.split) == problem
        levels = task(name).ood_levels if problem.split == "ood" else task(name).levels
        assert (problem.task, problem.domain) == (name, task(name).domain)
        assert problem.level in levels


@each_task
def test_every_level_of_its_levels_has_problems_that_are_held_out(name):
    for level in task(name).all_levels:
        problem = task(name).problem_at(0, level)
        assert (problem.task, problem.level) == (name, level)
        assert problem == make_task(name).problem_at(0, level)
        assert belongs(problem.prompt, "test")
        assert not belongs(problem.prompt, "train")
        answer = respond(problem.solution.steps, problem.solution.answer)
        assert task(name).verify(problem, answer).score == 1.0
    assert set(task(name).all_levels) >= {p.level for p in all_problems(name)}, "trained and beyond"


@each_task
def test_a_level_or_a_split_that_a_task_lacks_is_refused(name):
    with pytest.raises(ValueError, match="no level 99"):
        task(name).problem_at(0, 99)
    for split in set(SPLITS) - task(name).splits:
        with pytest.raises(ValueError, match=f"no {split} problems"):
            task(name).problem(0, split)


@each_task
def test_the_solution_solves_its_problem(name):
    for problem in all_problems(name):
        verdict = task(name).verify(problem, respond(problem.solution.steps, problem.solution.answer))
        assert (verdict.score, verdict.status) == (1.0, "ok"), problem.prompt


@each_task
def test_boxed_answers_count_and_unfinished_ones_do_not(name):
    for problem in all_problems(name)[::3]:
        answer = problem.solution.answer
        assert task(name).verify(problem, f"so \\boxed{{{answer}}}").score == 1.0
        for text in (
            answer,
            f"<think><answer>{answer}</answer>",
            f"<answer>{answer}",
            f"</think>{answer}</answer>",
        ):
            assert task(name).verify(problem, text).score == 0.0


@each_task
def test_saying_nothing_or_echoing_the_prompt_earns_nothing(name):
    for problem in all_problems(name):
        for text in ("", " ", problem.prompt, "<answer></answer>", respond(problem.solution.steps, "")):
            verdict = task(name).verify(problem, text)
            assert (verdict.score, verdict.status, verdict.note) == (0.0, "wrong", "no answer")


@each_task
def test_worthless_answers_earn_at_most_the_baseline(name):
    given_problems = all_problems(name)
    echoes = sum(task(name).verify(p, respond("", p.prompt)).score for p in given_problems)
    assert echoes / len(given_problems) <= BASELINE
    for answer in WORTHLESS:
        earned = sum(task(name).verify(p, respond("", answer)).score for p in given_problems)
        assert earned / len(given_problems) <= BASELINES.get(name, BASELINE), answer


@each_task
def test_a_right_answer_after_another_candidate_is_not_right(name):
    for problem, other in pairwise(all_problems(name)):
        first, right = other.solution.answer, problem.solution.answer
        for text in (f"{first}, {right}", f"{first} or {right}", f"{first} = {right}"):
            score = task(name).verify(problem, respond("", text)).score
            assert score < 1.0 or first == right, text


@each_task
def test_one_answer_to_every_question_earns_little(name):
    for split in ("validation", "ood"):
        if split in task(name).splits:
            # each problem is asked every other one's answer, and a program is slow to judge
            count = 14 if isinstance(task(name), NeedsSandbox) else 40
            baseline = constant_baseline(task(name), split, count)
            assert baseline.score <= BASELINES.get(name, BASELINE), baseline


@each_task
def test_no_prompt_is_in_two_splits(name):
    prompts = {split: {canonical(p.prompt) for p in problems(name, split, 30)} for split in splits(name)}
    for one, other in combinations(prompts, 2):
        assert not prompts[one] & prompts[other], (one, other)


@each_task
def test_prompts_and_solutions_are_short(name):
    for problem in all_problems(name):
        assert 0 < len(problem.prompt) <= LONG_PROMPTS.get(name, 310 if name in ROWS else 120)
        response = len(problem.solution.steps + problem.solution.answer)
        assert response <= (150 if problem.split == "ood" else 100), problem.solution  # ood is never shown


@each_task
def test_hostile_texts_are_wrong_and_never_an_exception(name):
    for problem in all_problems(name)[::4]:
        for answer in HOSTILE:
            verdict = task(name).verify(problem, respond("", answer))
            assert verdict.status in ("ok", "wrong"), (answer[:20], verdict)
            assert 0.0 <= verdict.score <= 1.0


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, FEW - 1), st.text(max_size=60), st.booleans())
def test_no_text_breaks_a_verifier(name, index, text, tagged):
    problem = problems(name, splits(name)[0])[index]
    verdict = task(name).verify(problem, respond("", text) if tagged else text)
    assert verdict.status in ("ok", "wrong")
    assert 0.0 <= verdict.score <= 1.0


@given(st.text())
def test_a_prompt_belongs_to_one_split_however_it_is_spaced_and_cased(prompt):
    held = [split for split in ("train", "validation", "test") if belongs(prompt, split)]
    assert len(held) == 1
    assert belongs(f"  {prompt.lower()}\n", held[0])


def test_a_tenth_of_the_prompts_is_held_out_twice():
    shares = {
        split: sum(belongs(str(n), split) for n in range(2000)) / 2000 for split in ("validation", "test")
    }
    assert shares == {"validation": pytest.approx(0.1, abs=0.02), "test": pytest.approx(0.1, abs=0.02)}


if __name__ == "__main__":
    print(digest())
