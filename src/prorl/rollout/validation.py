"""Asks a model held-out problems, several samples each, and counts how each problem went.

One function serves the validations of a run, the measurement before and after it, and evaluations of hundreds of
responses; they differ in problems and samples. Training never sees these problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from prorl.envs.errors import ProrlError
from prorl.envs.extract import extract_answer
from prorl.envs.types import Problem
from prorl.rollout.pipeline import Worker, roll_out
from prorl.stopwatch import Stopwatch
from prorl.types import Group, Rollout, Sampling

KEPT = 2  # first responses of a problem that are kept whatever their verdicts, beside the first that passed
ANSWER_CHARS = 200

Part = Literal["validation", "test", "ood", "levels"]
"""Why a problem is asked: in a run's validations, held out of the run, out of domain, or at one level of a task."""


class VerifierError(ProrlError):
    """No response to any problem could be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One extracted answer of a problem and how many responses gave it. Equal answers may differ in their verdict."""

    answer: str
    count: int
    solved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A response that is kept for people to read, with its verdict."""

    sample: int
    text: str
    tokens: int
    finish: str
    score: float
    status: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult:
    """How one problem went: of `samples` judged responses `solved` passed and `unanswered` held no answer."""

    task: str
    domain: str
    part: Part
    level: int
    index: int
    prompt: str
    samples: int
    solved: int
    unanswered: int
    truncated: int
    errors: int  # responses that the verifier could not judge; not among `samples`
    length: float  # mean response length, tokens
    votes: tuple[Vote, ...] = ()  # the most frequent first
    kept: tuple[Kept, ...] = ()  # the first responses in sample order, and the first one that passed

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Identifies the problem within an evaluation."""
        return self.task, self.part, self.level, self.index


def ask_problems(
    worker: Worker,
    problems: Sequence[Problem],
    *,
    part: Part,
    samples: int,
    sampling: Sampling,
    seed: int,
    pass_threshold: Callable[[str], float],
    clock: Stopwatch | None = None,
) -> tuple[ProblemResult, ...]:
    """Sample `samples` responses to every problem and count how it went, in problem order.

    A problem whose verifier failed on some responses is counted over the others, and left out when none remain.
    Raises VerifierError where none remain of any problem.
    """
    asked = dict(enumerate(problems))
    groups = roll_out(
        worker, asked, samples=samples, sampling=sampling, seed=seed, clock=clock or Stopwatch()
    )
    results = [_result(group, part, pass_threshold(group.problem.task)) for group in groups]
    if results and not any(result.samples for result in results):
        note = groups[0].rollouts[0].verdict.note
        raise VerifierError(
            f"verifiers failed on every response of a validation, on the first one with: {note}"
        )
    return tuple(result for result in results if result.samples)


def domain_rates(problems: Iterable[ProblemResult], k: int) -> dict[str, float]:
    """pass@k per domain, averaged over its problems."""
    from prorl.algo.pass_at_k import pass_at_k  # imports numpy, which the dashboard does without

    rates: dict[str, list[float]] = {}
    for problem in problems:
        rate = pass_at_k(problem.samples, problem.solved, min(k, problem.samples))
        rates.setdefault(problem.domain, []).append(rate)
    return {domain: fmean(values) for domain, values in rates.items()}


def unanswered_share(problems: Sequence[ProblemResult]) -> float:
    """Share of responses without an extractable answer: format failures, as opposed to wrong answers."""
    return sum(problem.unanswered for problem in problems) / sum(problem.samples for problem in problems)


def _result(group: Group, part: Part, threshold: float) -> ProblemResult:
    problem = group.problem
    judged = [rollout for rollout in group.rollouts if rollout.verdict.status != "error"]
    passed = [rollout for rollout in judged if rollout.verdict.score >= threshold]
    shown = {id(rollout): rollout for rollout in (*group.rollouts[:KEPT], *passed[:1])}
    return ProblemResult(
        task=problem.task,
        domain=problem.domain,
        part=part,
        level=problem.level,
        index=problem.index,
        prompt=_storable(problem.prompt),
        samples=len(judged),
        solved=len(passed),
        # An empty response may follow an instruction; one that passed is no failure of format.
        unanswered=sum(
            not rollout.verdict.answered and rollout.verdict.score < threshold for rollout in judged
        ),
        truncated=sum(rollout.completion.finish == "length" for rollout in judged),
        errors=len(group.rollouts) - len(judged),
        length=fmean(len(rollout.completion.tokens) for rollout in group.rollouts),
        votes=tuple(_votes(judged, threshold)),
        kept=tuple(map(_kept, shown.values())),
    )


def _votes(judged: Sequence[Rollout], threshold: float) -> Iterator[Vote]:
    """Answers as extracted. A program has no vote: no answer is looked for in it."""
    cast = Counter(
        (_storable(answer[:ANSWER_CHARS]), rollout.verdict.score >= threshold)
        for rollout in judged
        if rollout.verdict.answered and (answer := extract_answer(rollout.text)) is not None
    )
    for (answer, solved), count in cast.most_common():
        yield Vote(answer=answer, count=count, solved=solved)


def _kept(rollout: Rollout) -> Kept:
    return Kept(
        sample=rollout.completion.sample,
        text=_storable(rollout.text),
        tokens=len(rollout.completion.tokens),
        finish=rollout.completion.finish,
        score=rollout.verdict.score,
        status=rollout.verdict.status,
        note=_storable(rollout.verdict.note),
    )


def _storable(text: str) -> str:
    """Text that UTF-8 can hold: half a surrogate pair, which a tokenizer may leave, becomes a question mark."""
    return text.encode(errors="replace").decode()
