"""What refilling would gain: taking up new responses while others decode, calculated from measured costs.

Today each worker decodes its half of a step's responses as one batch until the last has ended. The alternative takes
fewer at first, and more whenever some have ended, so that both workers end together. One process makes steps of the
recipe; what a token costs by rows and length, in CPU time, is fitted to its decoding. Then the responses of these
steps are dealt to the workers either way, on paper: refilled rows cost nothing but their prompt, which is more than
could be built.

    python benchmarks/refill.py --steps 10
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np

from common import Stepper, add_arguments, load_config, make_base, markdown, write_json
from prorl import build
from prorl.control.plan import hparams_at, make_plan
from prorl.local import engine
from prorl.local.decoder import FEWEST_ROWS

WARM = 3  # steps before anything is counted
SHARES = (1.0, 0.9, 0.8, 0.6, 0.5)  # of a worker's responses, taken at first
REFILL_BELOW = (0.9, 0.75, 0.5)  # of these, still being written


@dataclass(slots=True)
class Watched:
    """Costs of decoding and the lengths of what was decoded."""

    tokens: list[tuple[int, int, float]] = field(
        default_factory=list
    )  # rows, length, CPU seconds of one token
    starts: list[tuple[int, float]] = field(default_factory=list)  # prompts, CPU seconds
    waves: list[dict[int, int]] = field(default_factory=list)  # row → length of the response

    def wave(self) -> type[engine.Wave]:
        """A `Wave` that is watched."""
        watched = self

        class WatchedWave(engine.Wave):
            def __init__(self, *args: Any, **options: Any) -> None:
                begin = time.thread_time()
                super().__init__(*args, **options)
                prompts = len(set(self._prompt_of))
                watched.starts.append((prompts, time.thread_time() - begin))
                watched.waves.append(dict.fromkeys(range(len(self._rows)), 0))

            def _next_token(self) -> list[tuple[int, bool]]:
                begin = time.thread_time()
                finished = super()._next_token()
                spent = time.thread_time() - begin
                watched.tokens.append((len(self._slot_rows), self._length, spent))
                for slot, _ in finished:
                    watched.waves[-1][self._slot_rows[slot]] = self._length
                return finished

        return WatchedWave


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds, by least squares: of a token `token @ (1, rows, rows * length)`, of a start `start @ (1, prompts)`."""

    token: np.ndarray
    start: np.ndarray

    @classmethod
    def fitted(cls, watched: Watched) -> Costs:
        """Costs that explain what was watched best."""
        tokens = np.array([(1, rows, rows * length) for rows, length, _ in watched.tokens])
        starts = np.array([(1, prompts) for prompts, _ in watched.starts])
        return cls(
            token=np.linalg.lstsq(tokens, np.array([cost for *_, cost in watched.tokens]))[0],
            start=np.linalg.lstsq(starts, np.array([cost for _, cost in watched.starts]))[0],
        )

    def of_token(self, rows: int, length: int) -> float:
        """Seconds in which `rows` responses, the longest of this length, get one more token."""
        rows = max(rows, FEWEST_ROWS)
        return float(self.token @ (1, rows, rows * length))

    def of_wave(self, groups: Sequence[Sequence[int]]) -> float:
        """Seconds of a worker that decodes these response lengths as the engine does: until the last has ended."""
        left = slots = sum(map(len, groups))
        ends, at = sorted(length for group in groups for length in group), 0
        seconds = float(self.start @ (1, len(groups))) if groups else 0.0
        while left:
            at += 1
            seconds += self.of_token(slots, at)
            left = sum(end > at for end in ends)
            if left <= engine._COMPACT_BELOW * slots:
                slots = left
        return seconds

    def of_refilling(
        self, groups: Sequence[Sequence[int]], workers: int, share: float, below: float
    ) -> float:
        """Seconds until the last worker has ended, where each takes a share of its part at first, then refills."""
        first = max(1, round(len(groups) / workers * share))
        waiting = [list(group) for group in groups]
        clocks, writing = [0.0] * workers, [[] for _ in range(workers)]  # type: ignore[var-annotated]

        def take(worker: int, count: int) -> None:
            taken, waiting[:count] = waiting[:count], []
            writing[worker] += [[0, length] for group in taken for length in group]
            clocks[worker] += float(self.start[1]) * len(taken)

        for worker in range(workers):
            take(worker, first)
            clocks[worker] += float(self.start[0])
        least = below * len(writing[0])
        while busy := [worker for worker in range(workers) if writing[worker]]:
            worker = min(busy, key=clocks.__getitem__)
            rows = writing[worker]
            clocks[worker] += self.of_token(len(rows), max(at for at, _ in rows) + 1)
            writing[worker] = [[at + 1, end] for at, end in rows if at + 1 < end]
            while waiting and len(writing[worker]) < least:
                take(worker, 1)
        return max(clocks)


def groups_of(wave: dict[int, int], size: int) -> list[list[int]]:
    """Response lengths by prompt."""
    lengths = list(wave.values())
    return [lengths[begin : begin + size] for begin in range(0, len(lengths), size)]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--workers", type=int, default=2, help="workers of the calculation (default 2)")
    parser.add_argument("--steps", type=int, default=10, help="steps that are measured (default 10)")
    arguments = parser.parse_args(argv)
    arguments.threads = arguments.threads or 1
    config, watched = load_config(arguments, "workers=1"), Watched()
    tasks = build.build_tasks(config)
    parts = build.build_session(config, make_base(config), tasks=tasks)
    with parts, patch.object(engine, "Wave", watched.wave()):
        stepper, hparams = Stepper(parts, tasks, config.seed), hparams_at(make_plan(config), 0)
        for _ in range(WARM):
            stepper.step(hparams)
        for kept in (watched.tokens, watched.starts, watched.waves):
            kept.clear()  # type: ignore[attr-defined]
        for _ in range(arguments.steps):
            stepper.step(hparams)
    costs = Costs.fitted(watched)
    waves = [groups_of(wave, hparams.samples_per_prompt) for wave in watched.waves]
    now, even = [], []
    for groups in waves:
        bounds = [worker * len(groups) // arguments.workers for worker in range(arguments.workers + 1)]
        parted = [costs.of_wave(groups[begin:end]) for begin, end in pairwise(bounds)]
        now.append(max(parted))
        even.append(statistics.fmean(parted))
    rows = [("as it is", sum(now)), ("as it is, were both parts equal", sum(even))]
    for share in SHARES:
        by_threshold = {
            below: sum(costs.of_refilling(groups, arguments.workers, share, below) for groups in waves)
            for below in REFILL_BELOW
        }
        best = min(by_threshold, key=by_threshold.__getitem__)
        rows.append((f"{share:.0%} at first, refilled below {best:.0%} of these", by_threshold[best]))
    print(f"\n{arguments.workers} workers, seconds of generation per step, calculated\n")
    table = [
        (name, f"{seconds / arguments.steps:.3f}", f"{seconds / rows[0][1]:.0%}") for name, seconds in rows
    ]
    print(markdown(("", "s", "of as it is"), table))
    write_json(arguments.json, config, {"rows": rows, "token": costs.token.tolist()})


if __name__ == "__main__":
    main(sys.argv[1:])
