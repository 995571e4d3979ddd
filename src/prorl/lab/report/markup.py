"""Texts on a page: all but this program's own words goes through `escape` first, in figures through `style.label`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"[+−]?\d[\d.,]*%?( of [\d,]+)?( [(\[].*[)\]])?")

LONG_CELL = 60
"""Characters above which a cell of a table may be broken into lines."""

LONGEST = 4_000
"""Characters of a text that a page shows; of a longer one the middle is left out."""


def escape(text: object) -> str:
    """Text for HTML, between tags and in attributes."""
    return html.escape(_encodable(str(text)))


def _encodable(text: str) -> str:
    """Without halves of surrogate pairs, which a tokenizer may leave and no file can hold."""
    return text.encode("utf-8", "replace").decode()


def shortened(text: str, longest: int = LONGEST) -> str:
    """The text, without its middle if it is too long; says how much was left out."""
    if len(text) <= longest:
        return text
    head = longest // 2
    left_out = len(text) - longest
    return f"{text[:head]}\n[… {left_out:,} characters left out …]\n{text[head + left_out :]}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; every cell is escaped, columns of numbers are set to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    kinds = [_kind(column) for column in zip(*cells, strict=True)] or [""] * len(header)
    head = "".join(
        f'<th scope="col"{kind}>{escape(title)}</th>' for kind, title in zip(kinds, header, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in cells
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _kind(column: Sequence[str]) -> str:
    if all(_NUMBER.fullmatch(cell) for cell in column if cell):
        return ' class="number"'
    return ' class="long"' if max(map(len, column)) > LONG_CELL else ""


def paragraph(*sentences: str) -> str:
    """Sentences as one escaped paragraph; empty ones are left out."""
    return f"<p>{escape(' '.join(filter(None, sentences)))}</p>"


def remark(text: str, tone: str) -> str:
    """One escaped paragraph in a tone: `soft`, `good`, `warn` or `bad`."""
    return f'<p class="{tone}">{escape(text)}</p>'


def bullets(texts: Iterable[str], *, tone: str = "plain") -> str:
    """An escaped list, or nothing without entries."""
    items = "".join(f'<li class="{tone}">{escape(text)}</li>' for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def heading(text: str) -> str:
    """An escaped heading inside a section."""
    return f"<h3>{escape(text)}</h3>"


def facts(entries: Iterable[tuple[str, str, str]]) -> str:
    """Numbers that are seen first: what it is, the number, a remark below it; all escaped."""
    cards = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(about)}</small></dd></div>"
        for name, value, about in entries
    )
    return f'<dl class="facts">{cards}</dl>'


def preformatted(text: str) -> str:
    """Escaped text, letter by letter as it was written."""
    return f"<pre>{escape(text)}</pre>"


def fold(title: str, body: str) -> str:
    """Safe HTML that shows when its escaped title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"
