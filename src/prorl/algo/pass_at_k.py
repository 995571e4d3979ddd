"""Unbiased pass@k (https://arxiv.org/abs/2107.03374), of many problems at once, and bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that one of k responses passes, from c passes among n: 1 - C(n-c, k)/C(n, k).

    Computed in whole numbers and rounded once, so no size of n or k loses precision. Raises ValueError unless
    0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"passes must be between 0 and the number of responses: got {c} of {n}")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs k >= 1 and at least k responses per problem: got {n}")
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def pass_rates(counts: Sequence[tuple[int, int]], ks: Sequence[int]) -> Array:
    """pass@k of every problem, given as (responses, passes), for every k: shape (problems, ks).

    A problem with fewer than k responses counts with all it has: errors of a verifier may have cost some.
    """
    known = {(n, c): [pass_at_k(n, c, min(k, n)) for k in ks] for n, c in set(counts)}
    return np.array([known[pair] for pair in counts], dtype=np.float64).reshape(len(counts), len(ks))


def bootstrap_means(
    values_PK: Array, *, seed: int, strata: Sequence[object] | None = None, resamples: int = 2000
) -> Array:
    """Means over resampled problems, all columns of a resample from the same problems: shape (resamples, K).

    Each stratum (a domain, say) is resampled by itself, and the mean is over strata, weighed alike. Raises ValueError
    where there are no values or one is not finite.
    """
    if values_PK.ndim != 2 or not values_PK.size or not np.isfinite(values_PK).all():
        raise ValueError("a bootstrap needs one finite value per problem, and at least one problem")
    labels = [None] * len(values_PK) if strata is None else list(strata)
    names = list(dict.fromkeys(labels))
    rng = np.random.default_rng(seed)
    means_RK = np.zeros((resamples, values_PK.shape[1]))
    for name in names:
        members_PK = values_PK[[label == name for label in labels]]
        size = len(members_PK)
        times_RP = rng.multinomial(size, np.full(size, 1 / size), size=resamples)
        means_RK += times_RP @ members_PK / size
    return means_RK / len(names)


def percentiles(means_RK: Array, level: float = 0.95) -> tuple[Array, Array]:
    """Lower and upper ends of the percentile intervals of bootstrapped means, one per column."""
    low, high = np.quantile(means_RK, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high
