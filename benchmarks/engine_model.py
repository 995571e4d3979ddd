"""Continuous batching on GPUs, and verdicts behind it, as discrete events.

Between two events (a response ends, another one starts, the cache is full) the time of an iteration is linear in the
tokens that the cache holds, so a whole stretch is summed in closed form. Invariant: every response is decoded to its
length.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int64]  # groups × samples, tokens
HEADROOM = 64  # tokens by which each running response may grow before another one is let in


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A response to decode: its name, tokens of it that were written before, and those to write now."""

    name: int
    begun: int = 0
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Continuous batching on one GPU."""

    fixed: float  # s per iteration
    per_row: float  # s per iteration and row where arithmetic is the bound
    weights: float  # s to read the weights once
    per_token: float  # s per iteration and token in the cache
    prefill: float  # s to compute a token of a prompt
    samples: int  # responses of a group, which share their prompt's computation
    rows: int
    cache: float = inf  # tokens

    def seconds(self, rows: int, resident: int, steps: int) -> float:
        """Time of `steps` iterations of `rows` responses whose cache holds `resident` tokens at the first."""
        one = self.fixed + max(self.weights, self.per_row * rows)
        return steps * one + self.per_token * (steps * resident + rows * steps * (steps - 1) / 2)

    def full(self, prompt: int, jobs: Iterable[Job]) -> float:
        """Seconds for all these tokens at the rate of an engine whose rows are always taken."""
        lengths, begun = np.array([[job.length, job.begun] for job in jobs], dtype=float).T
        # a response is met at a moment in proportion to its length, half-way through on average
        context = prompt + float(((begun + lengths / 2) * lengths).sum() / lengths.sum())
        rows = min(self.rows, self.cache / context)
        one = self.fixed + max(self.weights, self.per_row * rows) + self.per_token * rows * context
        computed = len(lengths) * prompt / self.samples + float(begun.sum())
        return float(lengths.sum()) / rows * one + self.prefill * computed


@dataclass(slots=True)
class _Decoding:
    """One engine at work. Groups come whole from a queue that it may share with others."""

    engine: Engine
    prompt: int
    queue: deque[Sequence[Job]]
    fair: float  # responses at a time that it may take of the queue
    ends: dict[int, float]
    now: float = 0.0
    iteration: int = 0
    resident: int = 0  # tokens in the cache
    admitted: int = 0
    # iteration at which it ends, minus its turn of admission, iteration at which it began, job
    running: list[tuple[int, int, int, Job]] = field(default_factory=list)
    waiting: deque[Job] = field(default_factory=deque)

    def advance(self) -> list[int] | None:
        """Go on to the next event; the responses that end with it, None where nothing is left to do."""
        self._admit()
        if not self.running:
            return None
        grown = self.running[0][0] - self.iteration
        fits = (self.engine.cache - self.resident) // len(self.running)
        if fits < 1 and len(self.running) > 1:
            self._evict()
            return []
        steps = int(max(1, min(grown, fits)))
        self.now += self.engine.seconds(len(self.running), self.resident, steps)
        self.resident += steps * len(self.running)
        self.iteration += steps
        ended = []
        while self.running and self.running[0][0] == self.iteration:
            *_, job = heapq.heappop(self.running)
            self.ends[job.name] = self.now
            self.resident -= self.prompt + job.begun + job.length
            ended.append(job.name)
        return ended

    def _admit(self) -> None:
        engine = self.engine
        while len(self.running) < engine.rows:
            if not self.waiting and self.queue and len(self.running) < self.fair:
                self.waiting.extend(self.queue.popleft())
            if not self.waiting:
                return
            job = self.waiting[0]
            wanted = self.resident + self.prompt + job.begun + HEADROOM * (len(self.running) + 1)
            if self.running and wanted > engine.cache:
                return
            self.waiting.popleft()
            self.admitted += 1
            ends = self.iteration + job.length
            heapq.heappush(self.running, (ends, -self.admitted, self.iteration, job))
            self.resident += self.prompt + job.begun
            self.now += engine.prefill * (self.prompt / engine.samples + job.begun)

    def _evict(self) -> None:
        """Take back what was let in last; its tokens are computed again."""
        latest = min(self.running, key=lambda entry: entry[1])
        self.running.remove(latest)
        heapq.heapify(self.running)
        ends, _, began, job = latest
        written = self.iteration - began
        self.resident -= self.prompt + job.begun + written
        self.waiting.appendleft(Job(name=job.name, begun=job.begun + written, length=ends - self.iteration))


def decode(
    engine: Engine,
    prompt: int,
    groups: Sequence[Sequence[Job]],
    engines: int,
    *,
    shared: bool,
    enough: Callable[[int], bool] = lambda name: False,
) -> tuple[dict[int, float], dict[int, int]]:
    """When each response ends, by name, in seconds from the start; tokens of those that have not.

    `enough` is asked as each one ends whether decoding stops here.

    `shared`: engines take groups from one queue as they have room. Otherwise groups are dealt to them in turn.
    """
    ends: dict[int, float] = {}
    one = deque(groups)
    queues = [one if shared else deque(groups[number::engines]) for number in range(engines)]
    fair = sum(map(len, groups)) / engines if shared else inf
    work = [
        (0.0, number, _Decoding(engine, prompt, queue, fair, ends)) for number, queue in enumerate(queues)
    ]
    all_of_them = [one for _, _, one in work]
    while work:
        _, number, first = heapq.heappop(work)
        ended = first.advance()
        if ended is None:
            continue
        heapq.heappush(work, (first.now, number, first))
        stop = [enough(name) for name in ended]  # all of them are told
        if any(stop):
            break
    left = {job.name: one.iteration - began for one in all_of_them for _, _, began, job in one.running}
    return ends, left


def judged(ends: Sequence[float], seconds: Sequence[float], judges: int) -> float:
    """When the last verdict is there: first come first served by `judges` processes."""
    free = [0.0] * judges
    for end, service in sorted(zip(ends, seconds, strict=True)):
        heapq.heappush(free, max(heapq.heappop(free), end) + service)
    return max(free)
