"""The dashboard's pages, composed from files again and again: the list of runs, and one run.

What cannot be read is said on the page and nothing is raised for it; what did not change is not composed again. Every
text that an operator, a task or a folder's name brings in is escaped where it becomes HTML.
"""

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from pydantic import TypeAdapter

from prorl.commands import WORDS
from prorl.config.schema import HPARAMS
from prorl.control.events import Validated
from prorl.lab.report.curves import curve_sections
from prorl.lab.report.page import Section, bullets, heading, page, paragraph, section_json, to_script_json
from prorl.lab.report.rollouts import rollout_section
from prorl.lab.report.summary import lineage_section, recipe_section, summary_section
from prorl.lab.tables import NONE, count, duration, escape
from prorl.run.history import RECENT, RunHistory, read_history
from prorl.run.layout import CONFIG, EVALS, JOURNAL, SAMPLES, runs_below

GOES_ON = 600.0  # seconds since the last event for which numbers of all steps are kept in memory
AT_A_TIME = 2.0  # seconds of reading runs that the list does not know yet, before it is shown with the others
LATELY = 5  # marks
BACK = '<p><a href="/">all runs</a></p>'
NICENESS = 10  # of the process that reads evaluations: training comes first
TONES: Mapping[str, str] = {
    **dict.fromkeys(("running", "done"), "good"),
    **dict.fromkeys(("degraded", "crashed", "hung?", "unreadable"), "bad"),
}
# Of health: what may still take steps.
GOING = ("running", "degraded", "waiting", "paused", "hung?", "elsewhere")
SECTIONS = TypeAdapter(list[Section])

log = logging.getLogger("prorl.lab.dashboard")

Stamp = tuple[int, ...]
"""By what a change of a file is noticed: time of writing, bytes, inode; zeros where there is none."""


class Evaluations:
    """The sections about one run's evaluations, composed by a child process whenever those changed.

    Reading Parquet takes tens of megabytes that a server which runs for weeks would never give back. The process is
    started and polled without waiting: until it is done, the page shows what it showed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, Stamp] | None = None  # those that `sections` shows, or will
        self._process: subprocess.Popen[bytes] | None = None
        self._made = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self.sections: Sequence[Section] = ()  # the first one says whether training worked

    def refresh(self) -> None:
        """Take over what was composed, and have composed what changed. Returns at once."""
        if self._process is None:
            paths = (self._folder / EVALS).glob("*/[!.]*")
            found = {path: stamp(path) for path in paths if path.is_file()}
            if found != self._files:
                self._files = found
                self._made.seek(0)
                self._made.truncate()
                command = [sys.executable, "-m", __name__, str(self._folder)]
                # In a group of its own: Ctrl-C in the terminal is the server's to answer.
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=self._made, process_group=0
                )
        elif (status := self._process.poll()) is not None:
            self._process = None
            self._made.seek(0)
            if status:
                why = f"The measurements in {self._folder / EVALS} cannot be shown; the server's terminal says why."
                self.sections = [Section(key="boundary", title="Boundary", html=paragraph(why, tone="bad"))]
            else:
                self.sections = SECTIONS.validate_json(self._made.read())

    def close(self) -> None:
        """End the child process if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._made.close()


