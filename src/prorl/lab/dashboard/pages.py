"""The dashboard's pages, composed from files again and again: the list of runs, and one run.

What cannot be read is said on the page and nothing is raised for it; what did not change is not composed again. Every
text that an operator, a task or a folder's name brings in is escaped where it becomes HTML.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from prorl.commands import WORDS
from prorl.config.schema import HPARAMS
from prorl.lab.dashboard.evaluations import Evaluations
from prorl.lab.report.curves import curve_sections
from prorl.lab.report.page import Section, bullets, heading, paragraph
from prorl.lab.report.rollouts import rollout_section
from prorl.lab.report.summary import lineage_section, recipe_section, summary_section
from prorl.lab.tables import count, duration, escape
from prorl.run.history import RunHistory, health
from prorl.run.layout import CONFIG, JOURNAL, SAMPLES, runs_below

GOES_ON = 600.0  # seconds since the last event for which a history is kept in memory
AT_A_TIME = 1.0  # seconds of reading runs that the list does not know yet, before it is shown with the others
LATELY = 5  # marks
NONE = "–"
FACTS = ("health", "step", "last validation", "steps per hour", "last event")
TONES: Mapping[str, str] = {
    **dict.fromkeys(("running", "done"), "good"),
    **dict.fromkeys(("degraded", "crashed", "hung?", "unreadable"), "bad"),
}
GOING = ("running", "degraded", "waiting", "hung?", "elsewhere")  # of health: what may still take steps

Stamp = tuple[int, int, int]  # inode, bytes, time

log = logging.getLogger("prorl.lab.dashboard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """One run as a row of the list and the head of its page; small, so that many can be kept."""

    health: str
    stopped: str | None  # why, if it says so itself
    step: int
    steps: int
    rate: float | None  # steps per hour, lately
    validation: tuple[int, float] | None  # of the last one: step, pass@1
    written: float | None  # wall clock of the journal's last event
    lately: tuple[str, ...]  # what happened last, the newest first
    notes: tuple[str, ...]


class RunPage:
    """One run: how it does now, commands, curves, evaluations, rollouts, references."""

    def __init__(self, folder: Path, *, commands: bool) -> None:
        self._folder = folder
        self._run = RunHistory(folder)
        self._form = [commands_section()] if commands else []
        self._summary: list[Section] = []
        self._curves: list[Section] = []
        self._sources: list[Section] = []
        self._rollouts: list[Section] = []
        self._sampled: Stamp | None = None
        self._evaluations = Evaluations(folder)
        self._news = False  # read, and not yet composed
        self._trouble = ""

    def look(self) -> Sequence[Section]:
        """The page as the files are now."""
        trouble = ""
        try:
            self._read_on()
        except Exception as error:  # whatever lies in a folder, the server and the rest of the page go on
            trouble = f"This run cannot be shown as it is now: {error or repr(error)}"
            if trouble != self._trouble:
                log.warning("%s: %r", self._folder, error)
        self._trouble = trouble
        return [
            *(
                [Section(key="trouble", title="Trouble", html=paragraph(trouble, tone="bad"))]
                if trouble
                else []
            ),
            health_section(glance(self._run), time.time()),
            *self._form,
            *self._summary,
            *self._curves,
            *self._evaluations.sections,
            *self._rollouts,
            *self._sources,
        ]

    def close(self) -> None:
        """The page has no readers any more."""
        self._evaluations.close()

    def _read_on(self) -> None:
        self._news |= self._run.refresh()
        self._news |= self._evaluations.refresh()
        if self._news:
            runs = [self._run]
            self._curves = curve_sections(runs)
            self._sources = [lineage_section(self._run), recipe_section(runs)]
            self._summary = [summary_section(runs, measured=[self._evaluations.measured])]
            self._news = False
        sampled = stamp(self._folder / SAMPLES)
        if sampled != self._sampled:
            self._rollouts, self._sampled = [rollout_section(self._folder)], sampled


class RunsPage:
    """All runs at a glance. Histories are kept of runs that go on; of the others, which may be many, a row each.

    Hundreds of runs take long to read at first: those written last come first, the others with the next looks.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rows: dict[str, tuple[Stamp | None, Glance]] = {}
        self._readers: dict[str, RunHistory] = {}

    def look(self) -> Sequence[Section]:
        """The list as the files are now."""
        now = time.time()
        found = find_runs(self._root)
        rows = {name: self._row(name, folder, now) for name, folder in found.items() if name in self._rows}
        until = time.monotonic() + AT_A_TIME
        new = {name: stamp(folder / JOURNAL) for name, folder in found.items() if name not in rows}
        for name in sorted(new, key=lambda name: (new[name] or (0, 0, 0))[2], reverse=True):
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
        return [runs_section(known, now, unread=len(found) - len(known))]

    def close(self) -> None:
        """The page has no readers any more. The rows stay, for the next one."""
        self._readers.clear()

    def _row(self, name: str, folder: Path, now: float) -> tuple[Stamp | None, Glance]:
        seen = stamp(folder / JOURNAL)
        if name in self._rows and self._rows[name][0] == seen:
            row = self._rows[name][1]
            begun = seen is not None and seen[1] > 0
            return seen, replace(row, health=health(folder, begun=begun, stopped=row.stopped, now=now))
        run = self._readers.setdefault(name, RunHistory(folder))
        try:
            run.refresh()
            return seen, glance(run)
        except Exception as error:  # one folder, whatever lies in it, does not hide the others
            log.warning("%s: %r", folder, error)
            return seen, replace(glance(RunHistory(folder)), health=f"unreadable: {error!r}")


