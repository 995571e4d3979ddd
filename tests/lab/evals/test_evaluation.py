"""One model's evaluation: every part on its own problems, repeatable, and interrupted without a trace."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from prorl.envs.extract import respond
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task
from prorl.envs.types import Problem, Verdict
from prorl.lab.evals.evaluation import PROBLEMS_AT_A_TIME, Subject, measure
from prorl.lab.evals.evaluation_store import Evaluation, Rules, digest, read_evaluation
from prorl.rollout.pipeline import Worker
from prorl.rollout.validation import VerifierError, domain_rates, questions
from prorl.types import Sampling
from support.fake_backend import FakeBackend, FakeJudge, FakeRenderer

NAMES = ("arithmetic", "word_list", "blicket")
TASKS = Mixture([(make_task(name), 1.0) for name in NAMES], seed=3)
ASKED = questions(TASKS, per_domain=20, ood=4, per_level=2)
BASE = Subject(model="base", step=0, weights="w")


class Killed(BaseException):
    """What a test ends a measurement with."""


def measured(
    folder: Path,
    *,
    asked=ASKED,
    subject=BASE,
    skill=0.5,
    seed=1,
    progress: Callable[[int, int, str], None] = lambda done, total, note: None,
    judge: FakeJudge | None = None,
) -> Evaluation:
    answers = {
        FakeRenderer().encode(problem.prompt): respond("", problem.solution.answer)
        for problems in asked.values()
        for problem in problems
    }
    backend = FakeBackend({name: make_task(name) for name in NAMES}, answers, skill)
    backend.sync(0)
    rules = Rules(
        sizes={},
        levels={},
        samples=4,
        sampling=Sampling(temperature=1.0, top_p=1.0, limit=500),
        seed=seed,
        problems=digest(asked),
    )
    return measure(
        Worker(engine=backend.engine, judge=judge or backend.judge, renderer=FakeRenderer()),
        folder,
        subject,
        asked,
        rules,
        pass_threshold=TASKS.pass_threshold,
        progress=progress,
    )


def killed_after(chunks: int) -> Callable[[int, int, str], None]:
    calls = []

    def progress(done: int, total: int, note: str) -> None:
        calls.append(done)
        if len(calls) == chunks:
            raise Killed

    return progress


def test_every_part_is_measured_on_its_own_problems(tmp_path):
    evaluation = measured(tmp_path)
    for part, problems in ASKED.items():
        of_part = [result for result in evaluation.problems if result.part == part]
        assert [(r.task, r.level, r.index) for r in of_part] == [(p.task, p.level, p.index) for p in problems]
    assert read_evaluation(tmp_path / "base.parquet") == evaluation
    assert [path.name for path in tmp_path.iterdir()] == ["base.parquet"]


def test_a_measurement_can_be_repeated(tmp_path):
    first, second = (replace(measured(tmp_path), seconds=0.0) for _ in range(2))
    assert first == second
    assert measured(tmp_path, seed=2).problems != first.problems


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_an_interrupted_one_goes_on_and_ends_with_the_same_results(tmp_path, chunks):
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = measured(tmp_path / "whole")
    with pytest.raises(Killed):
        measured(tmp_path / "cut", progress=killed_after(chunks))
    parts = tmp_path / "cut" / "base.parts"
    assert len(list(parts.iterdir())) == chunks
    assert not (tmp_path / "cut" / "base.parquet").exists()
    kept = {path: path.stat().st_mtime_ns for path in parts.iterdir()}

    def untouched(done, total, note):
        assert all(path.stat().st_mtime_ns == written for path, written in kept.items())

    assert measured(tmp_path / "cut", progress=untouched).problems == whole.problems
    assert not parts.exists()


def test_what_other_weights_left_behind_is_not_taken_up(tmp_path):
    with pytest.raises(Killed):
        measured(tmp_path, skill=0.01, progress=killed_after(2))
    other = replace(BASE, weights="other")
    evaluation = measured(tmp_path, subject=other, skill=0.99)
    assert min(domain_rates(evaluation.problems, 1).values()) > 0.9
    assert evaluation.weights == "other"


def test_progress_counts_up_to_all_problems_of_all_parts(tmp_path):
    seen = []
    asked = questions(TASKS, per_domain=20, ood=4, per_level=0)
    measured(tmp_path, asked=asked, progress=lambda done, total, note: seen.append((done, total)))
    assert [done for done, _ in seen] == [PROBLEMS_AT_A_TIME, 40, 52]
    assert {total for _, total in seen} == {52}


def test_a_better_policy_measures_better(tmp_path):
    asked = questions(TASKS, per_domain=40, ood=0, per_level=0)
    for skill in (0.2, 0.8):
        found = domain_rates(measured(tmp_path, asked=asked, skill=skill).problems, 1)
        assert sum(found.values()) / len(found) == pytest.approx(skill, abs=0.1)


class Broken(FakeJudge):
    """A judge whose verifiers fail on every response to these problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__({name: make_task(name) for name in NAMES})
        self._broken = {problem.prompt for problem in problems}

    def submit(self, ticket: int, problem: Problem, text: str) -> None:
        if problem.prompt in self._broken:
            self._ready.append((ticket, Verdict(score=0.0, status="error", note="no luck")))
        else:
            super().submit(ticket, problem, text)


LOST = ASKED["ood"][:1]  # too few responses for its verifiers to count as out, which are waited for
WITH_LOST = {"ood": LOST, "test": ASKED["test"]}


def test_a_chunk_that_cannot_be_judged_costs_the_evaluation_nothing_else(tmp_path):
    evaluation = measured(tmp_path, asked=WITH_LOST, judge=Broken(LOST))
    assert [problem.prompt for problem in evaluation.problems] == [
        problem.prompt for problem in ASKED["test"]
    ]


def test_a_chunk_that_could_not_be_judged_is_asked_again(tmp_path):
    with pytest.raises(Killed):
        measured(tmp_path, asked=WITH_LOST, judge=Broken(LOST), progress=killed_after(1))
    assert len(measured(tmp_path, asked=WITH_LOST).problems) == 1 + len(ASKED["test"])


def test_a_evaluation_in_which_nothing_could_be_judged_is_an_error_with_the_verifiers_reason(tmp_path):
    with pytest.raises(VerifierError, match="no luck"):
        measured(tmp_path, asked={"ood": LOST}, judge=Broken(LOST))
    assert not (tmp_path / "base.parquet").exists()
