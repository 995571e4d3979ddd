"""What composes the dashboard's pages from files, again and again: the list of runs, and one run's page.

What cannot be read is said on the page and nothing is raised for it; what did not change is not composed again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prorl.lab.dashboard import views
from prorl.lab.dashboard.runs import find_runs
from prorl.lab.dashboard.studies import Studies
from prorl.lab.report.curves import curve_sections
from prorl.lab.report.lineage import lineage_section
from prorl.lab.report.recipe import recipe_section
from prorl.lab.report.rollouts import rollout_section
from prorl.lab.report.section import Section
from prorl.lab.report.summary import summary_section
from prorl.run.history import RunHistory, health
from prorl.run.layout import JOURNAL, SAMPLES

GOES_ON = 600.0  # seconds since the last event for which a reader is kept in memory
AT_A_TIME = 1.0  # seconds of reading runs that the list does not know yet, before it is shown with the others

Stamp = tuple[int, int, int]  # inode, bytes, time

log = logging.getLogger("prorl.lab.dashboard")


class RunPage:
    """One run: how it does now, orders, curves, what was measured, rollouts, references."""

    def __init__(self, folder: Path, *, orders: bool) -> None:
        self._folder = folder
        self._run = RunHistory(folder)
        self._form = [views.orders_section()] if orders else []
        self._summary: list[Section] = []
        self._curves: list[Section] = []
        self._sources: list[Section] = []
        self._rollouts: list[Section] = []
        self._sampled: Stamp | None = None
        self._studies = Studies(folder)
        self._news = False  # read, and not yet composed
        self._trouble = ""

    def look(self) -> Sequence[Section]:
        """The page by what the files say now."""
        trouble = ""
        try:
            self._read_on()
        except Exception as error:  # whatever lies in a folder, the server and the rest of the page go on
            trouble = f"This run cannot be shown as it is now: {error or repr(error)}"
            if trouble != self._trouble:
                log.warning("%s: %r", self._folder, error)
        self._trouble = trouble
        return [
            *([views.trouble_section(trouble)] if trouble else []),
            views.health_section(views.glance(self._run), time.time()),
            *self._form,
            *self._summary,
            *self._curves,
            *self._studies.sections,
            *self._rollouts,
            *self._sources,
        ]

    def close(self) -> None:
        """Nobody looks any more."""
        self._studies.close()

    def _read_on(self) -> None:
        self._news |= self._run.refresh()
        self._news |= self._studies.refresh()
        if self._news:
            runs = [self._run]
            self._curves = curve_sections(runs)
            self._sources = [lineage_section(self._run), recipe_section(runs)]
            self._summary = [summary_section(runs, measured=[self._studies.measured])]
            self._news = False
        sampled = stamp(self._folder / SAMPLES)
        if sampled != self._sampled:
            self._rollouts, self._sampled = [rollout_section(self._folder)], sampled


class RunsPage:
    """All runs at a glance. Readers are kept of runs that go on; of the others, which may be many, a row each.

    Hundreds of runs take long to read at first: those written last come first, the others with the next looks.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rows: dict[str, tuple[Stamp | None, views.Glance]] = {}
        self._readers: dict[str, RunHistory] = {}

    def look(self) -> Sequence[Section]:
        """The list by what the files say now."""
        now = time.time()
        found = find_runs(self._root)
        rows = {name: self._row(name, folder, now) for name, folder in found.items() if name in self._rows}
        until = time.monotonic() + AT_A_TIME
        for name in sorted(found.keys() - rows.keys(), key=lambda name: _written(found[name]), reverse=True):
            rows[name] = self._row(name, found[name], now)
            if time.monotonic() > until:
                break
        self._rows = rows
        self._readers = {
            name: run
            for name, run in self._readers.items()
            if name in found and now - (run.written or 0.0) < GOES_ON
        }
        known = {name: rows[name][1] for name in found if name in rows}
        return [views.runs_section(known, now, unread=len(found) - len(known))]

    def close(self) -> None:
        """Nobody looks any more. The rows stay, for whoever comes back."""
        self._readers.clear()

    def _row(self, name: str, folder: Path, now: float) -> tuple[Stamp | None, views.Glance]:
        seen = stamp(folder / JOURNAL)
        if name in self._rows and self._rows[name][0] == seen:
            row = self._rows[name][1]
            begun = seen is not None and seen[1] > 0
            return seen, replace(row, health=health(folder, begun=begun, stopped=row.stopped, now=now))
        run = self._readers.setdefault(name, RunHistory(folder))
        try:
            run.refresh()
            return seen, views.glance(run)
        except Exception as error:  # one folder, whatever lies in it, does not hide the others
            log.warning("%s: %r", folder, error)
            return seen, replace(views.glance(RunHistory(folder)), health=f"unreadable: {error!r}")


def _written(folder: Path) -> int:
    seen = stamp(folder / JOURNAL)
    return seen[2] if seen else 0


def stamp(path: Path) -> Stamp | None:
    """What changes when a file or a folder's list of names does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
