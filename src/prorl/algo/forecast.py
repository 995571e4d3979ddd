"""Where a validation score is heading: a saturating curve over the steps, with an interval."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

FEWEST, MOST = 9, 60  # points: fewer say nothing; more are averaged down to so many
# Coarser steps would leave out the curves between two of them.
SHARPNESS = [2.0 ** (power / 16) for power in range(-16, 33)]  # B
GRAIN = 1e-3  # of a score: no curve is exact to less
MIDDLES = [2.0 ** (power / 16) for power in range(-96, 65)]  # Cmid, as a share of the last step
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
    import numpy as np  # not before a run has so many: a dashboard stays small

    parts = min(MOST, len(points))
    pieces = list(pairwise(len(points) * i // parts for i in range(parts + 1)))
    steps, scores = (
        np.array([fmean(point[axis] for point in points[a:b]) for a, b in pieces]) for axis in (0, 1)
    )
    sharp, middle = (grid.reshape(-1, 1) for grid in np.meshgrid(SHARPNESS, MIDDLES))
    with np.errstate(divide="ignore"):  # step 0, where the shape is 0
        shapes = 1 / (1 + (middle * steps[-1] / steps) ** sharp)
    shapes = shapes[shapes[:, -1] >= SEEN]
    shown = 2 * parts // 3
    foretold, _ = _fit(shapes[:, :shown], scores[:shown], shapes[:, shown:].mean(axis=1))
    found, least = _fit(shapes, scores, np.ones(len(shapes)))
    doubt = 2 * (least / (parts - 4) / (parts - shown)) ** 0.5  # of the mean of the last third itself
    if not foretold.low - doubt <= scores[shown:].mean() <= foretold.high + doubt:
        return None
    if found.low > 1 or found.high < 0:
        return None
    return Forecast(*(min(max(value, 0.0), 1.0) for value in found))


def _fit(shapes_SP: Array, scores_P: Array, at_S: Array) -> tuple[Forecast, float]:
    """What the best curve R0 + D · shape is where its shape is `at`, with an interval by profile likelihood; and its
    sum of squared errors. S shapes, P points.

    For a given shape the best curve is a regression line, and the sum of squares grows quadratically as its value
    is moved away; the interval holds every value that some shape reaches within the sum of squares that 95 % allow.
    """
    middle_S = shapes_SP.mean(axis=1)
    offset_SP, around_P = shapes_SP - middle_S[:, None], scores_P - scores_P.mean()
    spread_S = (offset_SP**2).sum(axis=1)
    spread_S[spread_S == 0] = math.inf  # a shape that is flat so far: so is its line
    slope_S = offset_SP @ around_P / spread_S
    error_S = ((around_P - slope_S[:, None] * offset_SP) ** 2).sum(axis=1)
    value_S = scores_P.mean() + slope_S * (at_S - middle_S)
    variance_S = 1 / len(scores_P) + (at_S - middle_S) ** 2 / spread_S
    best, freedom = error_S.argmin(), max(1, len(scores_P) - 4)
    student = 1.96 + 2.37 / freedom + 2.82 / freedom**2  # its 97.5 % quantile, by Cornish and Fisher
    least = float(error_S[best])
    room_S = least + (least + len(scores_P) * GRAIN**2) * student**2 / freedom - error_S
    near = room_S >= 0
    half = (room_S[near] * variance_S[near]) ** 0.5
    low, high = (value_S[near] - half).min(), (value_S[near] + half).max()
    return Forecast(float(value_S[best]), float(low), float(high)), least
