"""Student's interval of a mean: what a few runs that differ only in their seed say about the next one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, stdev


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Interval of the mean of two or more independent, normally distributed values: mean ± t(n - 1) · s / √n."""
    half = t_quantile(len(values) - 1, level) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


@cache
def t_quantile(freedom: int, level: float) -> float:
    """The t for which P(|T| ≤ t) = level, T of Student's distribution with `freedom` degrees."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # halvings of the angle: the limit of double precision
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < level else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _share_within(angle: float, freedom: int) -> float:
    """P(|T| ≤ tan(angle) · √freedom): Abramowitz and Stegun, 26.7.3 for odd and 26.7.4 for even degrees."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    share = math.sin(angle) * total
    return 2 / math.pi * (angle + share) if odd else share
