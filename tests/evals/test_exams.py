"""Exams count what was solved, and keep format failures and verifier failures apart from wrong answers."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.evals.exams import ExamResult, ProblemCount, VerifierError, sit_exam
from prorl.types import Sampling
from support.rollouts import BROKEN, SILENT, problem, response, scripted_worker

PROBLEMS = [
    problem(40),
    problem(41, task="other", domain="code"),
    problem(42),
]


def sat(
    script: list[list[str]],
    *,
    threshold: Callable[[str], float] = lambda task: 1.0,
    shuffle: int | None = None,
) -> ExamResult:
    """The exam in which problem k got the answers of script[k]."""
    return sit_exam(
        scripted_worker(lambda draw, sample: script[draw][sample], shuffle=shuffle),
        PROBLEMS[: len(script)],
        samples=len(script[0]),
        sampling=Sampling(temperature=1.0, top_p=1.0, limit=100),
        seed=5,
        pass_threshold=threshold,
    )


def count(task="score", domain="math", index=0, *, samples=4, solved=2, unanswered=0) -> ProblemCount:
    return ProblemCount(
        task=task,
        domain=domain,
        index=index,
        split="exam",
        level=1,
        samples=samples,
        solved=solved,
        unanswered=unanswered,
        length=10.0,
    )


def test_a_count_says_which_problem_it_is_and_how_it_went():
    (counted,) = sat([["1", "0.5", SILENT, "1"]]).counts
    lengths = [len(response(answer)) + 1 for answer in ("1", "0.5", SILENT, "1")]
    assert counted == ProblemCount(
        task="score",
        domain="math",
        index=40,
        split="train",
        level=1,
        samples=4,
        solved=2,
        unanswered=1,
        length=sum(lengths) / 4,
    )


def test_a_score_is_a_pass_from_its_tasks_own_threshold():
    script = [["0.5", "1"]] * 2
    solved = [c.solved for c in sat(script, threshold={"score": 0.5, "other": 0.75}.__getitem__).counts]
    assert solved == [2, 1]


def test_responses_that_could_not_be_judged_do_not_count():
    counts = sat([["1", BROKEN, "0"], [BROKEN] * 3, ["1"] * 3]).counts
    assert [(c.index, c.samples, c.solved) for c in counts] == [(40, 2, 1), (42, 3, 3)]


@given(st.integers(0, 1000))
def test_counts_do_not_depend_on_the_order_of_completion(shuffle):
    script = [["1", "0", "0"], ["1", "1", SILENT], ["0.5", BROKEN, "1"]]
    assert sat(script, shuffle=shuffle) == sat(script)


def test_domains_come_in_order_of_appearance_with_their_problems():
    result = sat([["1", "0"], ["0", "0"], ["1", "1"]])
    assert {domain: [c.index for c in counts] for domain, counts in result.domains().items()} == {
        "math": [40, 42],
        "code": [41],
    }
    assert list(result.domains()) == ["math", "code"]


def test_pass_rates_are_averaged_over_the_problems_of_a_domain():
    result = sat([["1", "0"], ["0", "0"], ["1", "1"]])
    assert result.pass_at(1) == {"math": 0.75, "code": 0.0}
    assert result.pass_at(2) == {"math": 1.0, "code": 0.0}


def test_the_unanswered_are_a_share_of_all_judged_responses():
    assert ExamResult(counts=(count(samples=4, unanswered=3), count(samples=2))).unanswered == 0.5


def test_a_result_survives_json():
    result = sat([["1", "0"], ["0", SILENT]])
    assert ExamResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_a_problem_with_fewer_judged_responses_is_counted_with_those_it_has():
    result = sat([["1", "0", BROKEN], ["0", "0", "0"]])
    assert result.pass_at(3) == {"math": 1.0, "code": 0.0}


def test_an_exam_without_any_verdict_is_an_error_with_the_verifiers_reason():
    with pytest.raises(VerifierError, match="the verifier failed"):
        sat([[BROKEN] * 2] * 2)
