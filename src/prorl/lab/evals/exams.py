"""Putting held-out problems to a model, several samples each. Training never sees these problems.

One implementation serves the exams during a run and every study; they differ in problems and samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from prorl.envs.errors import ProrlError
from prorl.envs.extract import extract_answer
from prorl.envs.types import Problem
from prorl.lab.evals.study import Kept, Part, ProblemResult, Vote
from prorl.rollout.pipeline import Worker, roll_out
from prorl.stopwatch import Stopwatch
from prorl.types import Group, Rollout, Sampling

KEPT = 2  # first responses of every problem; and the first one that passed
ANSWER_CHARS = 200


class VerifierError(ProrlError):
    """An exam that says nothing, as no response could be judged."""


def sit_exam(
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
    """Sample `samples` responses to every problem and say how it went, in problem order.

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
    results = (_result(group, part, pass_threshold(group.problem.task)) for group in groups)
    judged = tuple(result for result in results if result.samples)
    if groups and not judged:
        note = groups[0].rollouts[0].verdict.note
        raise VerifierError(f"verifiers failed on every response of an exam, on the first one with: {note}")
    return judged


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
        # Saying nothing may follow an instruction; a response that passed was no failure of format.
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
    """Answers as extracted; a program stands where no answer is looked for, so it has no vote."""
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
