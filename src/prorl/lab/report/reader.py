"""One run's files as compact columns of numbers, read on: each refresh reads only what the journal gained.

Whatever the journal holds, a page can be made of it: what cannot be understood is left out and said in `notes`.
No lock is taken and nothing heavy is imported, so a dashboard may hold many of these.
"""

from __future__ import annotations

import math
import os
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

from prorl.control.events import (
    Evaluated,
    Event,
    Intervened,
    Ordered,
    ReferenceReset,
    Resumed,
    StageEntered,
    Started,
    Stepped,
    Stopped,
    Tally,
    Warned,
)
from prorl.envs.files import decode_json
from prorl.lab.watch.lines import line as in_words
from prorl.run.journal import UNFINISHED, EventReader
from prorl.run.layout import CONFIG, JOURNAL
from prorl.run.status import health
from prorl.types import UpdateStats

TAIL = 4096  # bytes before the place read up to; if they changed, the journal is another one

KINDS: Mapping[type[Event], str] = {
    ReferenceReset: "reset",
    StageEntered: "stage",
    Intervened: "intervention",
    Ordered: "order",
    Resumed: "resume",
    Stopped: "stop",
    Warned: "warning",
}


class Columns:
    """Numbers by step: an array per dotted name, as `tally.score`, as long as `steps`; NaN where there is none."""

    __slots__ = ("_values", "steps")

    def __init__(self) -> None:
        self.steps = array("q")
        self._values: dict[str, array[float]] = {}

    def append(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a row."""
        for name in numbers.keys() - self._values.keys():
            self._values[name] = array("d", [math.nan]) * len(self.steps)
        self.steps.append(step)
        for name, column in self._values.items():
            column.append(numbers.get(name, math.nan))

    def get(self, name: str) -> Sequence[float]:
        """A column; NaN all along where no row ever had it."""
        column = self._values.get(name)
        return array("d", [math.nan]) * len(self.steps) if column is None else column

    def names(self) -> list[str]:
        """Of all columns, sorted."""
        return sorted(self._values)

    def below(self, prefix: str) -> list[str]:
        """What follows `prefix` and a dot in the names of columns, sorted: `below("tally.domain_scores")`."""
        return [name[len(prefix) + 1 :] for name in self.names() if name.startswith(f"{prefix}.")]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at a step and is neither step nor exam."""

    step: int
    kind: str  # reset, stage, intervention, roll back, order, resume, stop, warning
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a run's files said at the last refresh. Its columns are the reader's own: they grow with the next one."""

    name: str
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)  # as stored, perhaps by another version
    steps: Columns = field(default_factory=Columns)  # fields of `Stepped`
    exams: Columns = field(default_factory=Columns)  # fields of `Evaluated`
    marks: tuple[Mark, ...] = ()
    references: int = 0  # held so far, the first one included
    origins: tuple[Event, ...] = ()  # births of references, starts and branches: what a lineage is told from
    stopped: str | None = None  # why the run ended, if its last event says so
    health: str = "not begun"
    written: float | None = None  # wall clock of the last event
    notes: tuple[str, ...] = ()  # what could not be read


class RunReader:
    """Follows one run directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config: dict[str, Any] = {}
        self._config_stamp: tuple[int, int] | None = None
        self._forget()
        self.run = RunRecord(name=folder.name, folder=folder)

    def refresh(self) -> bool:
        """Read what is new; returns whether `run` says anything else than before."""
        before = self.run.config, self.run.health, self.run.notes
        grown = self._read_journal()
        unfinished = (UNFINISHED,) if self._unfinished else ()
        notes = (*self._read_config(), *self._events.notes, *unfinished)
        state = health(self._folder, begun=self._begun, stopped=self._stopped, now=time.time())
        if not grown and (self._config, state, notes) == before:
            return False
        self.run = RunRecord(
            name=self._folder.name,
            folder=self._folder,
            config=self._config,
            steps=self._steps,
            exams=self._exams,
            marks=tuple(self._marks),
            references=self._references,
            origins=tuple(self._origins),
            stopped=self._stopped,
            health=state,
            written=self._written,
            notes=notes,
        )
        return True

    def _forget(self) -> None:
        self._end = 0  # bytes read
        self._tail = b""  # the last of them
        self._inode = 0
        self._written: float | None = None
        self._steps, self._exams = Columns(), Columns()
        self._marks: list[Mark] = []
        self._references = 0
        self._begun = False
        self._stopped: str | None = None
        self._origins: list[Event] = []
        self._events = EventReader()
        self._unfinished = False

    def _read_config(self) -> list[str]:
        try:
            found = (self._folder / CONFIG).stat()
            stamp = found.st_ino, found.st_mtime_ns
            if stamp != self._config_stamp:
                config = decode_json((self._folder / CONFIG).read_bytes())
                self._config = config if isinstance(config, dict) else {}
                self._config_stamp = stamp
        except (OSError, ValueError) as error:
            return [f"{CONFIG} cannot be read: {error}"]
        return []

    def _read_journal(self) -> bool:
        """Take in the lines that are new; whether there were any, or the journal became another one."""
        try:
            with (self._folder / JOURNAL).open("rb") as file:
                restarted = not self._goes_on(file)
                if restarted:
                    self._forget()
                found = os.fstat(file.fileno())
                self._inode, self._written = found.st_ino, found.st_mtime
                return self._take_lines(file) or restarted
        except OSError:
            gone = self._end > 0
            self._forget()
            return gone

    def _goes_on(self, file: BufferedReader) -> bool:
        """Whether the journal still begins with what was read: a roll back or a resume cuts it and writes anew."""
        if self._end == 0:
            return True
        file.seek(self._end - len(self._tail))
        return os.fstat(file.fileno()).st_ino == self._inode and file.read(len(self._tail)) == self._tail

    def _take_lines(self, file: BufferedReader) -> bool:
        file.seek(self._end)
        start = self._end
        self._unfinished = False
        for line in file:
            if not line.endswith(b"\n"):
                self._unfinished = True
                break
            self._take(line)
            self._end += len(line)
            self._tail = (self._tail + line)[-TAIL:]
        return self._end > start

    def _take(self, line: bytes) -> None:
        self._begun, self._stopped = True, None
        event = self._events.take(line)
        try:
            if isinstance(event, (Stepped, Evaluated)):
                table = self._steps if isinstance(event, Stepped) else self._exams
                table.append(event.step, dict(_numbers(event)))
            elif event is not None:
                self._take_event(event)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):  # values of another kind
            self._events.leave_out(getattr(event, "kind", None))

    def _take_event(self, event: Event) -> None:
        if isinstance(event, (Started, Resumed, ReferenceReset)):
            self._origins.append(event)
        if isinstance(event, Started):
            self._references += event.reference_hash is not None
            return
        rolled_back = isinstance(event, Intervened) and event.action == "roll_back"
        self._references += isinstance(event, ReferenceReset)
        self._stopped = event.reason if isinstance(event, Stopped) else None
        kind = "roll back" if rolled_back else KINDS[type(event)]
        self._marks.append(Mark(step=event.step, kind=kind, text=in_words(event, 0)))


def read_run(folder: Path) -> RunRecord:
    """A run as it is now."""
    reader = RunReader(folder)
    reader.refresh()
    return reader.run


def _numbers(record: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number in an event, by dotted name."""
    plain = isinstance(record, dict)
    for key, value in record.items() if plain else ((key, getattr(record, key)) for key in record.__slots__):
        if isinstance(value, (dict, Tally, UpdateStats)):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)
