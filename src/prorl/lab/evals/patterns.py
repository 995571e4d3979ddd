"""The three patterns of ProRL (https://arxiv.org/abs/2505.24864, section 4.2), decided per task by interval.

With K the largest k, and 95 % bootstrap intervals over problems, paired:

- *diminish*: pass@1 surely went up and pass@K surely down. What the base knew is said more often, and it knows less.
- *sustained*: pass@K surely went up, and surely still did in the second half.
- *plateau*: pass@K surely went up in the first half, not surely in the second, and surely by less than half as much.
- *gain*: pass@K surely went up, where no checkpoint between says when.
- *unclear*: the intervals do not decide. Most often the answer, on few problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from prorl.algo.pass_at_k import bootstrap_means, percentiles
from prorl.lab.evals.boundary import paired
from prorl.lab.evals.compare import Difference, differences
from prorl.lab.evals.rates import grouped, rates
from prorl.lab.evals.study import Part, ProblemResult

Pattern = Literal["diminish", "plateau", "sustained", "gain", "unclear"]

LESS = 0.5
"""A second half that gains less than this share of what the first half did has come to a plateau."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPattern:
    """What training did to one task, with the differences that decided it."""

    task: str
    part: Part
    problems: int
    pattern: Pattern
    at_1: Difference  # base → trained
    at_k: Difference  # base → trained
    early: Difference | None  # in pass@K, base → between
    late: Difference | None  # in pass@K, between → trained


def patterns(
    base: Iterable[ProblemResult],
    trained: Iterable[ProblemResult],
    *,
    between: Iterable[ProblemResult] | None = None,
    k: int,
    seed: int = 0,
) -> list[TaskPattern]:
    """The pattern of every task in every part, on the problems that all models were judged on.

    `between` is a checkpoint of about half of the training; without one only *diminish* and *gain* can be said.
    """
    middle = None if between is None else {problem.key: problem for problem in between}
    chosen = [problem for problem in base if middle is None or problem.key in middle]
    after = {problem.key: problem for problem in trained}
    groups = grouped((problem for problem in chosen if problem.key in after), lambda p: (p.part, p.task))
    return [
        _decided(
            problems,
            [after[problem.key] for problem in problems],
            None if middle is None else [middle[problem.key] for problem in problems],
            k,
            seed,
        )
        for problems in groups.values()
    ]


def _decided(
    base: Sequence[ProblemResult],
    trained: Sequence[ProblemResult],
    between: Sequence[ProblemResult] | None,
    k: int,
    seed: int,
) -> TaskPattern:
    at_1, at_k = differences(paired(base, trained), (1, k), seed=seed)
    early = late = None
    if between is not None:
        (early,) = differences(paired(base, between), (k,), seed=seed)
        (late,) = differences(paired(between, trained), (k,), seed=seed)
    return TaskPattern(
        task=base[0].task,
        part=base[0].part,
        problems=len(base),
        pattern=_pattern(at_1, at_k, early, late, lambda: _slowed(base, between or (), trained, k, seed)),
        at_1=at_1,
        at_k=at_k,
        early=early,
        late=late,
    )


def _pattern(
    at_1: Difference,
    at_k: Difference,
    early: Difference | None,
    late: Difference | None,
    slowed: Callable[[], bool],
) -> Pattern:
    if at_1.up and at_k.down:
        return "diminish"
    if early is None or late is None:
        return "gain" if at_k.up else "unclear"
    if at_k.up and late.up:
        return "sustained"
    return "plateau" if early.up and slowed() else "unclear"


def _slowed(
    base: Sequence[ProblemResult],
    between: Sequence[ProblemResult],
    trained: Sequence[ProblemResult],
    k: int,
    seed: int,
) -> bool:
    """Whether the second half surely gained less than its share of the first half."""
    before, middle, after = (rates(problems, (k,)) for problems in (base, between, trained))
    excess = (after - middle) - LESS * (middle - before)
    _, high = percentiles(bootstrap_means(excess, seed=seed))
    return bool(high[0] < 0)
