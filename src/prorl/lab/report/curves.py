"""The curves of one run or an overlay of several, as figures.

One run: every chart is one figure, a calm line over the light raw one. Several: a figure per curve, a colour per
recipe, and where runs differ only in their seed the mean over seeds in its 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, pairwise
from statistics import fmean
from typing import Any

from prorl.algo.t_interval import t_interval
from prorl.lab.report.charts import LAYOUT, Chart, Group, Line, annotation_traces, chapters, groups
from prorl.lab.report.drawing import PALETTE, faded, label
from prorl.lab.report.page import Section
from prorl.lab.tables import Figure
from prorl.run.history import RunHistory

POINTS = 600  # drawn per series at most
CALM = 40  # the calm line is a mean over one in so many of all steps
NEUTRAL = "#7d858f"
CALM_POINTS = 300
FEW = 20  # points up to which each one is drawn
RAW_LINES = 2  # curves in a figure up to which the raw ones are drawn too

Curve = tuple[Sequence[int], Sequence[float]]
"""Steps and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pen:
    """How one curve is drawn."""

    name: str
    color: str
    width: float = 2.0
    dash: str = "solid"
    stacked: bool = False  # on the curves before it
    raw: bool = False  # with the light raw line below it
    legend: bool = True


def curve_sections(runs: Sequence[RunHistory]) -> list[Section]:
    """Every curve that any of the runs has numbers for, under a few headings."""
    found = groups(runs)
    marks = annotation_traces(found)
    made = [
        Section(
            key=chapter.key,
            title=chapter.title,
            figures=tuple(figure for chart in chapter.charts for figure in _figures(chart, found, marks)),
        )
        for chapter in chapters(runs)
    ]
    return [section for section in made if section.figures]


