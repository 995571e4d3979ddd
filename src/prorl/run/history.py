"""A run as its files tell it: the one reader of a run directory for everybody who only reads.

No lock is taken and nothing heavy is imported, so a trainer may go on meanwhile and a dashboard may hold many of
these. Each refresh reads only what the journal gained. Whatever the files hold, something can be shown: what cannot
be understood is left out and said in `notes`.
"""

import math
import os
import socket
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from prorl.control import events
from prorl.control.metrics import computed, step_line
from prorl.control.state import RunState, evolve
from prorl.envs.files import StorageError
from prorl.run import layout
from prorl.run.checkpoint import intact
from prorl.run.journal import Chain, DamagedLineError
from prorl.run.layout import CONFIG, HEARTBEAT, JOURNAL, REFERENCES
from prorl.run.store import FIRST_REFERENCE
from prorl.run.supervise import read_beat
from prorl.stopwatch import WAITING
from prorl.types import UpdateStats

E = TypeVar("E", bound=events.Event)

UNFINISHED = "the last line of the journal is not whole: it is being written, or a crash tore it"
NO_PENALTY = "the run pays no KL penalty"
TAIL = 4096  # bytes before the place read up to; if they changed, the journal is another one
_STEP = b'{"kind":"%s"' % events.Stepped.kind.encode()  # how the line of a step begins
RECENT = 20  # steps over which the end of a run is averaged

KINDS: Mapping[type[events.Event], str] = {
    events.ReferenceReset: "reset",
    events.StageEntered: "stage",
    events.LevelRaised: "level",
    events.Intervened: "intervention",
    events.CommandGiven: "command",
    events.Resumed: "resume",
    events.Stopped: "stop",
    events.Warned: "warning",
}


class Columns:
    """Numbers by step: an array per dotted name, as `rollout_stats.score`; NaN where a step has none."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.values: dict[str, array[float]] = {}

    def append(self, numbers: dict[str, float]) -> None:
        """Add a row, of which `step` is one number."""
        step = int(numbers.pop("step"))
        for name in numbers.keys() - self.values.keys():
            self.values[name] = array("d", [math.nan]) * len(self.steps)
        self.steps.append(step)
        for name, column in self.values.items():
            column.append(numbers.get(name, math.nan))

    def get(self, name: str) -> Sequence[float]:
        """A column; NaN all along where no row ever had it."""
        return self.values.get(name, array("d", [math.nan]) * len(self.steps))

    def recent(self, name: str) -> list[float]:
        """The finite values of the last `RECENT` rows."""
        return [value for value in self.get(name)[-RECENT:] if math.isfinite(value)]

    def total(self, name: str) -> float:
        """The sum of a column's finite values."""
        return sum(value for value in self.get(name) if math.isfinite(value))

    def below(self, prefix: str) -> list[str]:
        """What follows `prefix` and a dot in the names of columns, sorted: `below("rollout_stats.domain_scores")`."""
        return sorted(name[len(prefix) + 1 :] for name in self.values if name.startswith(f"{prefix}."))

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at a step and is neither step nor validation."""

    step: int
    kind: str  # reset, stage, level, intervention, roll back, command, resume, stop, warning
    text: str


class _Lines:
    """Turns a journal's lines into events, and keeps notes of what is passed over."""

    def __init__(self) -> None:
        self.chain = Chain()
        self._damaged: list[str] = []
        self._newer: Counter[str] = Counter()  # kind of event → how many are not understood

    def take(self, line: bytes) -> events.Event | None:
        """The event of the next whole line, without fields that this version does not know."""
        record: Mapping[str, Any] = {}
        try:
            record = self.chain.take(line)
            return events.from_record(record, strict=False)
        except DamagedLineError as error:
            self._damaged.append(str(error))
        except ValueError:
            self.leave_out(record.get("kind"))
        return None

    def leave_out(self, kind: object) -> None:
        """Note an event that is not understood."""
        self._newer[repr(kind)] += 1

    @property
    def notes(self) -> Iterator[str]:
        """What was passed over, a sentence for each cause."""
        if self._damaged:
            more = f", and {len(self._damaged) - 1:,} more lines" if self._damaged[1:] else ""
            yield self._damaged[0] + more
        if self._newer:
            newer = ", ".join(f"{number:,} of kind {kind}" for kind, number in sorted(self._newer.items()))
            yield f"events that a newer prorl wrote are left out: {newer}"


