"""Runs on a terminal: a live panel with progress and a line for every event; all runs in a table.

Where there is no terminal, plain lines. Watching never changes a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from prorl.control.events import Event, Stepped, Validated
from prorl.control.metrics import STEP, text
from prorl.control.state import RunState
from prorl.lab import tables
from prorl.run.history import RunHistory, describe

PLAIN_PROGRESS_EVERY = 0.1  # of the total, between two plain lines
DECISIONS = 3  # shown of each run
PER_ROW = 5  # figures in a row of the live panel


class Console:
    """What the user sees; a watcher of the run's events."""

    def __init__(self, rich: RichConsole | None = None) -> None:
        self.rich = rich or RichConsole(highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """One line."""
        self.rich.print(text, markup=False)

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int, str], None]]:
        """Progress of something long: call the yielded function with (done, total, note)."""
        if not self.rich.is_terminal:
            yield self._plain_progress(title)
            return
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.rich,
        ) as bar:
            task = bar.add_task(title, total=None, note="")
            yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)

    @contextmanager
    def counting(self, title: str) -> Iterator[Callable[[str, int], None]]:
        """Progress of something whose end nobody knows: call the yielded function with (what, done)."""
        with self.rich.status(title) as status:
            said = ""

            def advance(what: str, done: int) -> None:
                nonlocal said
                status.update(f"{title} {what}: {done:,}")
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

    def _plain_progress(self, title: str) -> Callable[[int, int, str], None]:
        said = -1.0

        def advance(done: int, total: int, note: str) -> None:
            nonlocal said
            if done == total or done / total >= said + PLAIN_PROGRESS_EVERY:
                said = done / total
                self.say(f"{title}: {done}/{total} {note}")

        return advance


class LivePanel:
    """The panel of a running training: renders the last step, validation and progress."""

    def __init__(self, steps: int) -> None:
        self._step: Stepped | None = None
        self._state = RunState()
        self._validations: list[Validated] = []
        self._bar = Progress(
            TextColumn("step"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn()
        )
        self._task = self._bar.add_task("", total=steps)

    def update(self, event: Event, state: RunState) -> None:
        """Take in an event."""
        self._state = state
        if isinstance(event, Stepped):
            self._step = event
        if isinstance(event, Validated):
            self._validations = [*self._validations[:1], event]  # the first one and the last one
        self._bar.update(self._task, completed=state.step)

    def __rich__(self) -> Panel:
        """What rich draws."""
        return Panel(Group(self._numbers(), self._domains(), self._bar), title="prorl")

    def _numbers(self) -> Table:
        table = Table.grid(padding=(0, 2))
        if self._step is not None:
            shown = [
                f"{one.label} {text(one, one.value(self._step))}" for one in STEP if "panel" in one.shown
            ]
            reference = self._state.reference.name if self._state.reference else "none"
            shown.append(f"reference {reference}")
            for at in range(0, len(shown), PER_ROW):
                table.add_row(*shown[at : at + PER_ROW])
        return table

    def _domains(self) -> Table:
        names = sorted(
            {*(self._step.rollout_stats.domain_scores if self._step else ()), *self._validated_domains()}
        )
        table = Table(box=None, padding=(0, 2), show_header=True)
        table.add_column("")
        for name in names:
            table.add_column(name, justify="right")
        if self._step is not None:
            scores = self._step.rollout_stats.domain_scores
            table.add_row("score now", *(f"{scores[name]:.2f}" if name in scores else "" for name in names))
        for event in self._validations:
            cells = (f"{event.domains[name]:.0%}" if name in event.domains else "" for name in names)
            table.add_row(f"validation, step {event.step}", *cells)
        return table

    def _validated_domains(self) -> set[str]:
        return {name for event in self._validations for name in event.domains}


def overview(runs: Sequence[RunHistory]) -> list[tables.Table]:
    """One row per run; and what was decided last, a row each."""
    columns = ("run", "step", "of", "steps/h", "last event", "validation", "at step", "health")
    rows = []
    for run in runs:
        validated = run.of(Validated)[-1] if run.of(Validated) else None
        age = None if run.written is None else max(0.0, time.time() - run.written)
        rows.append(
            (
                *(run.name, run.step, run.planned),
                tables.Number(value=run.steps_per_hour),
                tables.Number(value=age, form="ago"),
                tables.Number(value=validated.score if validated else None, form=".1%"),
                validated.step if validated else None,
                run.state,
            )
        )
    found = [tables.Table(title="", columns=columns, rows=tuple(rows))]
    decided = tuple((run.name, mark.text) for run in runs for mark in run.marks[-DECISIONS:])
    if decided:
        found.append(tables.Table(title="last decisions", columns=("run", "decision"), rows=decided))
    return found