class RunPage:
    """One run: how it does now, commands, curves, evaluations, rollouts, references."""

    def __init__(self, folder: Path, *, commands: bool) -> None:
        self._run = RunHistory(folder)
        self._form = [commands_section()] if commands else []
        self._summary = self._curves = self._sources = self._rollouts = list[Section]()
        self._sampled: Stamp | None = None
        self._evaluations = Evaluations(folder)
        self._news = False  # read, and not yet composed
        self._trouble: list[Section] = []

    def look(self) -> Sequence[Section]:
        """The page as the files are now."""
        try:
            self._read_on()
            self._trouble = []
        except Exception as error:  # whatever lies in a folder, the server and the rest of the page go on
            html = paragraph(f"This run cannot be shown as it is now: {error or repr(error)}", tone="bad")
            if html not in (section.html for section in self._trouble):
                log.warning("%s: %r", self._run.folder, error)
            self._trouble = [Section(key="trouble", title="Trouble", html=html)]
        return [
            *self._trouble,
            health_section(self._run),
            *self._form,
            *self._summary,
            *self._evaluations.sections[:1],
            *self._curves,
            *self._evaluations.sections[1:],
            *self._rollouts,
            *self._sources,
        ]

    def close(self) -> None:
        """The page has no readers any more."""
        self._evaluations.close()

    def _read_on(self) -> None:
        self._evaluations.refresh()
        runs, health = [self._run], self._run.health
        self._news |= self._run.refresh()
        if self._news or self._run.health != health:
            self._summary = [summary_section(runs)]
        if self._news:
            self._curves = curve_sections(runs)
            self._sources = [lineage_section(self._run), recipe_section(runs)]
            self._news = False
        sampled = stamp(self._run.folder / SAMPLES)
        if sampled != self._sampled:
            self._rollouts, self._sampled = [rollout_section(self._run.folder)], sampled


class RunsPage:
    """All runs at a glance; of those that rest, which may be many, the numbers of the last steps alone are kept.

    Hundreds of runs take long to read at first: those written last come first, the others with the next looks.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._runs: dict[str, RunHistory] = {}

    def look(self) -> Sequence[Section]:
        """The list as the files are now."""
        now, until = time.time(), time.monotonic() + AT_A_TIME
        found, seen = find_runs(self._root), {}
        known = [name for name in found if name in self._runs]
        new = sorted(found.keys() - known, key=lambda name: stamp(found[name] / JOURNAL), reverse=True)
        for name in (*known, *new):
            seen[name] = self._refreshed(name, found[name])
            if name not in self._runs and time.monotonic() > until:
                break
        self._runs = {  # without those that rest and hold more: they are read anew, briefly
            name: run
            for name, run in seen.items()
            if len(run.steps) <= RECENT or now - (run.written or 0.0) < GOES_ON
        }
        runs = {name: seen[name] for name in found if name in seen}
        return [runs_section(runs, len(found) - len(runs))]

    def close(self) -> None:
        """The page has no readers any more. What was read stays, for the next one."""

    def _refreshed(self, name: str, folder: Path) -> RunHistory:
        run = self._runs.get(name) or RunHistory(folder, brief=True)
        try:
            run.refresh()
        except Exception as error:  # one folder, whatever lies in it, does not hide the others
            told = f"unreadable: {error!r}"
            if run.health != told:
                log.warning("%s: %r", folder, error)
            run = RunHistory(folder, brief=True)
            run.health = told
        return run


def overlaid(folders: Sequence[Path]) -> str:
    """The page that compares these runs, as their files are now. Raises ProrlError: a run cannot be read."""
    runs = [read_history(folder) for folder in folders]
    back = Section(key="health", title="Runs", html=BACK)
    parts = [back, summary_section(runs), *curve_sections(runs), recipe_section(runs)]
    return page(", ".join(run.name for run in runs), parts, live=True)


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


def stamp(path: Path) -> Stamp:
    """Changes when a file or a folder's list of names does."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def health_section(run: RunHistory) -> Section:
    """How a run is doing."""
    facts = _facts(run).items()
    cells = "".join(f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, (fact, _) in facts)
    notes = "".join(paragraph(note, tone="warn") for note in run.notes)
    lately = heading("Lately") + bullets(_lately(run)) if _lately(run) else ""
    html = f'{BACK}<dl class="facts">{cells}</dl>{notes}{lately}'
    return Section(key="health", title="Now", html=html)