class RunHistory:
    """Follows one run directory; `refresh` first, or get one from `read_history`."""

    def __init__(self, folder: Path, *, up_to: float = math.inf, brief: bool = False) -> None:
        """`up_to`: what came after this step is left out. `brief`: of the steps only the last are looked at."""
        self.folder = folder
        self.name = folder.resolve().name
        self.config: Mapping[str, Any] = {}  # as stored, perhaps by another version
        self.health = "not begun"  # as `health` says it
        self.notes: tuple[str, ...] = ()  # what could not be read
        self._up_to = up_to
        self._brief = brief
        self._forget()

    def refresh(self) -> bool:
        """Read what is new; returns whether anything but the health is told otherwise than before."""
        before, notes = (self.config, self.notes), []
        grown = self._read_journal()
        try:
            self.config = layout.read_config(self.folder)
        except (OSError, ValueError) as error:
            self.config = {}
            notes.append(f"{CONFIG} cannot be read: {error}")
        self.notes = (*notes, *self._lines.notes, *([UNFINISHED] if self._unfinished else ()))
        begun, now = self._lines.chain.size > 0, time.time()
        self.health = health(self.folder, begun=begun, stopped=self.stopped, paused=self.told.paused, now=now)
        return grown or (self.config, self.notes) != before

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order; steps are kept as columns only."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def state(self) -> str:
        """How the run is doing, and what could not be read."""
        return "; ".join((self.health, *self.notes))

    @property
    def step(self) -> int:
        """Completed steps."""
        return max(self.steps.steps, default=0)

    @property
    def planned(self) -> int:
        """Steps of the whole run; 0 if its recipe cannot be read."""
        steps = self.config.get("steps")
        return steps if isinstance(steps, int) else 0

    @property
    def steps_per_hour(self) -> float | None:
        """Lately."""
        seconds = [value for value in self.steps.recent("seconds.total") if value > 0]
        return 3600 * len(seconds) / sum(seconds) if seconds else None

    @property
    def best(self) -> events.Validated | None:
        """The validation that the run holds to be its best, of those that can be compared with the last one."""
        held = self.told.best_step, self.told.best_score
        return next((one for one in self.of(events.Validated) if (one.step, one.score) == held), None)

    @property
    def references(self) -> list[events.ReferenceReset]:
        """Every reference the run ever held, in order of birth; the first was born without a reset."""
        base: Any = {"name": FIRST_REFERENCE, "parent": "", "reason": "start", "target": "current"}
        first = [
            events.ReferenceReset(step=0, source_step=0, optimizer="new", hash=started.reference_hash, **base)
            for started in self.of(events.Started)
            if started.reference_hash is not None
        ]
        return [*first, *self.of(events.ReferenceReset)]

    @property
    def branches(self) -> list[str]:
        """The runs that this one branched from as `run@step`, the oldest first."""
        return [event.branched_from for event in self.of(events.Resumed) if event.branched_from]

    def condition(self, born: events.ReferenceReset) -> str:
        """Whether a reference is still on disk as it was born: `stored`, `deleted` or `damaged`."""
        path = self.folder / REFERENCES / born.name
        if not path.exists():
            return "deleted"
        found = intact(path)
        return "stored" if found and found.digest == born.hash else "damaged"

    def _forget(self) -> None:
        self._tail = b""  # the last bytes read
        self._inode = 0
        self._unfinished = False
        self._lines = _Lines()
        self.written: float | None = None  # wall clock of the last event
        self.steps = Columns()  # numbers of `Stepped`, and those that `metrics` computes from it
        self.validations = Columns()  # numbers of `Validated`
        self.events: list[events.Event] = []  # all but steps
        self.told = RunState()  # what these lead to: the trainer's own state but for what steps change
        self.marks: list[Mark] = []
        self.stopped: str | None = None  # why the run ended, if its last event says so

    def _read_journal(self) -> bool:
        """Take in the lines that are new; whether there were any, or the journal became another one."""
        start, restarted = self._lines.chain.size, False
        try:
            with (self.folder / JOURNAL).open("rb") as file:
                found = os.fstat(file.fileno())
                # A roll back or a resume cuts the journal and writes anew.
                file.seek(start - len(self._tail))
                same = found.st_ino == self._inode and file.read(len(self._tail)) == self._tail
                restarted = start > 0 and not same
                if restarted:
                    self._forget()
                    file.seek(0)
                self._inode, self.written, self._unfinished = found.st_ino, found.st_mtime, False
                lines = file.readlines() if self._brief else []
                steps = [number for number, line in enumerate(lines) if line.startswith(_STEP)]
                passed = set(steps[:-RECENT])
                for number, line in enumerate(lines if self._brief else file):
                    if not line.endswith(b"\n"):
                        self._unfinished = True
                        break
                    self._tail = (self._tail + line)[-TAIL:]
                    if number in passed:
                        self._lines.chain.skip(line)
                    else:
                        self._take(line)
        except OSError:
            self._forget()
        return restarted or self._lines.chain.size != start

    def _take(self, line: bytes) -> None:
        event = self._lines.take(line)
        self.stopped = event.reason if isinstance(event, events.Stopped) else None
        if event is None:
            return
        try:
            if getattr(event, "step", 0) > self._up_to:
                return
            if isinstance(event, events.Stepped):
                self.steps.append({**_numbers(event), **computed(event)})
                return
            self.told = evolve(self.told, event)
            if isinstance(event, events.Resumed) and event.branched_from and not event.same_validation:
                self.validations = Columns()  # its parent's asked something else
                self.events = [one for one in self.events if not isinstance(one, events.Validated)]
            if isinstance(event, events.Validated):
                self.validations.append(_numbers(event))
            elif not isinstance(event, events.Started):
                rolled_back = isinstance(event, events.Intervened) and event.action == "roll_back"
                kind = "roll back" if rolled_back else KINDS[type(event)]
                self.marks.append(Mark(step=event.step, kind=kind, text=describe(event)))
            self.events.append(event)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):  # values of another kind
            self._lines.leave_out(event.kind)


