"""All runs at a glance, and the family tree of a run's references, for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.table import Table

from prorl.envs.files import StorageError
from prorl.lab.watch.lines import line
from prorl.run import lineage
from prorl.run.journal import read_events
from prorl.run.layout import JOURNAL
from prorl.run.status import Status


def overview(runs: Iterable[Status]) -> Table:
    """One row per run."""
    table = Table(box=None, padding=(0, 2), show_header=True)
    table.add_column("run")
    for title in ("step", "steps/h", "last event", "exam"):
        table.add_column(title, justify="right")
    table.add_column("health")
    for run in runs:
        table.add_row(
            run.name,
            f"{run.step}/{run.steps}",
            "" if run.steps_per_hour is None else f"{run.steps_per_hour:.0f}",
            "" if run.age is None else f"{duration(run.age)} ago",
            "" if run.exam is None else f"{run.exam.score:.1%} at {run.exam.step}",
            run.health,
        )
    return table


def decisions(run: Status) -> Iterator[str]:
    """What was decided last, a line each."""
    for event in run.decisions:
        yield f"{run.name}: {line(event, run.steps)}"


def lineage_lines(folder: Path) -> Sequence[str]:
    """The family tree of a run's references, and what the run itself branched from.

    Raises:
        StorageError: there is no journal, or it cannot be read.
    """
    try:
        events, remarks = read_events(folder / JOURNAL)
    except OSError as error:
        raise StorageError(
            f"{folder} holds no run whose journal can be read ({error}): check the name"
        ) from error
    born = lineage.references(events)
    parents = lineage.branches(events)
    title = f"{folder.name}" + (f", a branch of {' of '.join(reversed(parents))}" if parents else "")
    if not born:
        return [title, *remarks, "no reference was ever held: the run pays no KL penalty"]
    notes = {one.name: lineage.condition(folder, one) for one in born}
    notes[born[-1].name] += ", in use"
    return [title, *remarks, *lineage.tree(born, notes)]


def duration(seconds: float) -> str:
    """A length of time for people: `42 s`, `3 min`, `5.2 h`, `2.1 d`."""
    for unit, size in (("d", 86400), ("h", 3600)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
