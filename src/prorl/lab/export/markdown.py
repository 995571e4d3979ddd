"""Texts from elsewhere in a Markdown page: whatever they hold, they are shown as they are and never become markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"([\\`*_\[\]#|~$])")


def plain(text: str) -> str:
    """A text within a line: HTML and Markdown in it are escaped, its lines joined."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def fenced(text: str, language: str = "") -> str:
    """A block of code, verbatim; the fence is longer than any that the text itself holds."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts, the first column to the left and the others to the right."""
    rule = "|".join(["---", *["---:"] * (len(header) - 1)])
    lines = (" | ".join(map(plain, cells)) for cells in (header, *rows))
    first, *others = (f"| {line} |" for line in lines)
    return "\n".join([first, f"|{rule}|", *others])


def bullets(texts: Iterable[str]) -> str:
    """A list of plain texts."""
    return "\n".join(f"- {plain(text)}" for text in texts)
