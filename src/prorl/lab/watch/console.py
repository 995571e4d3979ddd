"""Runs on a terminal: a live panel with progress and a line for every event; all runs in a table.

Where there is no terminal, plain lines. Watching never changes a run.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.columns import Columns
from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from prorl.control.events import Event, Stepped, Validated
from prorl.control.metrics import STEP, text
from prorl.control.state import RunState
from prorl.lab import tables
from prorl.run.history import RunHistory, describe

PLAIN_PROGRESS_EVERY = 0.1  # of the total, between two plain lines
DECISIONS = 3  # shown of each run


class Console:
    """What the user sees; a watcher of the run's events."""

    def __init__(self, rich: RichConsole | None = None) -> None:
        self.rich = rich or tables.terminal()

    def say(self, text: str) -> None:
        """One line."""
        self.rich.print(text, markup=False)

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int, str], None]]:
        """Progress of something long: call the yielded function with (done, total, note)."""
        said = -1.0

        def advance(done: int, total: int, note: str) -> None:
            nonlocal said
            if done == total or done / total >= said + PLAIN_PROGRESS_EVERY:
                said = done / total
                self.say(f"{title}: {done}/{total} {note}")

        if not self.rich.is_terminal:
            yield advance
            return
        named, note = (TextColumn(f"{{task.{of}}}", markup=False) for of in ("description", "fields[note]"))
        with Progress(named, *_bar(), note, console=self.rich) as bar:
            task = bar.add_task(title, total=None, note="", visible=False)  # until there is something to do
            yield lambda done, total, note: bar.update(
                task, completed=done, total=total, note=note, visible=True
            )

    @contextmanager
    def counting(self, title: str) -> Iterator[Callable[[str, int], None]]:
        """Progress of something whose end nobody knows: call the yielded function with (what, done)."""
        with self.rich.status(title) as status:
            said = ""

            def advance(what: str, done: int) -> None:
                nonlocal said
                status.update(Text(f"{title} {what}: {done:,}"))
                if not self.rich.is_terminal and what != said:
                    said = what
                    self.say(f"{title} {what}")

            yield advance

    @contextmanager
    def live(self, steps: int) -> Iterator[Callable[[Event, RunState], None]]:
        """Follow a run of `steps` steps: yields the watcher."""
        if not self.rich.is_terminal:
            yield lambda event, _state: self.say(describe(event, steps))
            return
        panel = LivePanel(steps)
        with Live(panel, console=self.rich, refresh_per_second=4) as live:

            def watch(event: Event, state: RunState) -> None:
                if not isinstance(event, Stepped):
                    live.console.print(describe(event, steps), markup=False)
                panel.update(event, state)

            yield watch


def _bar(width: int | None = 40) -> tuple[ProgressColumn, ...]:
    return BarColumn(bar_width=width), MofNCompleteColumn(), TimeRemainingColumn()


class LivePanel:
    """The panel of a running training: the last step, the first validation and the last one, the progress."""

    def __init__(self, steps: int) -> None:
        self._step: Stepped | None = None
        self._reference = "none"
        self._validations: list[Validated] = []
        self._progress = Progress(TextColumn("step"), *_bar(width=None))
        self._task = self._progress.add_task("", total=steps)

    def update(self, event: Event, state: RunState) -> None:
        """Take in an event."""
        self._reference = state.reference.name if state.reference else "none"
        if isinstance(event, Stepped):
            self._step = event
        if isinstance(event, Validated):
            self._validations = [*self._validations[:1], event]
        self._progress.update(self._task, completed=state.step)

    def __rich__(self) -> Panel:
        """What rich draws."""
        shown: list[str] = []
        scores: list[tuple[str, Mapping[str, float]]] = []
        if step := self._step:
            shown = [f"{one.label} {text(one, one.value(step))}" for one in STEP if "panel" in one.shown]
            shown.append(f"reference {self._reference}")
            scores.append(("score now", step.rollout_stats.domain_scores))
        scores += [(f"validation, step {event.step}", event.domains) for event in self._validations]
        names = sorted({name for _, of_domains in scores for name in of_domains})
        columns = (Column(Text(name), justify="right") for name in names)
        domains = Table("", *columns, box=None, padding=(0, 2))
        for title, found in scores:
            domains.add_row(title, *(f"{found[name]:.0%}" if name in found else "" for name in names))
        return Panel(Group(Columns(shown, padding=(0, 2)), domains, self._progress), title="prorl")


def overview(runs: Sequence[RunHistory]) -> list[tables.Table]:
    """One row per run; and what was decided last, a row each."""
    columns = ("run", "step", "of", "steps/h", "last event", "validation", "at step", "health")
    rows = []
    for run in runs:
        validated = next(reversed(run.of(Validated)), None)
        age = None if run.written is None else max(0.0, time.time() - run.written)
        rate, ago = tables.Number(run.steps_per_hour), tables.Number(age, "ago")
        score = tables.Number(validated.score if validated else None, ".1%")
        at = validated.step if validated else None
        rows.append((run.name, run.step, run.planned, rate, ago, score, at, run.state))
    found = [tables.Table(title="", columns=columns, rows=tuple(rows))]
    decided = tuple((run.name, mark.text) for run in runs for mark in run.marks[-DECISIONS:])
    if decided:
        found.append(tables.Table(title="last decisions", columns=("run", "decision"), rows=decided))
    return found
