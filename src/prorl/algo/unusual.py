"""How far a number lies from what was usual lately, and whether that lasts: the arithmetic of detectors (METHOD §8).

The usual value is a median, so that one spike does not raise the bar for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def times_usual(value: float, earlier: Sequence[float], *, floor: float, least: int) -> float | None:
    """`value` over the median of `earlier` values, which counts as at least `floor`; None with fewer than `least`."""
    return value / max(median(earlier), floor) if len(earlier) >= least else None


def above_usual(value: float, earlier: Sequence[float], *, least: int) -> float | None:
    """`value` less the median of `earlier` values; None with fewer than `least`."""
    return value - median(earlier) if len(earlier) >= least else None


def lasts(hot: Sequence[bool], *, hits: int, of_last: int) -> bool:
    """Whether the newest is hot, and with it at least `hits` of the last `of_last`; `hot` is oldest first."""
    return bool(hot) and hot[-1] and sum(hot[-of_last:]) >= hits


def divergence(pairs: Sequence[tuple[float, float]]) -> float:
    """How far training went up while the validation went down, of (training, validation) scores, oldest first.

    Both changes are those since the best validation among the pairs, the earliest of equals; the smaller one counts,
    so it is positive only where both happened. Zero for fewer than two pairs.
    """
    if len(pairs) < 2:
        return 0.0
    trained, validated = pairs[-1]
    best_trained, best_validated = max(pairs, key=lambda pair: pair[1])
    return min(trained - best_trained, best_validated - validated)
