"""Where a validation score is heading: a saturating curve over the steps, with an interval."""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

FEWEST, MOST = 9, 60  # points: fewer say nothing; more are averaged down to so many
SHARPNESS = [2.0 ** (power / 4) for power in range(-4, 9)]  # B, a half to four
GRAIN = 1e-3  # of a score: no curve is exact to less
MIDDLES = [2.0 ** (power / 4) for power in range(-24, 17)]  # Cmid, as a share of the last step
SEEN = 1 / 17  # of the rise, by the last step at least: a rise yet to come could end anywhere


class Forecast(NamedTuple):
    """A value that a curve takes, and its 95 % interval."""

    value: float
    low: float
    high: float


@lru_cache(maxsize=64)
def forecast(points: tuple[tuple[float, float], ...]) -> Forecast | None:
    """The limit in [0, 1] of (step, score) points, with R(C) = R0 + (A - R0)/(1 + (Cmid/C)^B) fitted to them.

    None with fewer than `FEWEST` points, or where the curve is not (yet) of this form and a limit would be invented:
    if the mean of the last third is not what the first two thirds foretell of it with their own interval, or if
    every limit that would do is outside [0, 1].
    Source: ScaleRL, https://arxiv.org/abs/2510.13786, with steps in place of compute.
    """
    if len(points) < FEWEST:
        return None
    parts = min(MOST, len(points))
    pieces = list(pairwise(len(points) * i // parts for i in range(parts + 1)))
    steps, scores = ([fmean(point[axis] for point in points[a:b]) for a, b in pieces] for axis in (0, 1))
    shapes = [
        [1 / (1 + (middle * steps[-1] / step) ** sharp) if step else 0.0 for step in steps]
        for sharp in SHARPNESS
        for middle in MIDDLES
        if 1 / (1 + middle**sharp) >= SEEN
    ]
    shown = 2 * parts // 3
    foretold, _ = _fit(
        [shape[:shown] for shape in shapes], scores[:shown], [fmean(s[shown:]) for s in shapes]
    )
    found, least = _fit(shapes, scores, [1.0] * len(shapes))
    doubt = 2 * math.sqrt(least / (parts - 4) / (parts - shown))  # of the mean of the last third itself
    if not foretold.low - doubt <= fmean(scores[shown:]) <= foretold.high + doubt:
        return None
    if found.low > 1 or found.high < 0:
        return None
    return Forecast(*(min(max(value, 0.0), 1.0) for value in found))


def _fit(
    shapes: Sequence[Sequence[float]], scores: Sequence[float], at: Sequence[float]
) -> tuple[Forecast, float]:
    """What the best curve R0 + D · shape is where its shape is `at`, with an interval by profile likelihood; and its
    sum of squared errors.

    For a given shape the best curve is a regression line, and the sum of squares grows quadratically as its value
    is moved away; the interval holds every value that some shape reaches within the sum of squares that 95 % allow.
    """
    fits = []
    mean = fmean(scores)
    for shape, place in zip(shapes, at, strict=True):
        middle = fmean(shape)
        spread = math.fsum((rise - middle) ** 2 for rise in shape)
        shared = math.fsum(
            (rise - middle) * (score - mean) for rise, score in zip(shape, scores, strict=True)
        )
        slope = shared / spread if spread else 0.0
        error = math.fsum(
            (score - mean - slope * (rise - middle)) ** 2 for rise, score in zip(shape, scores, strict=True)
        )
        variance = 1 / len(scores) + ((place - middle) ** 2 / spread if spread else 0.0)
        fits.append((error, mean + slope * (place - middle), variance))
    least, value, _ = min(fits)
    freedom = max(1, len(scores) - 4)
    student = 1.96 + 2.37 / freedom + 2.82 / freedom**2  # its 97.5 % quantile, by Cornish and Fisher
    allowed = least + (least + len(scores) * GRAIN**2) * student**2 / freedom
    reach = [
        (value, math.sqrt((allowed - error) * width)) for error, value, width in fits if error <= allowed
    ]
    return Forecast(value, min(v - half for v, half in reach), max(v + half for v, half in reach)), least