def _figures(chart: Chart, found: Sequence[Group], marks: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """The chart as one figure, or one per curve where runs are compared; none without a number."""
    if len(found) == 1:
        pens = _pens(chart)
        traces = [
            trace
            for line, pen in zip(chart.lines, pens, strict=True)
            for trace in _traces(chart, line, found[0], pen)
        ]
        if traces:
            yield _figure(chart, chart.key, chart.title, traces, marks)
        return
    for at, line in enumerate(chart.lines):
        pens = [Pen(name=group.label, color=group.color) for group in found]
        traces = [
            trace
            for group, pen in zip(found, pens, strict=True)
            for trace in _traces(chart, line, group, pen)
        ]
        title = chart.title if len(chart.lines) == 1 else f"{chart.title}: {line.label}"
        if traces:
            yield _figure(chart, f"{chart.key}-{at}", title, traces, marks)


def _pens(chart: Chart) -> list[Pen]:
    """A pen for each curve of one run."""
    colors = cycle(PALETTE)
    return [
        Pen(
            name=line.label,
            color=next(colors) if line.kind == "part" else NEUTRAL,
            width=3.0 if line.kind == "whole" else 1.8,
            dash="dot" if line.kind == "bound" else "solid",
            stacked=chart.shape == "stack",
            raw=chart.shape == "curve" and len(chart.lines) <= RAW_LINES,
            legend=len(chart.lines) > 1,
        )
        for line in chart.lines
    ]


def _figure(
    chart: Chart, key: str, title: str, traces: Sequence[dict[str, Any]], marks: Sequence[dict[str, Any]]
) -> Figure:
    vertical: dict[str, Any] = {"title": {"text": label(chart.unit)}, "rangemode": "tozero"}
    if all(y is None or y >= 0 for trace in traces if trace["mode"] != "none" for y in trace["y"]):
        vertical["autorangeoptions"] = {"clipmin": 0}  # an interval may reach below what can be
    if chart.percent:
        vertical |= {"tickformat": "~%"}
    return Figure(
        key=key,
        title=title,
        data=(*marks, *traces),
        layout={
            "xaxis": {"title": {"text": "step"}},
            "yaxis": vertical,
            "meta": {"wide": chart.wide and len(chart.lines) > 1 and key == chart.key},
            **LAYOUT,
        },
        note=chart.note,
    )


def _traces(chart: Chart, line: Line, group: Group, pen: Pen) -> list[dict[str, Any]]:
    """One curve of one group, which may have no numbers for it."""
    read = [
        (getattr(run, chart.source).steps, getattr(run, chart.source).get(line.column)) for run in group.runs
    ]
    curves = [(steps, values) for steps, values in read if any(map(math.isfinite, values))]
    if not curves:
        return []
    return _one(chart, curves[0], pen) if len(curves) == 1 else _several(chart, curves, pen)


def _one(chart: Chart, curve: Curve, pen: Pen) -> list[dict[str, Any]]:
    steps, values = curve
    main = _main(chart, pen)
    if chart.shape in ("points", "stairs") or len(steps) <= FEW:
        return [main | _xy(*thin(steps, values))]
    smooth = main | _xy(*thin(steps, calm(values), CALM_POINTS))
    raw = _below(pen) | {
        "mode": "lines",
        "line": {"color": faded(pen.color, 0.28), "width": 1},
        **_xy(*thin(steps, values)),
    }
    return [raw, smooth] if pen.raw else [smooth]


def _several(chart: Chart, curves: Sequence[Curve], pen: Pen) -> list[dict[str, Any]]:
    exact = chart.shape in ("points", "stairs")
    found = over_seeds(
        [dict(zip(steps, values if exact else calm(values), strict=True)) for steps, values in curves]
    )
    middle = _main(chart, pen) | _xy(*thin(found.steps, found.mean, CALM_POINTS))
    if pen.stacked:
        return [middle]  # an interval of one layer has no place among layers
    known = [at for at, low in enumerate(found.low) if math.isfinite(low)]
    xs = [found.steps[at] for at in known]
    top_x, top = thin(xs, [found.high[at] for at in known], CALM_POINTS)
    low_x, low = thin(xs, [found.low[at] for at in known], CALM_POINTS)
    band = _below(pen) | {
        "mode": "none",
        "fill": "toself",
        "fillcolor": faded(pen.color, 0.18),
        **_xy([*top_x, *reversed(low_x)], [*top, *reversed(low)]),
    }
    return [band, middle]


def _main(chart: Chart, pen: Pen) -> dict[str, Any]:
    """The trace of a curve without its points."""
    name = label(pen.name)
    line = {"color": pen.color, "width": 0.8 if pen.stacked else pen.width, "dash": pen.dash}
    return {
        "type": "scatter",
        "name": name,
        "legendgroup": name,
        "showlegend": pen.legend,
        "mode": "lines+markers" if chart.shape == "points" else "lines",
        "line": line | ({"shape": "hv"} if chart.shape == "stairs" else {}),
        "marker": {"color": pen.color, "size": 6},
        "hovertemplate": "%{y:.1%}" if chart.percent else "%{y:.4g}",
        **({"stackgroup": "all", "fillcolor": faded(pen.color, 0.45)} if pen.stacked else {}),
    }


def _below(pen: Pen) -> dict[str, Any]:
    """What lies below a curve goes with it: no legend entry, no hover text of its own."""
    name = label(pen.name)
    return {"type": "scatter", "name": name, "legendgroup": name, "showlegend": False, "hoverinfo": "skip"}


def _xy(xs: Sequence[float], ys: Sequence[float]) -> dict[str, Any]:
    return {"x": list(xs), "y": short(ys)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over seeds at some steps, and the 95 % interval of it."""

    steps: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def thin(xs: Sequence[float], ys: Sequence[float], limit: int = POINTS) -> tuple[list[float], list[float]]:
    """At most `limit` points of a curve, in order: its first and last one, and the extremes of every stretch between.

    A stretch without a number leaves a NaN, which is drawn as a gap.
    """
    count = len(xs)
    if count <= limit:
        return list(xs), list(ys)
    stretches = (limit - 2) // 2
    edges = [1 + (count - 2) * i // stretches for i in range(stretches + 1)]
    kept = [0]
    for start, end in pairwise(edges):
        finite = [at for at in range(start, end) if math.isfinite(ys[at])]
        low, high = (
            (min(finite, key=ys.__getitem__), max(finite, key=ys.__getitem__)) if finite else (start, start)
        )
        kept += sorted({low, high})
    kept.append(count - 1)
    return [xs[at] for at in kept], [ys[at] for at in kept]


def calm(ys: Sequence[float], window: int | None = None) -> list[float]:
    """The mean over `window` values around each one; what is not finite counts as missing, and stays so alone."""
    half = (max(1, len(ys) // CALM) if window is None else window) // 2
    finite = [math.isfinite(y) for y in ys]
    sums = [0.0, *accumulate(y if good else 0.0 for y, good in zip(ys, finite, strict=True))]
    counts = [0, *accumulate(finite)]
    smooth = []
    for at in range(len(ys)):
        start, end = max(0, at - half), min(len(ys), at + half + 1)
        number = counts[end] - counts[start]
        smooth.append((sums[end] - sums[start]) / number if number and finite[at] else math.nan)
    return smooth


def over_seeds(curves: Sequence[Mapping[int, float]]) -> Interval:
    """Mean and 95 % t-interval of several curves (step → value) at the steps that all of them have."""
    steps = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    rows = [[curve[step] for curve in curves] for step in steps]
    means = [fmean(row) if all(map(math.isfinite, row)) else math.nan for row in rows]
    bands = [_band(row) for row in rows]
    return Interval(steps=steps, mean=means, low=[low for low, _ in bands], high=[high for _, high in bands])


def _band(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan, math.nan
    return t_interval(values)


def short(values: Sequence[float]) -> list[float | None]:
    """Numbers as they travel to the page: six significant digits, and null for what is not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
