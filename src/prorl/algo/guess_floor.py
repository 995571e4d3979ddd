"""How much of pass@k is luck: what answers to other problems of the same kind would earn (docs/method.md; ours).

A guess is an answer that the model gave to another problem of the same task and level. The share of guesses that a
problem's verifier accepts is what a model earns there that knows the kind of answer and nothing of the problem.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, lru_cache

FALSE_DISCOVERIES = 0.05  # share of the problems said to be solved beyond guessing that were guessed
FEWEST = 32  # guesses over a task and level; from fewer nothing is estimated


def guess_rates(tried: Sequence[tuple[int, int]]) -> list[float | None]:
    """The chance that one guess is accepted, for every problem of one task and level.

    `tried` are (guesses, accepted ones) of each. It is the larger of two estimates, so it errs towards luck: the
    accepted share of the problem's own guesses, and (accepted + 1/2) / (guesses + 1) over all problems. Of a single
    problem's guesses the latter could not fall below half a guess, which many tries would always hit.
    """
    guesses, accepted = (sum(column) for column in zip(*tried, strict=True))
    if guesses < FEWEST:
        return [None] * len(tried)
    shared = (accepted + 0.5) / (guesses + 1)
    return [max(shared, own / count if count else 0.0) for count, own in tried]


def floor(rate: float, k: int) -> float:
    """Chance that one of k guesses is accepted: 1 - (1 - rate)^k."""
    return -math.expm1(k * math.log1p(-rate)) if rate < 1 else 1.0


def least_passes(
    solved: Sequence[tuple[int, int]], rates: Sequence[float | None], tried: Sequence[tuple[int, int]]
) -> list[int]:
    """Passes from which on each problem of one task is solved more often than guesses would, by (responses, passes).

    `rates` and `tried` are as in `guess_rates`. By the one-sided binomial test at a false discovery rate of 5 % over
    the problems (Benjamini and Hochberg 1995). Where guesses at the problem itself were accepted, its rate is known
    from no more guesses than there are responses, so Fisher's exact test between these two must agree. Where nothing
    is known of guesses, whoever passed once has solved it; where no number would do, it is above all.
    """

    @cache
    def chance(n: int, c: int, rate: float, guesses: int, accepted: int) -> float:
        by_own = math.fsum(dealt(n, guesses, c + accepted)[c:]) if accepted else 0.0
        return max(tail(n, c, rate), by_own)

    every = list(zip(solved, rates, tried, strict=True))
    ranked = sorted(chance(n, c, rate, *own) for (n, c), rate, own in every if rate is not None)
    limits = (FALSE_DISCOVERIES * rank / len(ranked) for rank in range(1, len(ranked) + 1))
    cut = max((chance for chance, limit in zip(ranked, limits, strict=True) if chance <= limit), default=-1.0)

    @cache
    def least(n: int, rate: float | None, own: tuple[int, int]) -> int:
        if rate is None:
            return 1
        return 1 + bisect_left(range(1, n + 1), True, key=lambda passes: chance(n, passes, rate, *own) <= cut)

    return [least(n, rate, own) for (n, _), rate, own in every]


def tail(n: int, c: int, rate: float) -> float:
    """Chance of c or more successes among n tries of chance `rate`, above zero: the upper tail of the binomial."""
    if c == 0 or rate >= 1:
        return 1.0
    if c <= n * rate:
        # One minus the lower tail, whose first term is its largest: the other way it could underflow.
        return 1 - tail(n, n - c + 1, 1 - rate)
    ways = math.lgamma(n + 1) - math.lgamma(c + 1) - math.lgamma(n - c + 1)
    term = total = math.exp(ways + c * math.log(rate) + (n - c) * math.log1p(-rate))
    for successes in range(c, n):
        term *= (n - successes) / (successes + 1) * rate / (1 - rate)
        total += term
    return min(1.0, total)


@lru_cache(maxsize=1024)
def dealt(own: int, other: int, passes: int) -> tuple[float, ...]:
    """Chances that 0, 1, … of the passes are among `own` of own + other tries, were it luck which: hypergeometric."""

    def ways(of: int, chosen: int) -> float:
        return math.lgamma(of + 1) - math.lgamma(chosen + 1) - math.lgamma(of - chosen + 1)

    all_ways = ways(own + other, passes)
    return tuple(
        math.exp(ways(own, mine) + ways(other, passes - mine) - all_ways)
        if 0 <= passes - mine <= other
        else 0.0
        for mine in range(min(own, passes) + 1)
    )
