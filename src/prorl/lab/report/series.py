"""Numbers of a curve made fit to draw: fewer points with the same extremes, a calm line, several seeds as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean

from prorl.algo.t_interval import t_interval

POINTS = 600  # drawn per series at most
CALM = 40  # the calm line is a mean over one in so many of all steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over seeds at some steps, and the 95 % interval of it."""

    steps: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def thin(xs: Sequence[float], ys: Sequence[float], limit: int = POINTS) -> tuple[list[float], list[float]]:
    """At most `limit` points of a curve, in order: its first and last one, and the extremes of every stretch between.

    A stretch without a number leaves a NaN, which is drawn as a gap.
    """
    count = len(xs)
    if count <= limit:
        return list(xs), list(ys)
    stretches = (limit - 2) // 2
    edges = [1 + (count - 2) * i // stretches for i in range(stretches + 1)]
    kept = [0]
    for start, end in pairwise(edges):
        finite = [at for at in range(start, end) if math.isfinite(ys[at])]
        low, high = (
            (min(finite, key=ys.__getitem__), max(finite, key=ys.__getitem__)) if finite else (start, start)
        )
        kept += sorted({low, high})
    kept.append(count - 1)
    return [xs[at] for at in kept], [ys[at] for at in kept]


def calm(ys: Sequence[float], window: int | None = None) -> list[float]:
    """The mean over `window` values around each one; what is not finite counts as missing, and stays so alone."""
    half = (max(1, len(ys) // CALM) if window is None else window) // 2
    finite = [math.isfinite(y) for y in ys]
    sums = [0.0, *accumulate(y if good else 0.0 for y, good in zip(ys, finite, strict=True))]
    counts = [0, *accumulate(finite)]
    smooth = []
    for at in range(len(ys)):
        start, end = max(0, at - half), min(len(ys), at + half + 1)
        number = counts[end] - counts[start]
        smooth.append((sums[end] - sums[start]) / number if number and finite[at] else math.nan)
    return smooth


def over_seeds(curves: Sequence[Mapping[int, float]]) -> Interval:
    """Mean and 95 % t-interval of several curves (step → value) at the steps that all of them have."""
    steps = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    rows = [[curve[step] for curve in curves] for step in steps]
    means = [fmean(row) if all(map(math.isfinite, row)) else math.nan for row in rows]
    bands = [_band(row) for row in rows]
    return Interval(steps=steps, mean=means, low=[low for low, _ in bands], high=[high for _, high in bands])


def _band(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan, math.nan
    return t_interval(values)


def short(values: Sequence[float]) -> list[float | None]:
    """Numbers as they travel to the page: six significant digits, and null for what is not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
