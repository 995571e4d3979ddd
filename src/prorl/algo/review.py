"""Solved problems that are asked again: correct-set turnover and its review (arXiv:2606.03087, METHOD §16).

What was solved quietly becomes unsolvable, and repair gets dearer with delay. A share of a step's draws is taken from
what is due; the time to the next review doubles with each success and halves with each failure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

FIRST_INTERVAL = 10  # steps from the first success to the first review
KEPT = 512  # problems that wait for a review; more are not taken in
PASSED = 0.5  # share of a group's responses from which a review is a success

Named = tuple[str, int, int]
"""A problem: task, level, index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A problem that was solved, and when it is asked again."""

    problem: Named
    due: int  # step
    interval: int = FIRST_INTERVAL  # steps


def reviewed(
    waiting: Sequence[Review], asked: Sequence[tuple[Named, int, int]], step: int
) -> tuple[Review, ...]:
    """What waits after a step, the earliest due first. `asked` are problems, responses judged and those that passed."""
    known = {one.problem: one for one in waiting}
    for problem, judged, passed in asked:
        if (one := known.get(problem)) is not None:
            interval = one.interval * 2 if passed >= PASSED * judged else max(1, one.interval // 2)
            known[problem] = replace(one, interval=interval, due=step + interval)
        elif passed and len(known) < KEPT:
            known[problem] = Review(problem=problem, due=step + FIRST_INTERVAL)
    return tuple(sorted(known.values(), key=lambda one: one.due))


def placed(waiting: Sequence[Review], draws: Sequence[int], step: int) -> Mapping[int, Named]:
    """Which of these draws ask what is due."""
    due = (one.problem for one in waiting if one.due <= step)
    return dict(zip(draws, due, strict=False))
