"""Names lead to tasks; what a judge's process builds: every task of the spec, one sandbox, and the rule on form."""

import pickle
from dataclasses import replace
from itertools import product

import pytest

from prorl.envs.base import NO_ANSWER
from prorl.envs.extract import respond
from prorl.envs.registry import TASKS, VerifierSpec, make_task, make_verifier
from prorl.envs.sandbox.jobs import CaseResult
from prorl.envs.verifiers import programs


def test_every_name_makes_the_task_that_bears_it_and_five_domains_are_trained():
    tasks = {name: make_task(name) for name in TASKS}
    assert all(task.name == name for name, task in tasks.items())
    trained = {task.domain for task in tasks.values() if task.levels}
    assert trained == {"math", "code", "stem", "logic", "instruct"}


@pytest.mark.parametrize(
    ("name", "levels", "message"),
    [
        ("arithmetik", None, r"did you mean .arithmetic.\?"),
        ("zzzz", None, r"no task 'zzzz'; there are .*word_list"),
        ("list_synthesis", {9: 1.0}, "no level"),
    ],
)
def test_a_name_or_a_level_that_does_not_exist_is_refused(name, levels, message):
    with pytest.raises(ValueError, match=message):
        make_task(name, levels)


def test_an_instruction_follows_the_prompt_and_the_verdict_is_the_tasks_own():
    plain, told = make_task("arithmetic"), make_task("arithmetic")
    told.instruction = "Think first."
    problem, same = told.problem(3, "train"), plain.problem(3, "train")
    assert problem == replace(same, prompt=f"{same.prompt}\n\nThink first.")
    assert told.problem_at(3, 2).prompt == f"{plain.problem_at(3, 2).prompt}\n\nThink first."
    answer = respond("", problem.solution.answer)
    assert told.verify(problem, answer) == plain.verify(same, answer)


def test_problems_of_every_level_are_judged_by_their_task_in_another_process_too():
    spec = VerifierSpec(tasks=("list_synthesis", "word_list"))
    verify = make_verifier(pickle.loads(pickle.dumps(spec)))
    for name, split in product(spec.tasks, ("train", "ood")):
        problem = make_task(name, {3: 1.0}).problem(0, split)
        assert verify(problem, respond("", problem.solution.answer)).score == 1.0
        assert (problem.level == 3) == (split == "train")


@pytest.mark.parametrize(("strict", "score"), [(False, 1.0), (True, 0.0)])
def test_a_strict_form_counts_no_answer_before_the_thinking_is_closed(strict, score):
    problem = make_task("arithmetic").problem(0, "train")
    verify = make_verifier(VerifierSpec(tasks=("arithmetic",), strict=strict))
    bare = verify(problem, f"<answer>{problem.solution.answer}</answer>")
    assert bare.score == score
    assert (bare == NO_ANSWER) is strict
    assert verify(problem, respond("so", problem.solution.answer)).score == 1.0


def test_all_tasks_share_one_sandbox(monkeypatch):
    opened = []

    class EventLog:
        def __init__(self, policy):
            opened.append(policy)

        def __call__(self, job):
            return (CaseResult(status="sandbox_error", note="none"),) * len(job.inputs)

    monkeypatch.setattr("prorl.envs.registry.OwnSandbox", EventLog)
    verify = make_verifier(VerifierSpec(tasks=("one_liner", "arithmetic")))
    problem = make_task("one_liner").problem(0, "train")
    assert verify(problem, respond("", "x")).status == "error"
    assert opened == [programs.Policy()]
