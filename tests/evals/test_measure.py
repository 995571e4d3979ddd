"""Base against trained, on the same problems."""

from dataclasses import replace
from statistics import fmean

import pytest

from prorl.backends.fake import FakeBackend, FakeRenderer
from prorl.evals.exams import ExamResult, ProblemCount
from prorl.evals.measure import PROBLEMS_AT_A_TIME, compare, measure
from prorl.rollout.pipeline import Worker
from prorl.tasks.extract import respond
from prorl.tasks.mixture import Mixture
from prorl.tasks.registry import make_task
from prorl.types import Sampling

NAMES = ("arithmetic", "word_list", "blicket")
TASKS = Mixture([(make_task(name), 1.0) for name in NAMES], seed=3)


def counted(domain: str, solved: list[int], *, samples: int = 4, task: str = "t") -> list[ProblemCount]:
    return [
        ProblemCount(
            task=task,
            domain=domain,
            index=index,
            split="test",
            level=1,
            samples=samples,
            solved=number,
            unanswered=0,
            length=5.0,
        )
        for index, number in enumerate(solved)
    ]


def result(**domains: list[int]) -> ExamResult:
    counts = [count for domain, solved in domains.items() for count in counted(domain, solved, task=domain)]
    return ExamResult(counts=tuple(counts))


def measured(sizes, *, skill=0.5, seed=1, progress=lambda done, total, note: None):
    answers = {
        FakeRenderer().encode(problem.prompt): respond("", problem.witness.answer)
        for split, size in sizes.items()
        if size
        for problem in TASKS.exam_problems(split, size)
    }
    backend = FakeBackend({name: make_task(name) for name in NAMES}, answers, skill)
    backend.sync(0)
    return measure(
        Worker(engine=backend.engine, judge=backend.judge, renderer=FakeRenderer()),
        TASKS,
        sizes=sizes,
        samples=4,
        sampling=Sampling(temperature=1.0, top_p=1.0, limit=500),
        seed=seed,
        progress=progress,
    )


def test_every_split_is_measured_on_its_own_problems():
    results = measured({"test": 5, "ood": 3})
    asked = {split: [(c.task, c.index) for c in result.counts] for split, result in results.items()}
    for split, size in (("test", 5), ("ood", 3)):
        assert asked[split] == [(p.task, p.index) for p in TASKS.exam_problems(split, size)]
        assert {c.split for c in results[split].counts} == {split}


def test_a_split_of_size_zero_is_not_measured():
    assert list(measured({"test": 2, "ood": 0})) == ["test"]


def test_a_measurement_can_be_repeated():
    assert measured({"test": 20}) == measured({"test": 20})
    assert measured({"test": 20}) != measured({"test": 20}, seed=2)


def test_a_better_policy_measures_better():
    weak, strong = (measured({"test": 40}, skill=skill)["test"] for skill in (0.2, 0.8))
    assert fmean(weak.pass_at(1).values()) == pytest.approx(0.2, abs=0.1)
    assert fmean(strong.pass_at(1).values()) == pytest.approx(0.8, abs=0.1)


def test_progress_counts_up_to_all_problems_of_all_splits():
    seen = []
    measured({"test": 20, "ood": 4}, progress=lambda done, total, note: seen.append((done, total)))
    assert [done for done, _ in seen] == [PROBLEMS_AT_A_TIME, 40, 52]
    assert {total for _, total in seen} == {52}


def test_the_table_has_a_row_per_domain_and_their_mean():
    base, trained = result(math=[0, 2, 4, 2], code=[0, 0]), result(math=[4, 4, 4, 4], code=[0, 2])
    math, code, mean = compare(base, trained, ks=[1, 4])
    assert [row.label for row in (math, code, mean)] == ["math", "code", "mean"]
    assert [row.problems for row in (math, code, mean)] == [4, 2, 6]
    assert (math.base, math.trained, math.gain) == ({1: 0.5, 4: 0.75}, {1: 1.0, 4: 1.0}, 0.5)
    assert (code.base, code.trained, code.gain) == ({1: 0.0, 4: 0.0}, {1: 0.25, 4: 0.5}, 0.25)
    assert (mean.base[1], mean.trained[1], mean.gain) == (0.25, 0.625, 0.375)


def test_the_interval_of_the_mean_is_that_of_the_domains_however_unequal_they_are():
    base, trained = result(math=[0], code=[0] * 20), result(math=[4], code=[0, 4] * 10)
    math, code, mean = compare(base, trained, ks=[1])
    assert (math.interval, mean.gain) == ((1.0, 1.0), 0.75)
    assert code.interval[0] < 0.5 < code.interval[1] < mean.gain
    assert mean.interval[0] < mean.gain < mean.interval[1]


def test_a_model_gains_nothing_on_itself():
    same = result(math=[0, 2, 4], code=[1])
    assert {(row.gain, row.interval) for row in compare(same, same, ks=[1])} == {(0.0, (0.0, 0.0))}


def test_only_problems_that_both_were_judged_on_are_compared():
    base, trained = result(math=[0, 4, 2], code=[1]), result(math=[4, 4, 0], code=[1])
    base = replace(base, counts=base.counts[1:])
    trained = replace(trained, counts=(trained.counts[3], *trained.counts[:2]))
    math, code, mean = compare(base, trained, ks=[1])
    assert (math.problems, math.gain) == (1, 0.0)
    assert (code.problems, mean.problems) == (1, 2)


def test_without_a_common_problem_there_is_nothing_to_compare():
    assert compare(result(math=[1]), result(code=[1]), ks=[1]) == []
