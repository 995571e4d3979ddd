"""Unbiased pass@k (https://arxiv.org/abs/2107.03374) and a bootstrap interval over problems."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that one of k responses passes, from c passes among n: 1 - C(n-c, k)/C(n, k).

    Computed in whole numbers and rounded once, so no size of n or k loses precision.

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"passes must be between 0 and the number of responses: got {c} of {n}")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs k >= 1 and at least k responses per problem: got {n}")
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """pass@k averaged over problems, each given as (responses, passes); problems may differ in responses.

    Raises:
        ValueError: no problems, or as `pass_at_k`.
    """
    if not counts:
        raise ValueError("pass@k over no problems is not defined")
    return math.fsum(pass_at_k(n, c, k) for n, c in counts) / len(counts)


def bootstrap_interval(
    values: Sequence[float], *, seed: int, resamples: int = 2000, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of per-problem values, resampling problems.

    For a paired comparison of two models, give the per-problem differences. The result is a function of the
    arguments: the same seed gives the same interval.

    Raises:
        ValueError: no values or one that is not finite, fewer than one resample, or a level outside (0, 1).
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not sample.size or not np.isfinite(sample).all():
        raise ValueError("a bootstrap needs one finite value per problem, and at least one problem")
    if resamples < 1 or not 0 < level < 1:
        raise ValueError(f"need resamples >= 1 and a level in (0, 1): got {resamples} and {level}")
    rng = np.random.default_rng(seed)
    means = [sample[rng.integers(sample.size, size=sample.size)].mean() for _ in range(resamples)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
