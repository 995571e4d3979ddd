"""Memory and disk while a run goes on: where the trend leads, said early, and a stop before the machine dies."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from prorl.envs.files import free_bytes, readable

WINDOW = 64  # steps over which a trend is measured
FEWEST = 16  # steps from which on there is one
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """When to warn and when to stop. The zeros switch each off."""

    warn_steps: int = 200  # warn where the trend uses up memory or disk within so many steps
    repeat: int = 100  # steps before the same warning comes again
    memory_stop: float = 0.02  # share of the machine's memory that must stay available


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the machine has after a step, bytes."""

    step: int
    resident: int  # of this process
    available: int  # memory that could still be used
    total: int  # memory there is
    disk: int  # free on the run's disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to say; `stop` where going on would end badly."""

    text: str
    stop: bool = False


class Guard:
    """Remembers the samples of the last steps, and what was said about them."""

    def __init__(self, rules: GuardRules) -> None:
        self._rules = rules
        self._samples: deque[Sample] = deque(maxlen=WINDOW)
        self._said: dict[str, int] = {}  # about what → at which step

    def findings(self, sample: Sample) -> list[Finding]:
        """What there is to say after another step."""
        self._samples.append(sample)
        if sample.available < self._rules.memory_stop * sample.total:
            text = (
                f"memory is nearly used up: {readable(sample.available)} of {readable(sample.total)} are left and "
                f"the trainer holds {readable(sample.resident)}; stopping, saved"
            )
            return [Finding(text=text, stop=True)]
        memory = steps_left([s.resident for s in self._samples], sample.available)
        disk = steps_left([-s.disk for s in self._samples], sample.disk)
        found = {
            "memory": (memory, sample.available, f"the trainer holds {readable(sample.resident)} and grows"),
            "disk space": (disk, sample.disk, "checkpoints, references and samples fill it"),
        }
        return [
            Finding(text=f"{what} lasts for about {left:.0f} more steps: {readable(rest)} left, {why}")
            for what, (left, rest, why) in found.items()
            if left is not None and left < self._rules.warn_steps and self._again(what, sample.step)
        ]

    def _again(self, what: str, step: int) -> bool:
        due = what not in self._said or step >= self._said[what] + self._rules.repeat
        if due:
            self._said[what] = step
        return due


def steps_left(used: Sequence[int], rest: int) -> float | None:
    """In how many steps `rest` more bytes are used, at the rate of the last ones; None where use does not grow.

    `used` is by step, up to a constant. The slope is the lower quartile over all pairs of steps (Theil and Sen
    take the median), to which one or two jumps, such as checkpoints, are no trend.
    """
    if len(used) < FEWEST:
        return None
    slopes = sorted((b - a) / (j - i) for (i, a), (j, b) in combinations(enumerate(used), 2))
    slope = slopes[len(slopes) // 4]
    return rest / slope if slope > 0 else None


def take_sample(step: int, folder: Path) -> Sample:
    """What this process and its machine have now."""
    page = os.sysconf("SC_PAGE_SIZE")
    total, available = machine_memory()
    return Sample(
        step=step,
        resident=int(Path("/proc/self/statm").read_text().split()[1]) * page,
        available=available,
        total=total,
        disk=free_bytes(folder),
    )


def machine_memory() -> tuple[int, int]:
    """Bytes of memory there are, and that could still be used: the machine's, or its container's if that has less."""
    memory = _meminfo()
    total, available = memory["MemTotal"], memory["MemAvailable"]
    with suppress(OSError, ValueError):  # no limit of a container, which then reads "max"
        limit = int((CGROUP / "memory.max").read_text())
        if limit < total:
            return limit, min(available, limit - _charged())
    return total, available


def _meminfo() -> dict[str, int]:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def _charged() -> int:
    """Bytes of the container's memory in use, without the file cache that the kernel would give back."""
    stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    return int((CGROUP / "memory.current").read_text()) - int(stat["inactive_file"])
