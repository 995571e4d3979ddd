"""Two models on the same problems: who solves what, differences of pass@k, and the pattern of every task.

A problem is solved by a model if it passed more often than guesses would (`algo/guess_floor.py`), and some problems
change sides by chance alone. How many is computed from the data: given that s of a problem's n + m responses passed,
were it chance which of the two models each response came from, the trained one would have x of the passes with
probability C(m, x) C(n, s - x) / C(n + m, s). The p-value of Fisher's exact test is the sum of these for all x from
what the model had: of a problem that the base never solved, C(m, s) / C(n + m, s).

The patterns are those of ProRL (https://arxiv.org/abs/2505.24864, section 4.2), decided per task by interval, K the
largest k. "Surely" means that the 95 % bootstrap interval over paired problems excludes 0 and p < 0.05:

- *diminish*: pass@1 surely went up and pass@K surely down.
- *sustained*: pass@K surely went up, and surely still did in the second half of training.
- *plateau*: pass@K surely went up in the first half, not surely in the second, and surely by less than half as much.
- *gain*: pass@K surely went up, where no checkpoint between says when.
- *unclear*: the intervals do not decide, as most often on few problems.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from prorl.algo.guess_floor import dealt
from prorl.envs.mixture import MEAN
from prorl.envs.seeds import derive
from prorl.lab.evals.problems import Key, Part, ProblemResult
from prorl.lab.evals.statistics import Array, interval, least_passes, mean_over_domains, rates
from prorl.rollout.pipeline import grouped

SURE = 0.01  # p-value of Fisher's exact test, one-sided, below which a problem is surely new, or surely lost
LEVEL = 0.05  # the p-value must agree with the 95 % interval, which has no width where a few problems agree
LESS = 0.5  # a second half that gains less than this share of what the first half did is a plateau
FLIPS = 2_000
ROUNDING = 1e-12

Outcome = Literal["both", "new", "lost", "neither"]
Pattern = Literal["diminish", "plateau", "sustained", "gain", "unclear"]

OUTCOMES: Mapping[tuple[bool, bool], Outcome] = {
    (True, True): "both",
    (False, True): "new",
    (True, False): "lost",
    (False, False): "neither",
}
"""By whether the base and the trained model solved a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One problem, asked of the base and of the trained model."""

    base: ProblemResult
    trained: ProblemResult
    least: tuple[int, int]  # passes from which on it counts as solved beyond guessing, by either

    @property
    def solved(self) -> tuple[bool, bool]:
        """Whether the base solved it beyond guessing, and whether the trained model did."""
        return self.base.solved >= self.least[0], self.trained.solved >= self.least[1]

    @property
    def outcome(self) -> Outcome:
        """Which models solved it beyond guessing."""
        return OUTCOMES[self.solved]

    @property
    def chance(self) -> dict[Outcome, float]:
        """The probability of each outcome, were both models equally good at it."""
        found = dict.fromkeys(OUTCOMES.values(), 0.0)
        passes = self.base.solved + self.trained.solved
        for trained, chance in enumerate(dealt(self.trained.samples, self.base.samples, passes)):
            found[OUTCOMES[passes - trained >= self.least[0], trained >= self.least[1]]] += chance
        return found

    @property
    def sure(self) -> bool:
        """Whether it is new or lost beyond chance."""
        passes, had = self.base.solved + self.trained.solved, self.trained.solved
        chances = dealt(self.trained.samples, self.base.samples, passes)
        extreme = {"new": chances[had:], "lost": chances[: had + 1]}.get(self.outcome)
        return extreme is not None and sum(extreme) < SURE


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """How many problems of a set are solved by which model, the sure ones among them, and what chance would give."""

    outcomes: Counter[Outcome]
    sure: Counter[Outcome]
    chance: Mapping[Outcome, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Trained minus base in pass@k on the problems that both were judged on, domains weighed alike."""

    k: int
    problems: int
    base: float
    trained: float
    gain: float
    low: float  # 95 %, bootstrap over problems, paired
    high: float
    p: float  # two-sided, sign flips per problem

    @property
    def up(self) -> bool:
        """Whether it is surely above zero."""
        return self.low > 0 and self.p < LEVEL

    @property
    def down(self) -> bool:
        """Whether it is surely below zero."""
        return self.high < 0 and self.p < LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPattern:
    """The pattern of one task, with the differences that decided it."""

    task: str
    part: Part
    pattern: Pattern
    at_1: Difference  # base → trained
    at_k: Difference  # base → trained
    early: Difference | None  # in pass@K, base → between
    late: Difference | None  # in pass@K, between → trained


def paired(base: Iterable[ProblemResult], trained: Iterable[ProblemResult]) -> list[Move]:
    """The problems that both were judged on, in the base's order: a verifier's error may have cost either some."""
    known = {problem.key: problem for problem in trained if problem.samples}
    first = [problem for problem in base if problem.samples and problem.key in known]
    second = [known[problem.key] for problem in first]
    least = zip(least_passes(first), least_passes(second), strict=True)
    return [
        Move(base=one, trained=other, least=passes)
        for one, other, passes in zip(first, second, least, strict=True)
    ]


