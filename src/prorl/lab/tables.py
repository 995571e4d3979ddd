"""Tables and figures as plain data, and tables as text: for a terminal, in HTML, in Markdown, as JSON.

Whoever knows the numbers makes a `Table`; whoever shows it picks a renderer. Only renderers know how a number is
written, so that a page, a terminal and a model card say the same.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from rich import table as rich
from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from prorl.envs.files import storable

NONE = "–"
"""Shown where there is no number."""

WIDEST, IN_FILES = 10_000, 160  # characters of a line
LONG_CELL = 60  # characters above which a cell of an HTML table may be broken into lines
_MARKUP = re.compile(r"([\\`*_\[\]#|~$])")


@dataclass(frozen=True, slots=True)
class Number:
    """A measured number with its interval, or one that changed from a base."""

    value: float | None  # None or NaN: not measured
    form: str = ",.0f"  # of `format`; "points": a difference of shares; "ago": seconds since something
    _: KW_ONLY
    low: float | None = None  # 95 % interval
    high: float | None = None
    base: float | None = None  # what it was before


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """What several runs say, in their order, and the mean where all of them have a number."""

    cells: tuple[Cell, ...]
    mean: Number | None = None


Cell = str | int | Number | Several | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells below named columns: each column has a name of its own, each row a cell for every column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False  # on a page it is shown when its title is clicked

    def __post_init__(self) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"two columns of one name: {self.columns}")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} cells below {len(self.columns)} columns: {row}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One plotly figure as the plain JSON data that plotly.js and its exporters read."""

    key: str  # unique on the page; also the file name of an exported picture
    title: str
    data: tuple[Mapping[str, Any], ...]  # traces
    layout: Mapping[str, Any]
    note: str = ""  # how to read it, in a sentence


# -- numbers and names in words


def points(gain: float) -> str:
    """A difference of shares in percentage points with its sign: `+3.2`."""
    return f"{100 * gain:+.1f}".replace("-", "−")


def count(number: int, noun: str) -> str:
    """`1 problem`, `3 problems`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A length of time for people: `42 s`, `3 min`, `5.2 h`, `2.1 d`."""
    # Each from where the next smaller unit would be rounded up to a whole one of it.
    for unit, size, least, digits in (("d", 86400, 86220, 1), ("h", 3600, 3570, 1), ("min", 60, 59.5, 0)):
        if seconds >= least:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def listing(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def text(cell: Cell) -> str:
    """A cell as people read it: `25.0% → 37.5%`, `+12.5 (+10.0 to +15.0)`, `40.0% ± 20.0%` above what it averages."""
    if cell is None:
        return NONE
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, Number):
        before = "" if cell.base is None else f"{_number(cell.base, cell.form)} → "
        low, high = (None if end is None else _number(end, cell.form) for end in (cell.low, cell.high))
        interval = "" if low is None else f" ({low} to {high})"
        return f"{before}{_number(cell.value, cell.form)}{interval}"
    if len(set(cell.cells)) == 1:
        return text(cell.cells[0])
    each = ", ".join(map(text, cell.cells))
    mean = cell.mean
    if mean is None or mean.value is None or mean.high is None:
        return each
    half = _number(mean.high - mean.value, mean.form).removeprefix("+")
    return f"{_number(mean.value, mean.form)} ± {half}\n{each}"


def _number(value: float | None, form: str) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    if form == "ago":
        return f"{duration(value)} ago"
    return points(value) if form == "points" else format(value, form)


# -- renderers


def to_json(tables: Iterable[Table]) -> str:
    """Tables as JSON text: `{"tables": [{"title", "notes", "rows": [{column: cell}]}]}`.

    A number is a number, shares are fractions; with an interval or a base it is an object of `value`, `low`, `high`
    and `base`; several runs are an object of `values` and, where there is one, `mean`. What was not measured is null.
    """
    data = {
        "tables": [
            {
                "title": table.title,
                "notes": table.notes,
                "rows": [dict(zip(table.columns, map(_json, row), strict=True)) for row in table.rows],
            }
            for table in tables
        ]
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)


def _json(cell: Cell) -> Any:
    if isinstance(cell, Several):
        mean = {} if cell.mean is None else {"mean": _json(cell.mean)}
        return {"values": [_json(one) for one in cell.cells], **mean}
    if not isinstance(cell, Number):
        return storable(cell) if isinstance(cell, str) else cell
    said = ((name, getattr(cell, name)) for name in ("value", "low", "high", "base"))
    parts = {name: number for name, number in said if number is not None and math.isfinite(number)}
    value = parts.pop("value", None)
    return {"value": value, **parts} if parts else value


def terminal(*, stderr: bool = False) -> Console:
    """Standard output or error; where nobody sees it at once, lines are longer unless COLUMNS says how long."""
    found = Console(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = IN_FILES
    return found


def print_tables(tables: Sequence[Table], console: Console, *, aligned: bool = False) -> None:
    """Print tables at a terminal, all of every table however narrow it is; `aligned` ones have the same columns."""
    for index, table in enumerate(tables):
        if table.title:
            console.print(Text(f"\n{table.title}", style="bold"), soft_wrap=True)
        alike = tables if aligned else [table]
        rows = [row for one in alike for row in one.rows]
        shown = rich.Table(
            box=None, padding=(0, 2, 0, 0), header_style="dim", show_header=not (aligned and index)
        )
        for column, name in enumerate(table.columns):
            right = column > 0 and (aligned or not any(isinstance(row[column], str) for row in rows))
            whole = [line for row in rows if aligned for line in text(row[column]).splitlines()]
            shown.add_column(
                Text(name),
                justify="right" if right else "left",
                no_wrap=not column,
                overflow="fold",
                min_width=max(map(len, (name, *whole) if aligned else name.split()), default=0),
            )
        for row in table.rows:
            shown.add_row(*map(Text, map(text, row)))
        least = Measurement.get(console, console.options.update(max_width=WIDEST), shown).minimum
        if least > console.width:  # a table that is squeezed further loses columns
            shown.width = least
        console.print(shown, crop=False)
        for note in table.notes:
            console.print(Text(note, style="dim"), soft_wrap=False)


def escape(content: object) -> str:
    """Text for HTML, between tags and in attributes."""
    return html.escape(storable(str(content)))


def to_html(table: Table) -> str:
    """A table with its notes; every cell is escaped, columns of numbers are set to the right."""
    cells = [[text(cell) for cell in row] for row in table.rows]
    kinds = []
    for column in range(len(table.columns)):
        numbers = table.rows and all(not isinstance(row[column], str) for row in table.rows)
        long = max((len(row[column]) for row in cells), default=0) > LONG_CELL
        kinds.append(' class="number"' if numbers else ' class="long"' if long else "")
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' for kind, name in zip(kinds, table.columns, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in cells
    )
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in table.notes)
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{inside}</table></div>{notes}'


def plain(content: str) -> str:
    """A text within a line of Markdown: HTML and Markdown in it are escaped, its lines joined."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(content.split()), quote=False))


def to_markdown(table: Table) -> str:
    """A table with its notes, the first column to the left, the others to the right; without its title."""
    rule = "|".join(["---", *["---:"] * (len(table.columns) - 1)])
    rows = [[text(cell) for cell in row] for row in table.rows]
    first, *others = (f"| {' | '.join(map(plain, cells))} |" for cells in (table.columns, *rows))
    return "\n".join([first, f"|{rule}|", *others, *(f"\n{plain(note)}" for note in table.notes)])
