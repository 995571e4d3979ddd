"""Two models on the same problems: differences of pass@k, paired per problem, with intervals and p-values.

The k's of one comparison are read off the same responses, so they are not independent tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from prorl.algo.pass_at_k import Array, bootstrap_means, percentiles
from prorl.envs.seeds import derive
from prorl.lab.evals.boundary import Move
from prorl.lab.evals.rates import MEAN, Curve, by_domain, curve, mean_over_domains, rates
from prorl.lab.evals.study import ProblemResult

LEVEL = 0.05
"""Intervals have 95 %. The p-value must agree, as the interval of a few problems that agree has no width."""
FLIPS = 2_000
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Trained minus base in pass@k, domains weighed alike."""

    k: int
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
class Comparison:
    """One row of the table base → trained, on the problems that both were judged on."""

    label: str
    base: Curve
    trained: Curve
    differences: tuple[Difference, ...]  # one per k


def compare(
    moves: Sequence[Move],
    ks: Sequence[int],
    *,
    by: Callable[[ProblemResult], object] = by_domain,
    seed: int = 0,
) -> list[Comparison]:
    """A row per group, and last the mean over domains; none without problems."""
    groups: dict[str, list[Move]] = {}
    for move in moves:
        groups.setdefault(str(by(move.base)), []).append(move)
    rows = [_row(label, members, ks, derive(seed, label)) for label, members in groups.items()]
    return [*rows, _row(MEAN, moves, ks, derive(seed, MEAN))] if moves else []


def differences(moves: Sequence[Move], ks: Sequence[int], *, seed: int = 0) -> tuple[Difference, ...]:
    """The gain in pass@k of the same problems, for every k.

    The p-value is that of the sign-flip permutation test: were the two models alike, each problem's difference would
    as likely have the other sign.

    Raises:
        ValueError: there are no problems.
    """
    domains = [move.base.domain for move in moves]
    gains_PK = rates([move.trained for move in moves], ks) - rates([move.base for move in moves], ks)
    low, high = percentiles(bootstrap_means(gains_PK, seed=seed, strata=domains))
    gains, p = mean_over_domains(gains_PK, domains), _sign_flips(gains_PK, domains, seed)
    return tuple(
        Difference(k=k, gain=gains[at], low=float(low[at]), high=float(high[at]), p=float(p[at]))
        for at, k in enumerate(ks)
    )


def _row(label: str, moves: Sequence[Move], ks: Sequence[int], seed: int) -> Comparison:
    return Comparison(
        label=label,
        base=curve("base", [move.base for move in moves], ks, seed=seed),
        trained=curve("trained", [move.trained for move in moves], ks, seed=seed),
        differences=differences(moves, ks, seed=seed),
    )


def _sign_flips(gains_PK: Array, domains: Sequence[str], seed: int) -> Array:
    sizes = Counter(domains)
    shares = np.array([1 / sizes[domain] for domain in domains]) / len(sizes)
    weighed_PK = gains_PK * shares[:, None]
    signs_FP = np.random.default_rng(seed).integers(2, size=(FLIPS, len(domains)), dtype=np.int8) * 2.0 - 1
    flipped_FK = np.abs(signs_FP @ weighed_PK)
    as_large = flipped_FK >= np.abs(weighed_PK.sum(axis=0)) - ROUNDING
    return np.asarray((1 + as_large.sum(axis=0)) / (1 + FLIPS), dtype=np.float64)
