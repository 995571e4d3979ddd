"""A trainer's process: its heartbeat, the signals that ask it to stop, and what memory there is."""

import faulthandler
import json
import math
import os
import re
import signal
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TypeVar

from prorl.config.schema import DeadlinesConfig
from prorl.control.detectors import degraded
from prorl.control.events import Event
from prorl.control.plan import Plan
from prorl.control.state import RunState
from prorl.envs.errors import ProrlError
from prorl.envs.files import NoRoomError
from prorl.rollout.pipeline import WaitEnded
from prorl.run.layout import HEARTBEAT, LOG, STACKS
from prorl.run.supervise import AT_ONCE, INTERRUPTED, NO_MEMORY, STOP_SIGNALS, WHERE, Beat, stop_signals
from prorl.stopwatch import BETWEEN, WAITING, Stopwatch, unheard

T = TypeVar("T")

SIZE = 512  # bytes of the heartbeat; one write of so few is never seen half done
DURATIONS = 32  # remembered per phase

BLINK = 0.2  # seconds between two looks at the request to stop while waiting
ECHO = 0.5  # seconds in which a signal again is the same one: a scheduler and the supervisor both send it
RETRY = 30.0  # seconds between two tries on a full disk

CGROUP, GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def deadline(deadlines: DeadlinesConfig, phase: str, durations: Collection[float]) -> float:
    """Seconds that a phase may be silent which lately took so long; no end where the recipe names none: `waiting`."""
    usual = deadlines.factor * median(durations) if durations else 0.0
    return max(getattr(deadlines, phase, math.inf), usual)


class Heartbeat:
    """Writes which phase the trainer is in, since when, and how long that may take: at every sign of life.

    The file has a fixed size and is written over in place, so a full disk cannot make a healthy trainer look dead.
    """

    def __init__(self, path: Path, deadlines: DeadlinesConfig, *, step: int = 0) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        self._deadlines = deadlines
        self._durations: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=DURATIONS))
        self._since = time.monotonic()
        self._beat = Beat(pid=os.getpid(), count=0, phase=BETWEEN, deadline=math.inf, step=step, at=0.0)
        self(BETWEEN)

    def __call__(self, phase: str) -> None:
        """`phase` begins now."""
        now, before = time.monotonic(), self._beat
        self._durations[before.phase].append(now - self._since)
        ends, self._since = deadline(self._deadlines, phase, self._durations[phase]), now
        self._beat = replace(before, count=before.count + 1, phase=phase, deadline=ends, at=time.time())
        self._write()

    def follow(self, plan: Plan, _event: Event, state: RunState) -> None:
        """From now on report this state's step, and whether the policy is degraded."""
        self._beat = replace(self._beat, step=state.step, trouble=degraded(plan, state))

    def close(self) -> None:
        """Say that the trainer ends by itself, and write no more."""
        self._beat = replace(self._beat, ends=True)
        self._write()
        os.close(self._file)

    def _write(self) -> None:
        with suppress(OSError):  # a trainer that cannot say so is still alive
            os.pwrite(self._file, json.dumps(asdict(self._beat)).encode().ljust(SIZE), 0)


@contextmanager
def alive(folder: Path, deadlines: DeadlinesConfig, *, step: int = 0) -> Iterator[Heartbeat]:
    """Write the heartbeat of a run while inside, on request where all threads are (`stacks.txt`), and a bug that ends
    the block to the supervisor's log."""
    heartbeat = Heartbeat(folder / HEARTBEAT, deadlines, step=step)
    stacks = folder / STACKS
    try:
        with stacks.open("w") as file, ExitStack() as registered:
            for kind, dies in ((WHERE, False), (AT_ONCE, True)):
                faulthandler.register(kind, file=file, all_threads=True, chain=dies)
                registered.callback(faulthandler.unregister, kind)
            if not faulthandler.is_enabled():
                faulthandler.enable(file)
                registered.callback(faulthandler.disable)
            yield heartbeat
    except ProrlError:
        raise
    except Exception:
        with suppress(OSError), (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {traceback.format_exc()}")
        raise
    finally:
        heartbeat.close()
        if stacks.exists() and not stacks.stat().st_size:
            stacks.unlink()


class Interrupt:
    """Turns the first Ctrl-C, SIGTERM, SIGHUP or SIGUSR1 into a request to stop that the loop grants after a step.

    The second Ctrl-C ends at once. `status` is the exit status that goes with the request.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.heartbeat: Heartbeat | None = None  # of the trainer, once there is one
        self.status = INTERRUPTED
        self._say = say
        self._asked: float | None = None  # when
        self.is_listening = False
        self.begun = False  # whether the run has been begun or taken up again

    def __call__(self) -> bool:
        """Whether somebody asked to stop."""
        return self._asked is not None

    def wait(self, reason: str, seconds: float) -> None:
        """Say why, if a reason is given, and let the seconds pass; WaitEnded if somebody asks to stop."""
        if reason:
            self._say(reason)
        with Stopwatch(self.heartbeat or unheard).phase(WAITING):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if self():
                    raise WaitEnded
                time.sleep(BLINK)

    def stop_for_memory(self) -> None:
        """Ask to stop before the system kills somebody."""
        self._asked, self.status = time.monotonic(), NO_MEMORY

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to signals while inside; in a thread of the caller's own, which hears none, only seem to."""
        kinds = stop_signals() if threading.current_thread() is threading.main_thread() else ()
        before = {kind: signal.signal(kind, self._handle) for kind in kinds}
        self.is_listening = True
        try:
            yield
        finally:
            self.is_listening = False
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked is None or self.status == NO_MEMORY:  # which nobody asked for
            self._asked, self.status = now, STOP_SIGNALS[signal.Signals(number)]
            self._say("stopping after this step and saving; press Ctrl-C again to stop at once, unsaved")
        elif number == signal.SIGINT and now - self._asked > ECHO:
            raise KeyboardInterrupt


def retry_on_full_disk(write: Callable[[], T], interrupt: Interrupt | None) -> T:
    """Write; on a full disk wait for somebody to make room, and write again.

    NoRoomError if there is no `interrupt`, if it does not listen (the run has not begun), or if a stop is asked.
    """
    while True:
        try:
            return write()
        except NoRoomError as error:
            if interrupt is None or not interrupt.is_listening:
                raise
            try:
                interrupt.wait(f"paused: {error}; trying again in {RETRY:.0f} s", RETRY)
            except WaitEnded:
                return write()  # there may be room by now


def machine_memory() -> tuple[int, int]:
    """Bytes of memory there are, and that could still be used: the machine's, or its container's if that has less."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    memory = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
    total, available = memory["MemTotal"], memory["MemAvailable"]
    own = re.search("^0::/(.*)", GROUPS.read_text(), re.MULTILINE) if GROUPS.exists() else None
    inner = CGROUP / (own[1] if own else "")  # a job's is deeper than a container's
    for group in (inner, *(parent for parent in inner.parents if parent.is_relative_to(CGROUP))):
        with suppress(OSError, ValueError, KeyError):  # no limit, which then reads "max"
            limit = int((group / "memory.max").read_text())
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            # The kernel would give back the file cache.
            cache = int(stat["inactive_file"]) + int(stat["active_file"])
            charged = int((group / "memory.current").read_text()) - cache
            total, available = min(total, limit), min(available, limit - charged)
    return total, available
