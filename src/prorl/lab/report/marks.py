"""What happened in a run, drawn over its curves: thin lines with the reason on hover, shaded penalty windows.

They live on an axis of their own from 0 to 1, so that they reach from bottom to top whatever the curve does, and
every kind is one entry of the legend, which hides and shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from prorl.lab.report.groups import Group
from prorl.lab.report.style import MARK_COLORS, faded, label
from prorl.run.history import Mark, RunHistory

AXIS = "y2"
LAYOUT = {"yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}}
WIDTH = 70  # characters of a line of hover text
SHADE = "#a5821a"


def mark_traces(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Penalty windows and marks of all runs: lines for a single run, ticks in its colour where there are several."""
    runs = [(group.color, run) for group in found for run in group.runs]
    windows = penalty_windows([run for _, run in runs])
    return [
        *([_shades(windows)] if windows else []),
        *(_lines(kind, marks) for kind, marks in _by_kind(runs[0][1].marks) if len(runs) == 1),
        *(_ticks(kind, runs) for kind in MARK_COLORS if len(runs) > 1 and _any(kind, runs)),
    ]


def penalty_windows(runs: Sequence[RunHistory]) -> list[tuple[int, int]]:
    """First and last step of every stretch under a length penalty, if it comes and goes and all runs agree on it."""
    penalised: dict[int, bool] = {}
    for run in runs:
        for step, weight in zip(run.steps.steps, run.steps.get("length_weight"), strict=True):
            if penalised.setdefault(step, weight > 0) != (weight > 0):
                return []
    if all(penalised.values()):
        return []
    stretches = (
        list(part) for on, part in groupby(sorted(penalised.items()), key=lambda item: item[1]) if on
    )
    return [(stretch[0][0], stretch[-1][0]) for stretch in stretches]


def _by_kind(marks: Sequence[Mark]) -> Iterator[tuple[str, list[Mark]]]:
    for kind in MARK_COLORS:
        chosen = [mark for mark in marks if mark.kind == kind]
        if chosen:
            yield kind, chosen


def _any(kind: str, runs: Sequence[tuple[str, RunHistory]]) -> bool:
    return any(mark.kind == kind for _, run in runs for mark in run.marks)


def _shades(windows: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return _over(
        "length penalty",
        x=[x for first, last in windows for x in (first - 0.5, first - 0.5, last + 0.5, last + 0.5, None)],
        y=[0, 1, 1, 0, None] * len(windows),
        mode="none",
        fill="toself",
        fillcolor=faded(SHADE, 0.12),
        hoverinfo="skip",
    )


def _lines(kind: str, marks: Sequence[Mark]) -> dict[str, Any]:
    color = MARK_COLORS[kind]
    return _over(
        kind,
        x=[x for mark in marks for x in (mark.step, mark.step, None)],
        y=[0, 1, None] * len(marks),
        text=[text for mark in marks for text in ("", label(mark.text, width=WIDTH), "")],
        hoverinfo=["skip", "text", "skip"] * len(marks),
        mode="lines+markers",
        line={"color": faded(color, 0.55), "width": 1},
        marker={"color": color, "symbol": "triangle-down", "size": [0, 8, 0] * len(marks), "opacity": 1},
    )


def _ticks(kind: str, runs: Sequence[tuple[str, RunHistory]]) -> dict[str, Any]:
    chosen = [(color, run, mark) for color, run in runs for mark in run.marks if mark.kind == kind]
    return _over(
        kind,
        x=[mark.step for _, _, mark in chosen],
        y=[0.03] * len(chosen),
        text=[label(f"{run.name}: {mark.text}", width=WIDTH) for _, run, mark in chosen],
        hoverinfo="text",
        mode="markers",
        marker={"color": [color for color, _, _ in chosen], "symbol": "line-ns-open", "size": 12},
    )


def _over(name: str, **trace: Any) -> dict[str, Any]:
    return {"type": "scatter", "name": name, "yaxis": AXIS, "legendgroup": name, "legendrank": 2000, **trace}
