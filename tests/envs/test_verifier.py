"""What a judge's process builds: every task of the spec, one sandbox, and the rule on form."""

import pickle

import pytest

from prorl.envs.base import NO_ANSWER
from prorl.envs.extract import respond
from prorl.envs.registry import make_task
from prorl.envs.sandbox.jobs import CaseResult
from prorl.envs.verifier import VerifierSpec, make_verifier
from prorl.envs.verifiers import programs


def test_problems_of_every_level_are_judged_by_their_task():
    verify = make_verifier(VerifierSpec(tasks=("list_trace", "word_list")))
    for name in ("list_trace", "word_list"):
        for split in ("train", "ood"):
            problem = make_task(name).problem(0, split)
            assert verify(problem, respond("", problem.witness.answer)).score == 1.0


def test_a_spec_travels_to_another_process():
    spec = VerifierSpec(tasks=("arithmetic",), strict=True)
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(("strict", "score"), [(False, 1.0), (True, 0.0)])
def test_a_strict_form_counts_no_answer_before_the_thinking_is_closed(strict, score):
    problem = make_task("arithmetic").problem(0, "train")
    verify = make_verifier(VerifierSpec(tasks=("arithmetic",), strict=strict))
    bare = verify(problem, f"<answer>{problem.witness.answer}</answer>")
    assert bare.score == score
    assert (bare == NO_ANSWER) is strict
    assert verify(problem, respond("so", problem.witness.answer)).score == 1.0


def test_all_tasks_share_one_sandbox(monkeypatch):
    opened = []

    class Recorder:
        def __init__(self, policy):
            opened.append(policy)

        def __call__(self, job):
            return (CaseResult(status="sandbox_error", note="none"),) * len(job.inputs)

    monkeypatch.setattr("prorl.envs.verifier.OwnSandbox", Recorder)
    verify = make_verifier(VerifierSpec(tasks=("one_liner", "arithmetic")))
    problem = make_task("one_liner").problem(0, "train")
    assert verify(problem, respond("", "x")).status == "error"
    assert opened == [programs.Policy()]
