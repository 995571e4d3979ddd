"""Exams: held-out problems, several samples each, counted per problem. Training never sees these problems.

One implementation serves the exams during a run and the final measurement; they differ in problems and samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from prorl.algo.pass_at_k import pass_at_k
from prorl.errors import ProrlError
from prorl.rollout.pipeline import Worker, roll_out
from prorl.stopwatch import Stopwatch
from prorl.types import Group, Problem, Sampling


class VerifierError(ProrlError):
    """An exam that says nothing, as no response could be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCount:
    """How one problem went: of `samples` judged responses `solved` passed and `unanswered` held no answer."""

    task: str
    domain: str
    index: int
    split: str
    level: int
    samples: int
    solved: int
    unanswered: int
    length: float  # mean response length, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamResult:
    """Counts per problem, in problem order; every summary derives from them."""

    counts: tuple[ProblemCount, ...]

    def domains(self) -> dict[str, tuple[ProblemCount, ...]]:
        """Counts by domain, in order of first appearance."""
        grouped: dict[str, list[ProblemCount]] = defaultdict(list)
        for count in self.counts:
            grouped[count.domain].append(count)
        return {domain: tuple(counts) for domain, counts in grouped.items()}

    def pass_at(self, k: int) -> dict[str, float]:
        """Unbiased pass@k per domain, averaged over its problems; of fewer responses where fewer were judged."""
        return {
            domain: fmean(pass_at_k(count.samples, count.solved, min(k, count.samples)) for count in counts)
            for domain, counts in self.domains().items()
        }

    @property
    def unanswered(self) -> float:
        """Share of responses without an extractable answer: format failures, apart from wrong answers."""
        return sum(count.unanswered for count in self.counts) / sum(count.samples for count in self.counts)

    def to_json(self) -> list[dict[str, Any]]:
        """Counts as plain JSON data."""
        return [asdict(count) for count in self.counts]

    @staticmethod
    def from_json(data: Iterable[Mapping[str, Any]]) -> ExamResult:
        """The result that `to_json` wrote."""
        return ExamResult(counts=tuple(ProblemCount(**count) for count in data))


def sit_exam(
    worker: Worker,
    problems: Sequence[Problem],
    *,
    samples: int,
    sampling: Sampling,
    seed: int,
    pass_threshold: Callable[[str], float],
    clock: Stopwatch | None = None,
) -> ExamResult:
    """Sample `samples` responses to every problem and count the solved ones.

    A problem whose verifier failed on some responses is counted over the others, and left out when none remain.

    Raises:
        VerifierError: none remain of any problem.
    """
    groups = roll_out(
        worker,
        list(enumerate(problems)),
        samples=samples,
        sampling=sampling,
        seed=seed,
        clock=clock or Stopwatch(),
    )
    counts = (_count(group, pass_threshold(group.problem.task)) for group in groups)
    judged = tuple(count for count in counts if count.samples)
    if groups and not judged:
        note = groups[0].rollouts[0].verdict.note
        raise VerifierError(f"verifiers failed on every response of an exam, on the first one with: {note}")
    return ExamResult(counts=judged)


def _count(group: Group, threshold: float) -> ProblemCount:
    judged = [rollout for rollout in group.rollouts if rollout.verdict.status != "error"]
    return ProblemCount(
        task=group.problem.task,
        domain=group.problem.domain,
        index=group.problem.index,
        split=group.problem.split,
        level=group.problem.level,
        samples=len(judged),
        solved=sum(rollout.verdict.score >= threshold for rollout in judged),
        unanswered=sum(not rollout.verdict.answered for rollout in judged),
        length=fmean(len(rollout.completion.tokens) for rollout in group.rollouts),
    )
