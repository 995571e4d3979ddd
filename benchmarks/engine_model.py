"""Continuous batching on one GPU, and verdicts behind it, as discrete events.

Between two events (a response ends, another one starts) the time of an iteration is linear in the tokens that the
cache holds, so a whole stretch is summed in closed form. Invariant: every response is decoded to its length.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int64]  # groups × samples, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Continuous batching on one GPU."""

    fixed: float  # s per iteration
    per_row: float  # s per iteration and row where arithmetic is the bound
    weights: float  # s to read the weights once
    per_token: float  # s per iteration and token in the cache
    prefill: float  # s to compute a prompt, per response of its group
    rows: int

    def seconds(self, rows: int, resident: int, steps: int) -> float:
        """Time of `steps` iterations of `rows` responses whose cache holds `resident` tokens at the first."""
        one = self.fixed + max(self.weights, self.per_row * rows)
        return steps * one + self.per_token * (steps * resident + rows * steps * (steps - 1) / 2)

    def decode(self, prompt: int, lengths: Sequence[int]) -> list[float]:
        """When each response ends, in seconds from the start."""
        ends = [0.0] * len(lengths)
        running: list[tuple[int, int]] = []  # iteration at which it ends, response
        now, iteration, resident, waiting = 0.0, 0, 0, 0
        while running or waiting < len(lengths):
            while waiting < len(lengths) and len(running) < self.rows:
                heapq.heappush(running, (iteration + lengths[waiting], waiting))
                resident += prompt
                now += self.prefill
                waiting += 1
            steps = running[0][0] - iteration
            now += self.seconds(len(running), resident, steps)
            resident += steps * len(running)
            iteration += steps
            while running and running[0][0] == iteration:
                _, ended = heapq.heappop(running)
                ends[ended] = now
                resident -= prompt + lengths[ended]
        return ends

    def full(self, prompt: int, lengths: Lengths) -> float:
        """Seconds for all these tokens at the rate of an engine whose rows are always taken."""
        # a response is met at a moment in proportion to its length, half-way through on average
        context = prompt + float((lengths.astype(float) ** 2).sum() / lengths.sum()) / 2
        one = self.fixed + max(self.weights, self.per_row * self.rows) + self.per_token * self.rows * context
        return float(lengths.sum()) / self.rows * one + self.prefill * lengths.size


def judged(ends: Sequence[float], seconds: Sequence[float], judges: int) -> float:
    """When the last verdict is there: first come first served by `judges` processes."""
    free = [0.0] * judges
    for end, service in sorted(zip(ends, seconds, strict=True)):
        heapq.heappush(free, max(heapq.heappop(free), end) + service)
    return max(free)
