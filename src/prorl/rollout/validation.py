"""Asks a model held-out problems, several samples each, and counts how each problem went.

One function asks for the validations of a run, the measurement before and after it, and evaluations of hundreds of
responses, which keep more of each problem (lab/evals/problems.py). Training never sees these problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from prorl.envs.errors import ProrlError
from prorl.envs.types import Problem
from prorl.rollout.pipeline import Worker, roll_out
from prorl.stopwatch import Stopwatch
from prorl.types import Group, Sampling


class VerifierError(ProrlError):
    """No response to any problem could be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemScore:
    """How one problem went: of `samples` judged responses `solved` passed and `unanswered` held no answer."""

    domain: str
    samples: int
    solved: int
    unanswered: int


def sample_problems(
    worker: Worker,
    problems: Sequence[Problem],
    *,
    samples: int,
    sampling: Sampling,
    seed: int,
    clock: Stopwatch,
) -> list[Group]:
    """Sample and judge `samples` responses to every problem; problems of which none could be judged are left out.

    Raises VerifierError where none remain.
    """
    asked = dict(enumerate(problems))
    groups = roll_out(worker, asked, samples=samples, sampling=sampling, seed=seed, clock=clock)
    judged = [group for group in groups if any(one.verdict.status != "error" for one in group.rollouts)]
    if groups and not judged:
        note = groups[0].rollouts[0].verdict.note
        raise VerifierError(
            f"verifiers failed on every response of a validation, on the first one with: {note}"
        )
    return judged


def score(group: Group, threshold: float) -> ProblemScore:
    """Count the responses that could be judged; those with a score of `threshold` passed."""
    verdicts = [rollout.verdict for rollout in group.rollouts if rollout.verdict.status != "error"]
    return ProblemScore(
        domain=group.problem.domain,
        samples=len(verdicts),
        solved=sum(verdict.score >= threshold for verdict in verdicts),
        # An empty response may follow an instruction; one that passed is no failure of format.
        unanswered=sum(not verdict.answered and verdict.score < threshold for verdict in verdicts),
    )


def domain_rates(problems: Iterable[ProblemScore], k: int) -> dict[str, float]:
    """pass@k per domain, averaged over its problems."""
    from prorl.algo.pass_at_k import pass_at_k  # imports numpy, which the dashboard does without

    rates: dict[str, list[float]] = {}
    for problem in problems:
        rate = pass_at_k(problem.samples, problem.solved, min(k, problem.samples))
        rates.setdefault(problem.domain, []).append(rate)
    return {domain: fmean(values) for domain, values in rates.items()}


def unanswered_share(problems: Sequence[ProblemScore]) -> float:
    """Share of responses without an extractable answer: format failures, as opposed to wrong answers."""
    return sum(problem.unanswered for problem in problems) / sum(problem.samples for problem in problems)
