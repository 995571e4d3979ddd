"""What a page is made of. The report writes sections into one file, the dashboard sends the ones that changed.

Whatever a model wrote reaches `Section.html` escaped, and a figure only as data: a page never runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One plotly figure as the plain JSON data that plotly.js and its exporters read."""

    key: str  # unique on the page; also the file name of an exported picture
    title: str
    data: tuple[Mapping[str, Any], ...]  # traces
    layout: Mapping[str, Any]
    note: str = ""  # how to read it, in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a page: a heading, safe HTML, and figures below it."""

    key: str  # unique on the page, and its anchor
    title: str
    html: str = ""
    figures: tuple[Figure, ...] = ()
