"""A trainer's sign of life: which phase it is in, since when, and how long that may take.

The trainer writes it at every change of phase; its supervisor and `prorl status` read it. The file has a fixed
size and is written over in place, so that a full disk cannot make a healthy trainer look dead.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from prorl.control.detectors import degraded
from prorl.control.events import Event
from prorl.control.plan import Plan
from prorl.control.state import RunState
from prorl.stopwatch import BETWEEN

SIZE = 512  # bytes; one write of so few is never seen half done
DURATIONS = 32  # remembered per phase
WAITING = "waiting"  # for verifiers, an operator or the disk: on purpose, so without end


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds that a phase may be silent: at least `least`, and `factor` times its median where that is more.

    A phase that `least` does not name, as `waiting`, has all the time in the world.
    """

    least: Mapping[str, float]
    factor: float = 20.0

    def of(self, phase: str, durations: Collection[float]) -> float:
        """The deadline of a phase that lately took so many seconds; `waiting` has none."""
        usual = self.factor * median(durations) if durations else 0.0
        return max(self.least.get(phase, float("inf")), usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One sign of life."""

    pid: int
    count: int  # of phases so far: two equal beats are one
    phase: str
    deadline: float  # seconds
    step: int  # completed steps
    at: float  # wall clock, for people
    trouble: str = ""  # what says that the policy no longer works


class Heart:
    """Writes the beats; a `stopwatch.Pulse`."""

    def __init__(self, path: Path, deadlines: Deadlines, *, step: int = 0) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        self._deadlines = deadlines
        self._durations: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=DURATIONS))
        self._count = 0
        self._phase = BETWEEN
        self._since = time.monotonic()
        self._step = step
        self._trouble = ""
        self(BETWEEN)

    def __call__(self, phase: str) -> None:
        """Beat: `phase` begins now."""
        now = time.monotonic()
        self._durations[self._phase].append(now - self._since)
        self._phase, self._since, self._count = phase, now, self._count + 1
        beat = Beat(
            pid=os.getpid(),
            count=self._count,
            phase=phase,
            deadline=self._deadlines.of(phase, self._durations[phase]),
            step=self._step,
            at=time.time(),
            trouble=self._trouble,
        )
        with suppress(OSError):  # a trainer that cannot say so is still alive
            os.pwrite(self._file, json.dumps(asdict(beat)).encode().ljust(SIZE), 0)

    def follow(self, plan: Plan, _event: Event, state: RunState) -> None:
        """With the plan a `recorder.Watcher`: from now on say this step, and whether the policy is degraded."""
        self._step, self._trouble = state.step, degraded(plan, state)

    def close(self) -> None:
        """Stop beating."""
        os.close(self._file)


def read_beat(path: Path) -> Beat | None:
    """The last beat; None where there is none to read."""
    try:
        return Beat(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


class Vigil:
    """Tells a hang from work: how long one beat has been the last, in time during which we were awake ourselves.

    Time is what the caller saw pass, so neither a jump of the clock nor a machine that slept condemns a trainer.
    """

    def __init__(self) -> None:
        self._last: Beat | None = None
        self._quiet = 0.0

    def overdue(self, beat: Beat, passed: float) -> bool:
        """Take in what is the last beat after `passed` more seconds."""
        self._quiet = self._quiet + passed if beat == self._last else 0.0
        self._last = beat
        return self._quiet > beat.deadline
