"""Schedules as plain data: what turns any knob from a constant into a function of the step (METHOD §8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prorl.algo import schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Piecewise:
    """Constant pieces: the value of the last point at or before the step."""

    points: tuple[tuple[int, float], ...]  # (first step, value), first steps ascending from 0

    def at(self, step: int) -> float:
        """Value at a step."""
        return schedule.piecewise(step, self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """From `start` to `end` within `steps`, constant before and after."""

    start: float
    end: float
    steps: int
    start_step: int = 0
    shape: Literal["linear", "cosine"] = "linear"

    def at(self, step: int) -> float:
        """Value at a step."""
        ramp = schedule.linear if self.shape == "linear" else schedule.cosine
        return ramp(step, start=self.start, end=self.end, steps=self.steps, start_step=self.start_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """`on` for `on_steps`, then `off` for `off_steps`, again and again from `start_step`."""

    on: float
    off: float
    on_steps: int
    off_steps: int
    start_step: int = 0

    def at(self, step: int) -> float:
        """Value at a step."""
        active = schedule.on_off(step, self.on_steps, self.off_steps, self.start_step)
        return self.on if active else self.off


Schedule = Piecewise | Ramp | Cycle
