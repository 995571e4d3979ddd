"""The parts of a report about one run or several, in the order in which they are read; and the report as a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from prorl.envs.files import write_atomic
from prorl.lab.report.boundary import boundary_sections
from prorl.lab.report.curves import curve_sections
from prorl.lab.report.lineage import lineage_section
from prorl.lab.report.measured import measured
from prorl.lab.report.page import page
from prorl.lab.report.recipe import recipe_section
from prorl.lab.report.rollouts import rollout_section
from prorl.lab.report.section import Figure, Section
from prorl.lab.report.summary import summary_section
from prorl.run.history import RunHistory, read_history
from prorl.run.layout import require_run

REPORT = "report.html"


def sections(runs: Sequence[RunHistory]) -> list[Section]:
    """Everything a page about these runs says."""
    stored = [
        _apart(section, run.name, at if runs[1:] else None)
        for at, run in enumerate(runs)
        for section in _stored(run)
    ]
    return [
        summary_section(runs, measured=[measured(run.folder) for run in runs]),
        *curve_sections(runs),
        *stored,
        recipe_section(runs),
    ]


def _stored(run: RunHistory) -> list[Section]:
    """What lies in a run's own files beside its journal: studies, rollouts, references."""
    return [*boundary_sections(run.folder), rollout_section(run.folder), lineage_section(run)]


def _apart(section: Section, name: str, at: int | None) -> Section:
    """A section whose keys and title tell the runs of one page apart; `at` is None for the only run."""
    if at is None:
        return section
    return replace(
        section,
        key=f"{section.key}-{at}",
        title=f"{section.title}: {name}",
        figures=tuple(replace(figure, key=f"{figure.key}-{at}") for figure in section.figures),
    )


def figures(parts: Sequence[Section]) -> list[Figure]:
    """All figures of a page, in its order."""
    return [figure for part in parts for figure in part.figures]


def write_report(
    folders: Sequence[Path], out: Path | None = None, *, progress: Callable[[str], None] = lambda _: None
) -> tuple[Path, list[Section]]:
    """Write the page about these runs, which may be training meanwhile; returns its path and what it says.

    It lies in the run's own directory, or for several runs in the working directory, unless `out` says otherwise.

    Raises:
        StorageError: a folder holds no run, or the file cannot be written.
        ReportError: plotly is not installed whole.
    """
    for folder in folders:
        require_run(folder)
    path = out or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
    runs = []
    for folder in folders:
        progress(f"reading {folder.name}")
        runs.append(read_history(folder))
    progress("drawing")
    parts = sections(runs)
    progress(f"writing {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page(", ".join(run.name for run in runs), parts))
    return path, parts
