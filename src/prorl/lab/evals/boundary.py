"""Whether the boundary moved: which problems a trained model solves that its base did not, and the other way round.

With n responses "never solved" means "not in n tries", so some problems change sides by chance alone. How many is
computed from the data: given that s of a problem's responses passed, were it chance which of the two models each
response came from, all s would come from the trained one with probability C(m, s) / C(n + m, s), n and m responses
each. That is also the p-value of Fisher's exact test of a new problem, so one number serves both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

from prorl.lab.evals.study import ProblemResult

SURE = 0.01
"""p-value of Fisher's exact test, one-sided, below which a problem is surely new, or surely lost."""

Fate = Literal["both", "new", "lost", "neither"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One problem, asked of the base and of the trained model."""

    base: ProblemResult
    trained: ProblemResult

    @property
    def fate(self) -> Fate:
        """Who solved it at least once."""
        if self.base.solved:
            return "both" if self.trained.solved else "lost"
        return "new" if self.trained.solved else "neither"

    @property
    def chance(self) -> tuple[float, float]:
        """Probabilities that it looks new, and that it looks lost, were both models equally good at it."""
        solved = self.base.solved + self.trained.solved
        if not solved:
            return 0.0, 0.0
        ways = comb(self.base.samples + self.trained.samples, solved)
        return comb(self.trained.samples, solved) / ways, comb(self.base.samples, solved) / ways

    @property
    def sure(self) -> bool:
        """Whether it is new or lost beyond chance."""
        new, lost = self.chance
        return (self.fate == "new" and new < SURE) or (self.fate == "lost" and lost < SURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """How many problems of a set are solved by whom, the sure ones among them, and what chance alone would give."""

    label: str
    both: int
    new: int
    lost: int
    neither: int
    sure_new: int
    sure_lost: int
    chance_new: float
    chance_lost: float
    chance_sure_new: float
    chance_sure_lost: float

    @property
    def problems(self) -> int:
        """All of them."""
        return self.both + self.new + self.lost + self.neither


def paired(base: Iterable[ProblemResult], trained: Iterable[ProblemResult]) -> list[Move]:
    """The problems that both were judged on, in the base's order: a verifier's error may have cost either some."""
    after = {problem.key: problem for problem in trained if problem.samples}
    return [
        Move(base=problem, trained=after[problem.key])
        for problem in base
        if problem.samples and problem.key in after
    ]


def boundary(label: str, moves: Sequence[Move]) -> Boundary:
    """Count the problems of a set."""
    fates = [move.fate for move in moves]
    sure = [move.fate for move in moves if move.sure]
    new, lost = [move.chance[0] for move in moves], [move.chance[1] for move in moves]
    return Boundary(
        label=label,
        both=fates.count("both"),
        new=fates.count("new"),
        lost=fates.count("lost"),
        neither=fates.count("neither"),
        sure_new=sure.count("new"),
        sure_lost=sure.count("lost"),
        chance_new=sum(new),
        chance_lost=sum(lost),
        chance_sure_new=sum(p for p in new if p < SURE),
        chance_sure_lost=sum(p for p in lost if p < SURE),
    )
