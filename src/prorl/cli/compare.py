"""`prorl compare`: runs side by side in a terminal, or as JSON for a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prorl.cli.outcome import finish
from prorl.envs.errors import ProrlError
from prorl.run.layout import run_folder

if TYPE_CHECKING:
    from rich.table import Table

    from prorl.lab.report.compare import Interval, Row, Unit, Value

EXAMPLES = "Examples: `prorl compare nano grpo_plain` · `prorl compare runs/seed* --step 300 --json`"

Group = Sequence[int]


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or names below runs/.")],
    step: Annotated[
        int | None, typer.Option(min=0, help="Compare what the runs were after this step.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: shares as fractions.")] = False,
) -> None:
    """Compare runs: recipes, cost, exams, decisions, measurements; with intervals over seeds.

    Reads files only, so the runs may be training. Runs that differ only in their seed share a column, which holds
    mean ± half of the 95 % interval, and below it the runs in the order of their names.
    """

    def work() -> None:
        from rich.console import Console as RichConsole

        from prorl.envs.files import encode_json
        from prorl.lab.report.compare import rows
        from prorl.lab.report.gains import run_gains
        from prorl.lab.report.groups import repetitions
        from prorl.run.history import read_history

        folders = [run_folder(run) for run in runs]
        stories = [read_history(folder, up_to=step) for folder in folders]
        for story in stories:
            if step is not None and story.step < step:
                raise ProrlError(
                    f"{story.folder} has only {story.step} steps: give --step {story.step} or less"
                )
        table = list(rows(stories, [run_gains(folder, up_to=step) for folder in folders]))
        together = repetitions([story.config for story in stories])
        names = _names([story.name for story in stories], folders)
        if as_json:
            typer.echo(encode_json(_data(table, names, together, step), indent=1).decode(), nl=False)
        else:
            RichConsole(highlight=False).print(_table(table, names, together))

    finish(work)


def _names(names: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """What each run is called: its directory's name, or the whole path where two are called the same."""
    return [
        name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)
    ]


def _data(
    table: Sequence[Row], names: Sequence[str], groups: Sequence[Group], step: int | None
) -> dict[str, Any]:
    from prorl.lab.report.compare import spread

    def spreads(row: Row) -> list[dict[str, float] | None]:
        found = [spread([row.values[position] for position in group]) for group in groups]
        return [None if one is None else asdict(one) for one in found]

    return {
        "step": step,
        "runs": list(names),
        "groups": [[names[position] for position in group] for group in groups],
        "rows": [{**asdict(row), "spreads": spreads(row)} for row in table],
    }


def _table(table: Sequence[Row], names: Sequence[str], groups: Sequence[Group]) -> Table:
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    shown.add_column("", no_wrap=True)
    for group in groups:
        title = ", ".join(names[position] for position in group)
        seeds = f"\nmean ± 95 %, n = {len(group)}" if len(group) > 1 else ""
        shown.add_column(Text(title + seeds), justify="right", overflow="fold")
    section = None
    for row in table:
        if row.section != section:
            section = row.section
            shown.add_row(Text(f"\n{section}", style="bold"))
        shown.add_row(f"  {row.title}", *(Text(_cell(row, group)) for group in groups))
    return shown


def _cell(row: Row, group: Group) -> str:
    """A group's values in one cell; with a mean above them where there are several numbers."""
    from prorl.lab.report.compare import spread

    values = [row.values[position] for position in group]
    if len(group) == 1:
        interval = row.intervals[group[0]] if row.intervals else None
        return _value(values[0], row.unit) + _interval(interval, row.unit)
    if len(set(values)) == 1:
        return _value(values[0], row.unit)
    one_by_one = ", ".join(_value(value, row.unit) for value in values)
    mean = spread(values)
    if mean is None:
        return one_by_one
    return (
        f"{_value(mean.mean, row.unit)} ± {_value(mean.high - mean.mean, row.unit).lstrip('+')}\n{one_by_one}"
    )


def _interval(interval: Interval | None, unit: Unit) -> str:
    return "" if interval is None else f" [{_value(interval[0], unit)}, {_value(interval[1], unit)}]"


def _value(value: Value, unit: Unit) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    match unit:
        case "share":
            return f"{value:.1%}"
        case "points":
            return f"{100 * value:+.1f}"
        case "count":
            return f"{value:,.0f}"
        case _:
            return f"{value:.3g}"
