"""All runs at a glance, and the family tree of a run's references, for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prorl.envs.files import StorageError
from prorl.lab.tables import Number, Table
from prorl.lab.watch.lines import line
from prorl.run import lineage
from prorl.run.journal import read_events
from prorl.run.layout import JOURNAL
from prorl.run.status import Status


def overview(runs: Sequence[Status]) -> list[Table]:
    """One row per run; and what was decided last, a row each."""
    columns = ("run", "step", "of", "steps/h", "last event", "exam", "at step", "health")
    rows = tuple(
        (
            *(run.name, run.step, run.steps),
            Number(value=run.steps_per_hour),
            Number(value=run.age, form="ago"),
            Number(value=run.exam.score if run.exam else None, form=".1%"),
            run.exam.step if run.exam else None,
            run.health,
        )
        for run in runs
    )
    decided = tuple((run.name, line(event, run.steps)) for run in runs for event in run.decisions)
    tables = [Table(title="", columns=columns, rows=rows)]
    if decided:
        tables.append(Table(title="last decisions", columns=("run", "decision"), rows=decided))
    return tables


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
