"""Functions of the step that any hyperparameter may follow: pieces, ramps, and an on/off cycle.

Invariant: a schedule has no memory. Its value at a step depends on the step alone, so resume needs no state.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise


def on_off(step: int, on_steps: int, off_steps: int, start_step: int = 0) -> bool:
    """Whether a cycle of `on_steps` on, then `off_steps` off, is on; it begins at `start_step`, off before.

    `off_steps = 0` is on from the start for good; `on_steps = 0` is never on.

    Raises:
        ValueError: a negative number of steps.
    """
    if on_steps < 0 or off_steps < 0:
        raise ValueError(f"a cycle needs on_steps >= 0 and off_steps >= 0: got {on_steps} and {off_steps}")
    if step < start_step or on_steps == 0:
        return False
    return (step - start_step) % (on_steps + off_steps) < on_steps


def piecewise(step: int, points: Sequence[tuple[int, float]]) -> float:
    """Value of the last point (first step, value) at or before the step.

    Raises:
        ValueError: no points, first steps that do not ascend, or a step before the first one.
    """
    steps = [first for first, _ in points]
    if not steps or any(later <= earlier for earlier, later in pairwise(steps)):
        raise ValueError(f"a piecewise schedule needs points at ascending steps: got {steps}")
    if step < steps[0]:
        raise ValueError(f"step {step} is before the first point of the schedule: add one at or before it")
    return points[bisect_right(steps, step) - 1][1]


def linear(step: int, *, start: float, end: float, steps: int, start_step: int = 0) -> float:
    """A straight ramp from `start` at `start_step` to `end` after `steps`, constant before and after.

    Raises:
        ValueError: a ramp shorter than one step.
    """
    return _between(start, end, _progress(step, steps, start_step))


def cosine(step: int, *, start: float, end: float, steps: int, start_step: int = 0) -> float:
    """As `linear`, along half a cosine: flat at both ends, steepest in the middle.

    Raises:
        ValueError: a ramp shorter than one step.
    """
    return _between(start, end, 0.5 * (1 - math.cos(math.pi * _progress(step, steps, start_step))))


def _progress(step: int, steps: int, start_step: int) -> float:
    if steps < 1:
        raise ValueError(f"a ramp lasts at least one step: got {steps}")
    return min(max(step - start_step, 0), steps) / steps


def _between(start: float, end: float, share: float) -> float:
    # start + (end - start) need not be `end` in floating point, and a hyperparameter must reach its off value
    # exactly.
    return end if share == 1 else start + (end - start) * share
