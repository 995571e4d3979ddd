"""What the best answer that ignores the question earns: the floor above which a score means something."""

from __future__ import annotations

from dataclasses import dataclass

from prorl.envs.extract import respond
from prorl.envs.types import Split, Task

STOCK_ANSWERS = ("0", "1", "2", "yes", "no", "A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A constant answer and its mean score."""

    answer: str
    score: float


def constant_baseline(task: Task, split: Split, n: int) -> Baseline:
    """The best of the witnesses' answers and a few stock ones, each given to the first `n` problems of a split.

    The best is chosen on the problems that it is scored on, so the value errs on the high side by about 1/n.

    Raises:
        ValueError: `n` below one, or the task has nothing in this split.
    """
    if n < 1:
        raise ValueError(f"a baseline needs at least one problem, not {n}")
    problems = [task.problem(index, split) for index in range(n)]
    answers = dict.fromkeys((*(p.witness.answer for p in problems if p.witness), *STOCK_ANSWERS))
    scored = (
        (sum(task.verify(problem, respond("", answer)).score for problem in problems) / n, answer)
        for answer in answers
    )
    score, answer = max(scored)
    return Baseline(answer=answer, score=score)