def find_runs(root: Path) -> Mapping[str, Path]:
    """Run directories by name: those in `root` and in its folders (`group/name`), or `root` itself if it is one.

    A name that came over the network is looked up here and never becomes a path. A link that leads out of `root` is
    no run of it.
    """
    if os.path.exists(root / CONFIG):
        return {root.resolve().name: root}
    # os.path.exists, unlike Path.exists, says no where the permission to look into a folder is missing.
    groups = sorted(path for path in root.glob("*/") if not os.path.exists(path / CONFIG))
    found = [*runs_below(root), *(run for group in groups for run in runs_below(group))]
    inside = root.resolve()
    return {run.relative_to(root).as_posix(): run for run in found if run.resolve().is_relative_to(inside)}


def stamp(path: Path) -> Stamp | None:
    """Changes when a file or a folder's list of names does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def glance(run: RunHistory) -> Glance:
    """What is shown of a run at a glance."""
    return Glance(
        health=run.health,
        stopped=run.stopped,
        step=run.step,
        steps=run.planned,
        rate=run.steps_per_hour,
        validation=(run.validations.steps[-1], run.validations.get("score")[-1])
        if len(run.validations)
        else None,
        written=run.written,
        lately=tuple(mark.text for mark in run.marks[: -LATELY - 1 : -1]),
        notes=run.notes,
    )


def health_section(seen: Glance, now: float) -> Section:
    """How a run is doing."""
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{value}</dd></div>"
        for name, value in zip(FACTS, _facts(seen, now), strict=True)
    )
    left = ""
    if seen.rate and seen.step < seen.steps and _word(seen.health) in GOING:
        hours = (seen.steps - seen.step) / seen.rate
        left = paragraph(f"{duration(hours * 3600)} to go at this rate", tone="soft")
    notes = "".join(paragraph(note, tone="warn") for note in seen.notes)
    lately = heading("Lately") + bullets(seen.lately) if seen.lately else ""
    back = '<p><a href="/">all runs</a></p>'
    html = f'{back}<dl class="facts">{cells}</dl>{left}{notes}{lately}'
    return Section(key="health", title="Now", html=html)


def runs_section(runs: Mapping[str, Glance], now: float, *, unread: int = 0) -> Section:
    """All runs, a row each, those that go on first; `unread` more are still to be read."""
    head = "".join(f'<th scope="col">{title}</th>' for title in ("run", *FACTS, "lately"))
    ordered = sorted(runs.items(), key=lambda item: _word(item[1].health) not in GOING)
    rows = ""
    for name, seen in ordered:
        link = f'<a href="/run/{quote(os.fsencode(name))}">{escape(name)}</a>'
        lately = f"<small>{escape((*seen.notes, *seen.lately, '')[0])}</small>"
        cells = "".join(f"<td>{cell}</td>" for cell in (link, *_facts(seen, now), lately))
        rows += f"<tr>{cells}</tr>"
    table = f'<table class="runs"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    none = paragraph("There are no runs here yet; `prorl train` begins one.", tone="soft")
    more = paragraph(f"{count(unread, 'more run')} to be read …", tone="soft") if unread else ""
    html = f'<div class="scroll">{table}</div>{more}' if runs else none
    return Section(key="runs", title="Runs", html=html)


def commands_section() -> Section:
    """The form with which an operator steers; `live.js` enables it where the token is known."""
    words = "".join(f'<button type="button" value="{word}">{word}</button>' for word in WORDS)
    hparams = "".join(f'<option value="{hparam}="></option>' for hparam in HPARAMS)
    return Section(
        key="commands",
        title="Commands",
        html=(
            '<form class="commands card"><fieldset disabled>'
            f'<div class="words">{words}</div>'
            '<div class="line"><input name="line" list="command-hparams" autocomplete="off" spellcheck="false" '
            'aria-label="command" placeholder="kl.coef=5e-4 optimizer.lr=1e-4, or: note some text">'
            f'<datalist id="command-hparams">{hparams}</datalist><button type="submit">give</button></div>'
            '</fieldset><output class="soft">To give commands, open the address with the token that '
            "<code>prorl dashboard</code> printed when it started.</output></form>"
        ),
    )


def _facts(seen: Glance, now: float) -> Iterator[str]:
    """What stands under `FACTS`, as HTML."""
    word, about = _word(seen.health), seen.health.partition(" ")[2]
    bar = f'<progress aria-hidden="true" value="{seen.step}" max="{max(seen.steps, 1)}"></progress>'
    yield f'<span class="{TONES.get(word, "warn")}">{escape(word)}</span>' + _small(escape(about))
    yield f"{seen.step:,}" + _small(f"{bar} of {seen.steps:,}")
    yield (
        f"{seen.validation[1]:.1%}" + _small(f"pass@1 at step {seen.validation[0]:,}")
        if seen.validation
        else NONE
    )
    yield f"{seen.rate:,.0f}" if seen.rate else NONE
    yield f"{duration(max(0.0, now - seen.written))} ago" if seen.written else NONE


def _small(html: str) -> str:
    return html and f"<small>{html}</small>"


def _word(health: str) -> str:
    return health.partition(" ")[0].rstrip(":")