def sides(moves: Iterable[Move]) -> tuple[list[ProblemResult], list[ProblemResult]]:
    """The problems as the base did them, and as the trained model did."""
    return [move.base for move in moves], [move.trained for move in moves]


def boundary(moves: Sequence[Move]) -> Boundary:
    """Count the problems of a set."""
    chances = [move.chance for move in moves]
    return Boundary(
        outcomes=Counter(move.outcome for move in moves),
        sure=Counter(move.outcome for move in moves if move.sure),
        chance={outcome: sum(one[outcome] for one in chances) for outcome in OUTCOMES.values()},
    )


def compare(moves: Sequence[Move], ks: Sequence[int]) -> dict[str, tuple[Difference, ...]]:
    """The differences for every k of each domain, and last those of the mean over domains; none without problems."""
    groups = {**grouped(moves, lambda move: move.base.domain), MEAN: moves} if moves else {}
    return {label: differences(of, ks, seed=derive(0, label)) for label, of in groups.items()}


def differences(
    moves: Sequence[Move], ks: Sequence[int], *, seed: int = 0, guessed: bool = True
) -> tuple[Difference, ...]:
    """The gain in pass@k for every k. All k's are read off the same responses, so they are not independent tests.

    Without `guessed` a problem that was not solved beyond guessing counts as never solved.

    The p-value is that of the sign-flip permutation test: were the two models alike, each problem's difference would
    as likely have the other sign.
    """
    problems = [move.base for move in moves]
    base_PK, trained_PK = _pass_rates(moves, ks, guessed=guessed)
    gains_PK = trained_PK - base_PK
    means = (mean_over_domains(values_PK, problems) for values_PK in (base_PK, trained_PK, gains_PK))
    others = (*interval(gains_PK, problems, seed=seed), _sign_flips(gains_PK, problems, seed))
    return tuple(
        Difference(k=k, problems=len(moves), base=base, trained=trained, gain=gain, low=low, high=high, p=p)
        for k, base, trained, gain, low, high, p in zip(ks, *means, *others, strict=True)
    )


def _pass_rates(moves: Sequence[Move], ks: Sequence[int], *, guessed: bool) -> tuple[Array, Array]:
    most = [min(move.base.samples, move.trained.samples) for move in moves]
    base_PK, trained_PK = (rates(problems, ks, most=most) for problems in sides(moves))
    if guessed:
        return base_PK, trained_PK
    beyond_P2 = np.array([move.solved for move in moves])
    return base_PK * beyond_P2[:, :1], trained_PK * beyond_P2[:, 1:]


def patterns(
    base: Iterable[ProblemResult],
    trained: Iterable[ProblemResult],
    *,
    between: Iterable[ProblemResult] | None = None,
    k: int,
) -> list[TaskPattern]:
    """The pattern of every task in every part, on the problems that all models were judged on, guesses left out.

    `between` is a checkpoint of about half of the training; without one only *diminish* and *gain* can be said.
    """
    middle = None if between is None else {problem.key: problem for problem in between}
    chosen = (problem for problem in base if middle is None or problem.key in middle)
    groups = grouped(paired(chosen, trained), lambda move: (move.base.part, move.base.task))
    return [_decided(moves, middle, k) for moves in groups.values()]


def _decided(moves: Sequence[Move], between: Mapping[Key, ProblemResult] | None, k: int) -> TaskPattern:
    at_1, at_k = differences(moves, (1, k), guessed=False)
    early = late = None
    pattern: Pattern = "gain" if at_k.up and between is None else "unclear"
    if between is not None:
        base, trained = sides(moves)
        middle = [between[problem.key] for problem in base]
        first, second = paired(base, middle), paired(middle, trained)
        (early,), (late,) = (differences(half, (k,), guessed=False) for half in (first, second))
        if at_k.up and late.up:
            pattern = "sustained"
        elif early.up and not late.down and _slowed(first, second, k):
            pattern = "plateau"
    if at_1.up and at_k.down:
        pattern = "diminish"
    one = moves[0].base
    return TaskPattern(
        task=one.task, part=one.part, pattern=pattern, at_1=at_1, at_k=at_k, early=early, late=late
    )


def _slowed(first: Sequence[Move], second: Sequence[Move], k: int) -> bool:
    """Whether the second half surely gained less than its share of the first half."""
    (before, middle), (_, after) = (_pass_rates(half, (k,), guessed=False) for half in (first, second))
    excess = (after - middle) - LESS * (middle - before)
    _, high = interval(excess, [move.base for move in first], seed=0)
    return high[0] < 0


def _sign_flips(gains_PK: Array, problems: Sequence[ProblemResult], seed: int) -> list[float]:
    sizes = Counter(problem.domain for problem in problems)
    shares = np.array([1 / sizes[problem.domain] for problem in problems]) / len(sizes)
    weighed_PK = gains_PK * shares[:, None]
    signs_FP = np.random.default_rng(seed).integers(2, size=(FLIPS, len(problems)), dtype=np.int8) * 2.0 - 1
    flipped_FK = np.abs(signs_FP @ weighed_PK)
    as_large_FK = flipped_FK >= np.abs(weighed_PK.sum(axis=0)) - ROUNDING
    return [float(p) for p in (1 + as_large_FK.sum(axis=0)) / (1 + FLIPS)]
