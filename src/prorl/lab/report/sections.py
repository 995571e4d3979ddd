"""The parts of a report about one run or several, in the order in which they are read; and the report as a file."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from prorl.envs.files import StorageError, write_atomic
from prorl.lab.report.boundary import boundary_sections, measured
from prorl.lab.report.compare import comparison
from prorl.lab.report.curves import curve_sections, told_apart
from prorl.lab.report.page import Section, page
from prorl.lab.report.rollouts import rollout_section
from prorl.lab.report.summary import lineage_section, recipe_section, summary_section
from prorl.lab.tables import Table
from prorl.run.history import RunHistory, read_history

REPORT = "report.html"


def sections(runs: Sequence[RunHistory]) -> list[Section]:
    """Everything a page about these runs says; what needs a run's own page is left out where there are several."""
    summary, several = summary_section(runs), len(runs) > 1
    if several:
        summary = replace(summary, tables=tuple(comparison(runs)))
    stored = [] if several else [*boundary_sections(runs[0]), rollout_section(runs[0].folder)]
    worked, lineage = (_of_each(runs, tell) for tell in (measured, lineage_section))
    return [summary, *worked, *curve_sections(runs), *stored, *lineage, recipe_section(runs)]


def _of_each(runs: Sequence[RunHistory], tell: Callable[[RunHistory], Section]) -> list[Section]:
    """A section about each run; where there are several runs, keys and titles tell them apart."""
    told = [tell(run) for run in runs]
    if len(runs) == 1:
        return told
    return [
        replace(
            section,
            key=f"{section.key}-{at}",
            title=f"{section.title}: {name}",
            figures=tuple(replace(figure, key=f"{figure.key}-{at}") for figure in section.figures),
        )
        for at, (name, section) in enumerate(zip(told_apart(runs), told, strict=True))
    ]


def tables(parts: Sequence[Section]) -> list[Table]:
    """All tables of a page, titled by their sections."""
    return [
        replace(table, title=": ".join(filter(None, (part.title, table.title))))
        for part in parts
        for table in part.tables
    ]


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page about these runs, which may be training meanwhile; returns its path.

    It lies in the run's own directory, or for several runs in the working directory, unless `out` says otherwise.
    Raises StorageError: a folder holds no run, or the file cannot be written; ProrlError: as `page`.
    """
    path = out or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
    if path.is_dir():
        raise StorageError(f"{path} is a folder: say what the file is called, as --out {path / REPORT}")
    runs = [read_history(folder) for folder in folders]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page(", ".join(run.name for run in runs), sections(runs)))
    return path