def read_history(folder: Path, *, up_to: int | None = None, brief: bool = False) -> RunHistory:
    """The run in `folder` as it is now, up to and with the step `up_to`; StorageError if there is none."""
    layout.require_run(folder)
    history = RunHistory(folder, up_to=math.inf if up_to is None else up_to, brief=brief)
    history.refresh()
    return history


def read_events(folder: Path) -> Iterator[events.Event]:
    """All events of a run, steps too, as far as they can be understood; StorageError if none can be read."""
    lines = _Lines()
    try:
        with (folder / JOURNAL).open("rb") as file:
            for line in file:
                if line.endswith(b"\n") and (event := lines.take(line)) is not None:
                    yield event
    except OSError as error:
        raise StorageError(f"{folder} holds no run that can be read ({error}): check the name") from error


def _numbers(record: Any) -> dict[str, float]:
    """Every number in an event, by dotted name."""
    found: dict[str, float] = {}
    plain = isinstance(record, dict)
    for key, value in record.items() if plain else ((key, getattr(record, key)) for key in record.__slots__):
        if isinstance(value, (dict, events.RolloutStats, UpdateStats)):
            found |= {f"{key}.{name}": number for name, number in _numbers(value).items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[key] = float(value)
    return found


def health(folder: Path, *, begun: bool, stopped: str | None, now: float, paused: str | None = None) -> str:
    """How a run is doing, and why: running, paused, degraded, waiting, hung?, stopped, done, crashed, elsewhere or
    not begun.

    `begun`: its journal has events; `stopped`, `paused`: why, if the journal says so.
    """
    pid = layout.holder(folder)
    if pid is not None:
        where, beat = f"process {pid}" if pid else "a process", read_beat(folder)
        if beat is None or beat.pid != pid:
            return f"running: {where}"
        if now - beat.at > beat.deadline:
            return f"hung? {where} has been silent for {now - beat.at:.0f} s in phase {beat.phase}"
        if beat.phase == WAITING and paused:
            return f"paused: {paused}" + (f"; {beat.trouble}" if beat.trouble else "")
        if beat.trouble:
            return f"degraded: {beat.trouble}; {where}, {beat.phase}"
        return f"{'waiting' if beat.phase == WAITING else 'running'}: {where}, {beat.phase}"
    if stopped is not None:
        return stopped if stopped == "done" else f"stopped: {stopped}"
    _, host = layout.last_holder(folder)
    if not begun or host in ("", socket.gethostname()):
        return "crashed" if begun else "not begun"
    written = 0.0  # neither its lock nor its processes may be seen here: only the files tell
    for path in (folder / JOURNAL, folder / HEARTBEAT):
        with suppress(OSError):
            written = max(written, path.stat().st_mtime)
    return f"elsewhere: last written {max(0.0, now - written):,.0f} s ago by {host}"


def describe(event: events.Event, steps: int = 0) -> str:
    """What happened, in one line; `steps` is the length of the run."""
    match event:
        case events.Started():
            held = "a reference is held" if event.reference_hash else f"no reference: {NO_PENALTY}"
            return f"started: recipe {event.config_hash}, {held}"
        case events.Resumed():
            origin = f", a branch of {event.branched_from}" if event.branched_from else ""
            return f"resumed from the checkpoint of step {event.step}{origin}"
        case events.Stepped():
            return step_line(event, steps)
        case events.Validated():
            domains = " ".join(f"{name} {value:.0%}" for name, value in event.domains.items())
            return (
                f"validation at step {event.step}: pass@1 {event.score:.1%} ({domains}), "
                f"pass@n {event.pass_at_n:.1%}, without answer {event.unanswered:.1%}, {event.seconds:.0f} s"
            )
        case events.ReferenceReset():
            return (
                f"reference reset at step {event.step} ({event.reason}): {event.parent} → {event.name}, "
                f"the policy of step {event.source_step}, optimizer {event.optimizer}"
            )
        case events.StageEntered():
            return f"stage {event.index + 1} entered at step {event.step}"
        case events.LevelRaised():
            return f"{event.task} goes on to level {event.level} at step {event.step}"
        case events.Intervened():
            return _intervention(event)
        case events.CommandGiven():
            settings = [f"{key}={value}" for key, value in event.settings.items()]
            told = " ".join([event.name, *settings, *([f"“{event.text}”"] if event.text else [])])
            if event.refused is not None:
                return f"command refused at step {event.step}: {told}: {event.refused}"
            return f"command at step {event.step}: {told}"
        case events.Stopped():
            return f"stopped after step {event.step}: {event.reason}"
        case events.Warned():
            return f"warning at step {event.step}: {event.text}"


def _intervention(event: events.Intervened) -> str:
    lowered = f"learning rate × {event.lr_scale:g} until step {event.lr_until}"
    rolled = f"rolled back from step {event.from_step} to the checkpoint of step {event.step}"
    done = {
        "warn": "warned only",
        "validation": "the policy is validated",
        "reset_reference": "the reference is reset",
        "lower_lr": lowered,
        "roll_back": rolled if event.lr_scale == 1 else f"{rolled}, {lowered}",
        "correct_mismatch": "corrected by icepop from here on",
        "pause": "paused",
        "stop": "stopped",
    }[event.action]
    numbers = " (threshold {threshold:g}, {hits:g} of {of_last:g})" if event.numbers else ""
    told = event.reason + numbers.format(**event.numbers)
    return f"{event.detector.upper()} at step {event.from_step or event.step}: {told}; {done}"
