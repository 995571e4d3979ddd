"""How a run is doing, from its files alone: no lock is taken, nothing is loaded, the trainer notices nothing."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from prorl.control.events import Evaluated, Event, Started, Stepped, Stopped
from prorl.envs.files import decode_json
from prorl.run.heartbeat import WAITING, Beat, read_beat
from prorl.run.journal import read_events
from prorl.run.layout import CONFIG, HEARTBEAT, JOURNAL, LOCK

RECENT = 20  # steps over which the rate is taken
DECISIONS = 3
LOCK_WORDS = 4  # `process 123 on host`


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One run at a glance."""

    name: str
    # running, degraded, waiting, hung?, stopped, done, crashed, elsewhere, not begun, unreadable; with particulars
    health: str
    step: int = 0
    steps: int = 0
    steps_per_hour: float | None = None
    age: float | None = None  # seconds since the journal's last event
    exam: Evaluated | None = None
    decisions: tuple[Event, ...] = ()  # the last events that are neither steps nor exams


def runs_below(folder: Path) -> list[Path]:
    """Every run directory in a folder, by name."""
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}") if os.path.exists(path.parent / JOURNAL))


def status(folder: Path, *, now: float | None = None) -> Status:
    """How the run in `folder` is doing. What cannot be read is said in `health`."""
    try:
        return _status(folder, time.time() if now is None else now)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # also of a newer version
        return Status(name=folder.name, health=f"unreadable: {error!r}")


def _status(folder: Path, now: float) -> Status:
    config: dict[str, Any] = decode_json((folder / CONFIG).read_bytes())
    events, notes = read_events(folder / JOURNAL)
    written = (folder / JOURNAL).stat().st_mtime
    steps = [event for event in events if isinstance(event, Stepped)]
    exams = [event for event in events if isinstance(event, Evaluated)]
    seconds = [event.seconds["total"] for event in steps[-RECENT:]]
    stopped = events[-1].reason if events and isinstance(events[-1], Stopped) else None
    state = health(folder, begun=bool(events), stopped=stopped, now=now)
    return Status(
        name=folder.name,
        health="; ".join((state, *notes)),
        step=steps[-1].step if steps else 0,
        steps=int(config["steps"]),
        steps_per_hour=3600 / fmean(seconds) if seconds and sum(seconds) else None,
        age=max(0.0, now - written),
        exam=exams[-1] if exams else None,
        decisions=tuple(_decisions(events)),
    )


def _decisions(events: list[Event]) -> Iterator[Event]:
    told = [event for event in events if not isinstance(event, (Started, Stepped, Evaluated))]
    yield from told[-DECISIONS:]


def health(folder: Path, *, begun: bool, stopped: str | None, now: float) -> str:
    """How a run is, in a few words: `begun` if its journal holds events, `stopped` the reason if the last says so."""
    pid = holder(folder)
    if pid is not None:
        return _alive(pid, read_beat(folder / HEARTBEAT), now)
    if stopped is not None:
        return stopped if stopped == "done" else f"stopped: {stopped}"
    host = _host(folder)
    if begun and host not in ("", socket.gethostname()):
        return f"elsewhere: last written {_silence(folder, now)} by {host}"
    return "crashed" if begun else "not begun"


def _host(folder: Path) -> str:
    """The machine of the last trainer. Its lock may not reach here, and its processes do not: only files tell."""
    try:
        words = (folder / LOCK).read_text(errors="replace").split()
    except OSError:
        return ""
    return words[-1] if len(words) == LOCK_WORDS else ""


def _silence(folder: Path, now: float) -> str:
    written = 0.0
    for path in (folder / JOURNAL, folder / HEARTBEAT):
        with suppress(OSError):
            written = max(written, path.stat().st_mtime)
    return f"{max(0.0, now - written):,.0f} s ago"


def _alive(pid: int, beat: Beat | None, now: float) -> str:
    where = f"process {pid}" if pid else "a process"
    if beat is None or beat.pid != pid:
        return f"running: {where}"
    if now - beat.at > beat.deadline:
        return f"hung? {where} has been silent for {now - beat.at:.0f} s in phase {beat.phase}"
    if beat.trouble:
        return f"degraded: {beat.trouble}; {where}, {beat.phase}"
    return f"{'waiting' if beat.phase == WAITING else 'running'}: {where}, {beat.phase}"


def holder(folder: Path) -> int | None:
    """The process that holds a run's lock, 0 where the lock does not say which; None where nobody is seen to.

    Some mounted directories have no locks: there nobody is ever seen.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        words = os.pread(descriptor, 200, 0).split()
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None
