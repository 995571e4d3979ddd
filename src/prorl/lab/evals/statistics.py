"""pass@k and maj@k of sets of problems, with bootstrap intervals over problems; domains are weighed alike.

Every number is a function of counts per problem, so a task, a level or the answered responses alone are the same
functions on other problems.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prorl.algo import guess_floor
from prorl.algo.pass_at_k import pass_at_k
from prorl.config.fields import MOST
from prorl.envs.errors import ProrlError
from prorl.envs.seeds import derive
from prorl.lab.evals.problems import ProblemResult
from prorl.rollout.pipeline import grouped

Array = NDArray[np.float64]

DIGITS = 9  # of a k at most; Python refuses to read a number of thousands of them
COVER = (1 / 64, 1 / 16, 1 / 2)  # shares of the tries: Cover@τ (https://arxiv.org/abs/2510.08325)
DRAWS = 200  # votes of k responses per problem: the error of a mean over 100 problems is below half a point


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """pass@k (or maj@k) of a set of problems at one k, with a 95 % bootstrap interval over problems."""

    k: int
    rate: float
    low: float
    high: float


def powers_up_to(largest: int) -> tuple[int, ...]:
    """1, 2, 4, … and `largest` itself.

    >>> powers_up_to(12)
    (1, 2, 4, 8, 12)
    """
    return (*(2**power for power in range((largest - 1).bit_length())), largest)


def read_ks(text: str) -> tuple[int, ...]:
    """`1,4,16` as it stands, or `16` as the powers of two up to it.

    Raises ProrlError: not numbers from 1 up to MOST, in ascending order.
    """
    parts = [part.strip() for part in text.split(",")]
    ks = tuple(int(part) for part in parts if part.isdecimal() and len(part) <= DIGITS)
    if len(ks) < len(parts) or list(ks) != sorted(set(ks)) or ks[0] < 1 or ks[-1] > MOST:
        raise ProrlError(
            f"--k {text[:20]}: say one number, or several in ascending order, as in --k 1,4,16, and none above {MOST}"
        )
    return ks if len(ks) > 1 else powers_up_to(ks[0])


def rates(problems: Sequence[ProblemResult], ks: Sequence[int], *, most: Sequence[int] = ()) -> Array:
    """Unbiased pass@k of every problem: shape (problems, ks).

    A problem with fewer than k responses counts with all it has, or with `most` of them: errors of a verifier may
    have cost some, here or in what it is compared with.
    """
    tries = most or [problem.samples for problem in problems]
    counts = [(one.samples, one.solved, n) for one, n in zip(problems, tries, strict=True)]
    known = {(n, c, m): [pass_at_k(n, c, min(k, m)) for k in ks] for n, c, m in set(counts)}
    return np.array([known[one] for one in counts], dtype=np.float64).reshape(len(counts), len(ks))


def guess_rate(problems: Sequence[ProblemResult], k: int) -> float | None:
    """What guesses would solve within k tries, mean over domains; None where none were tried.

    Of problems on which too few were tried, as of programs in code blocks, it is 0: the mean is at least as large.
    """
    found = _guess_rates(problems)
    if not any(found):
        return None
    floors_P1 = np.array([[guess_floor.floor(rate or 0.0, k)] for rate in found])
    return mean_over_domains(floors_P1, problems)[0]


def solved_shares(problems: Sequence[ProblemResult], k: int) -> dict[str, float | None]:
    """pass@k, how much of it guesses would earn, and shares of problems that are solved beyond luck, by name.

    k is the most responses that both models have: of one there is no share of the tries.
    """

    def share(least: Iterable[float]) -> float:
        """Of problems that passed at least so often."""
        solved = [[one.solved >= passes] for one, passes in zip(problems, least, strict=True)]
        return mean_over_domains(np.array(solved, float), problems)[0]

    covered = {
        f"solved in 1/{round(1 / part)} of the tries or more": share(part * one.samples for one in problems)
        for part in (COVER if k > 1 else ())
    }
    return {
        f"pass@{k}": mean_rates(problems, (k,))[0],
        f"guesses alone, @{k}": guess_rate(problems, k),
        "solved beyond guessing": share(least_passes(problems)),
        **covered,
    }


def least_passes(problems: Sequence[ProblemResult]) -> list[int]:
    """Passes from which on each problem is solved more often than by guesses, tested over its task and part."""
    found: dict[Hashable, int] = {}
    for members in grouped(problems, lambda one: (one.task, one.part)).values():
        counts = [(one.samples, one.solved) for one in members]
        tried = [(one.guesses, one.guessed) for one in members]
        least = guess_floor.least_passes(counts, _guess_rates(members), tried)
        found |= zip((one.key for one in members), least, strict=True)
    return [found[one.key] for one in problems]


def _guess_rates(problems: Sequence[ProblemResult]) -> list[float | None]:
    found: dict[Hashable, float | None] = {}
    for members in grouped(problems, lambda one: one.key[:3]).values():
        rates = guess_floor.guess_rates([(one.guesses, one.guessed) for one in members])
        found |= zip((one.key for one in members), rates, strict=True)
    return [found[one.key] for one in problems]


def curve(
    problems: Sequence[ProblemResult], ks: Sequence[int], *, rates_PK: Array | None = None, seed: int = 0
) -> list[Point]:
    """The curve of a set of problems: of pass@k, or of the rates given per problem."""
    values = rates(problems, ks) if rates_PK is None else rates_PK
    means, ends = mean_over_domains(values, problems), interval(values, problems, seed=seed)
    return [
        Point(k=k, rate=rate, low=low, high=high) for k, rate, low, high in zip(ks, means, *ends, strict=True)
    ]


def mean_rates(problems: Sequence[ProblemResult], ks: Sequence[int]) -> list[float]:
    """pass@k of a set of problems for every k."""
    return mean_over_domains(rates(problems, ks), problems)


def mean_over_domains(values_PK: Array, problems: Sequence[ProblemResult]) -> list[float]:
    """Column means over problems, each domain weighed alike however many problems it has."""
    means = [of_domain_PK.mean(axis=0) for of_domain_PK in _by_domain(values_PK, problems)]
    return [float(value) for value in sum(means) / len(means)]


def interval(
    values_PK: Array, problems: Sequence[ProblemResult], *, seed: int, resamples: int = 2000
) -> tuple[list[float], list[float]]:
    """Ends of the 95 % bootstrap intervals of `mean_over_domains`, one per column.

    Problems are resampled within their domain, the same ones for all columns.
    """
    rng = np.random.default_rng(seed)
    domains = _by_domain(values_PK, problems)
    means_RK = np.zeros((resamples, values_PK.shape[1]))
    for of_domain_PK in domains:
        size = len(of_domain_PK)
        times_RP = rng.multinomial(size, np.full(size, 1 / size), size=resamples)
        means_RK += times_RP @ of_domain_PK / size
    low, high = np.quantile(means_RK / len(domains), [0.025, 0.975], axis=0).tolist()
    return low, high


def _by_domain(values_PK: Array, problems: Sequence[ProblemResult]) -> list[Array]:
    """The rows of every domain."""
    domains = [problem.domain for problem in problems]
    return [values_PK[[domain == name for domain in domains]] for name in dict.fromkeys(domains)]


def answered_only(problems: Iterable[ProblemResult], *others: Iterable[ProblemResult]) -> list[ProblemResult]:
    """The problems as if only responses that held an answer had been drawn, which takes the format out of the rate.

    Problems without any answered response are left out, so read it with the share of unanswered. With the results of
    other models, so are those on which one of these has none: models are compared on the same problems.
    """
    return [
        replace(problem, samples=problem.samples - problem.unanswered, unanswered=0)
        for problem in _common(problems, others, lambda one: one.unanswered < one.samples)
    ]


def voting(problems: Iterable[ProblemResult], *others: Iterable[ProblemResult]) -> list[ProblemResult]:
    """The problems that can be voted on: not those whose answers are programs, of which no two are alike.

    With the results of other models only those on which each of these can vote as well.
    """
    asked = [[*of] for of in (problems, *others)]
    # A program that nobody wrote has as many votes as answers, too.
    tasks = {one.task for of in asked for one in of if one.votes}
    return _common(asked[0], asked[1:], lambda one: one.is_voted and one.task in tasks)


def _common(
    problems: Iterable[ProblemResult],
    others: Iterable[Iterable[ProblemResult]],
    counts: Callable[[ProblemResult], bool],
) -> list[ProblemResult]:
    """The problems that count in the results of every model."""
    shared = [{problem.key for problem in other if counts(problem)} for other in others]
    return [one for one in problems if counts(one) and all(one.key in keys for keys in shared)]


def majority_rates(problems: Sequence[ProblemResult], ks: Sequence[int], *, draws: int = DRAWS) -> Array:
    """maj@k, the expected accuracy of the most frequent answer among k responses: shape (problems, ks).

    k of the n responses are drawn without replacement, `draws` times. Tied answers share the vote; responses without
    an answer have none; where nobody votes the problem is not solved. An answer that was judged both right and wrong
    counts by its share of right ones.
    """
    rates_PK = np.empty((len(problems), len(ks)))
    for row, problem in enumerate(problems):
        for column, k in enumerate(ks):
            drawn = min(k, problem.samples)
            rates_PK[row, column] = _accuracy(problem, drawn, draws, derive(0, *problem.key, k))
    return rates_PK


def _accuracy(problem: ProblemResult, k: int, draws: int, seed: int) -> float:
    counts: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for vote in problem.votes:
        counts[vote.answer] += vote.count
        right[vote.answer] += vote.count * vote.solved
    if not any(right.values()):
        return 0.0
    share_A = np.array([right[answer] / counts[answer] for answer in counts])
    sizes = [*counts.values(), problem.samples - counts.total()]  # the last are those without an answer
    rng = np.random.default_rng(seed)
    drawn_DA = rng.multivariate_hypergeometric(sizes, k, size=draws, method="count")[:, :-1]
    best_D1 = drawn_DA.max(axis=1, keepdims=True)
    won_DA = (drawn_DA == best_D1) & (best_D1 > 0)
    accuracy_D = (won_DA @ share_A) / np.maximum(won_DA.sum(axis=1), 1)
    return float(accuracy_D.mean())
