"""How each problem of an evaluation went: what was counted, how responses voted, and some of them to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Literal

from prorl.envs.extract import extract_answer
from prorl.envs.types import Problem
from prorl.rollout.pipeline import ProblemScore, Sampler, sample_problems, score
from prorl.stopwatch import Stopwatch
from prorl.types import Group, Rollout, Sampling

KEPT = 2  # first responses of a problem that are kept whatever their verdicts, beside the first that passed
ANSWER_CHARS = 200

Part = Literal["validation", "test", "ood", "levels"]
"""Why a problem is asked: in a run's validations, held out of the run, out of domain, or at one level of a task."""


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
class ProblemResult(ProblemScore):
    """How one problem of an evaluation went."""

    task: str
    part: Part
    level: int
    index: int
    prompt: str
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
    sampler: Sampler,
    problems: Sequence[Problem],
    *,
    part: Part,
    samples: int,
    sampling: Sampling,
    seed: int,
    pass_threshold: Callable[[str], float],
    clock: Stopwatch,
) -> tuple[ProblemResult, ...]:
    """As `sample_problems`, with what an evaluation keeps of every problem, in problem order."""
    groups = sample_problems(sampler, problems, samples=samples, sampling=sampling, seed=seed, clock=clock)
    return tuple(_result(group, part, pass_threshold(group.problem.task)) for group in groups)


def _result(group: Group, part: Part, threshold: float) -> ProblemResult:
    problem = group.problem
    judged = [rollout for rollout in group.rollouts if rollout.verdict.status != "error"]
    passed = [rollout for rollout in judged if rollout.verdict.score >= threshold]
    shown = {id(rollout): rollout for rollout in (*group.rollouts[:KEPT], *passed[:1])}
    return ProblemResult(
        **asdict(score(group, threshold)),
        task=problem.task,
        part=part,
        level=problem.level,
        index=problem.index,
        prompt=_storable(problem.prompt),
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