def runs_section(runs: Mapping[str, RunHistory], unread: int) -> Section:
    """All runs, a row each, those that go on first; `unread` more are still to be read."""
    rows = ""
    columns: tuple[str, ...] = ()
    for name, run in sorted(runs.items(), key=lambda item: _word(item[1].health) not in GOING):
        box = f'<input type="checkbox" name="overlay" value="{escape(name)}" aria-label="overlay {escape(name)}">'
        link = f'{box} <a href="/run/{quote(os.fsencode(name))}">{escape(name)}</a>'
        lately = f"<small>{escape((*run.notes, *_lately(run), '')[0])}</small>"
        cells = {"run": (link, name), **_facts(run), "lately": (lately, None)}
        columns = tuple(cells)
        shown = ((cell, "" if key is None else escape(key)) for cell, key in cells.values())
        rows += "<tr>" + "".join(f'<td data-sort="{key}">{cell}</td>' for cell, key in shown) + "</tr>"
    head = "".join(f'<th scope="col"><button type="button">{title}</button></th>' for title in columns)
    table = f'<table class="runs"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    none = paragraph("There are no runs here yet; `prorl train` begins one.", tone="soft")
    more = paragraph(f"{count(unread, 'more run')} to be read …", tone="soft") if unread else ""
    sift = (
        '<div class="sift"><label>show <input type="search" placeholder="name, health, …"></label>'
        '<button type="button" disabled>overlay the chosen runs</button></div>'
    )
    html = f'{sift}<div class="scroll" tabindex="0">{table}</div>{more}' if runs else none
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


def _facts(run: RunHistory) -> dict[str, tuple[str, object]]:
    """What is told of a run, as HTML, and what the list of runs sorts it by; None comes last."""
    word, about = _word(run.health), run.health.partition(" ")[2]
    bar = f'<progress aria-hidden="true" value="{run.step}" max="{max(run.planned, 1)}"></progress>'
    health = f'<span class="{TONES.get(word, "warn")}">{escape(word)}</span>' + _small(escape(about))
    facts: dict[str, tuple[str, object]] = {
        "health": (health, word),
        "step": (f"{run.step:,}" + _small(f"{bar} of {run.planned:,}"), run.step),
        **dict.fromkeys(("last validation", "steps per hour", "left", "last event"), (NONE, None)),
    }
    if validations := run.of(Validated):
        last, line = validations[-1], _sparkline([one.score for one in validations])
        html = f"{last.score:.1%}{line}" + _small(f"pass@1 at step {last.step:,}")
        facts["last validation"] = html, last.score
    if rate := run.steps_per_hour:
        facts["steps per hour"] = f"{rate:,.0f}", rate
    if rate and run.step < run.planned and word in GOING and word != "paused":
        left = (run.planned - run.step) / rate * 3600
        facts["left"] = duration(left), left
    if run.written:
        age = max(0.0, time.time() - run.written)
        facts["last event"] = f"{duration(age)} ago", age
    return facts


def _lately(run: RunHistory) -> list[str]:
    """What happened last, the newest first."""
    return [mark.text for mark in run.marks[: -LATELY - 1 : -1]]


def _sparkline(scores: Sequence[float]) -> str:
    """The validations of a run as a small line from the lowest to the highest."""
    if len(scores) < 2:
        return ""
    low, high = min(scores), max(scores)
    places = (
        f"{100 * at / (len(scores) - 1):.1f},{22 - 20 * (score - low) / (high - low or 1):.1f}"
        for at, score in enumerate(scores)
    )
    about = f"validations from {scores[0]:.1%} to {scores[-1]:.1%}"
    line = f'<polyline points="{" ".join(places)}"/>'
    return f'<svg class="spark" role="img" aria-label="{about}" viewBox="0 0 100 24">{line}</svg>'


def _small(html: str) -> str:
    return html and f"<small>{html}</small>"


def _word(health: str) -> str:
    return health.partition(" ")[0].rstrip(":")


def main(folder: Path) -> None:
    """The child process: print the sections about a run's evaluations as JSON."""
    from prorl.lab.report.boundary import boundary_sections, measured

    os.nice(NICENESS)
    run = RunHistory(folder, brief=True)
    run.refresh()
    print(to_script_json([section_json(one) for one in (measured(run), *boundary_sections(run))]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
