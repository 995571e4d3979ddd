"""The curves of one run or an overlay of several, as figures; what happened meanwhile, drawn over them.

One run: every chart is one figure, a smoothed line over the light raw one. Several: a figure per curve, a colour per
recipe, and where runs differ only in their seed the mean over seeds in its 95 % interval.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, cycle, pairwise
from statistics import fmean, stdev
from typing import Any, Literal

from prorl.config.schema import RUNTIME_SECTIONS
from prorl.control.metrics import STEP, VALIDATION
from prorl.lab.report.drawing import GREY, PALETTE, Trace, band, faded, label
from prorl.lab.report.page import Section
from prorl.lab.tables import Figure
from prorl.run.history import RunHistory

POINTS = 600  # drawn per series at most
SMOOTHING = 40  # the smoothed line is a mean over one in so many of all steps
SMOOTHED_POINTS = 300
MARKS_DRAWN = 200  # of a kind and run, the newest
FEW = 20  # points up to which each one is drawn
RAW_LINES = 2  # curves in a figure up to which the raw ones are drawn too
LONGEST_LABEL = 40  # characters
HOVER_WIDTH = 70  # characters of a line of hover text


# -- which figures of a run are drawn together, from the table of metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves that belong in one picture of one run; of several runs each curve has its own."""

    key: str
    title: str
    lines: tuple[tuple[str, str], ...] = ()  # label of each curve, and the column of the runs that it is
    source: Literal["steps", "validations"] = "steps"
    shape: Literal["curve", "stack", "stairs", "points"] = "curve"
    unit: str = ""
    percent: bool = False


SHARED: Mapping[str, Chart] = {
    chart.key: chart
    for chart in (
        Chart(key="validation", title="Validation", source="validations", shape="points", percent=True),
        Chart(key="reward", title="Score and reward"),
        Chart(key="domains", title="Score per domain"),
        Chart(key="levels", title="Highest level in play", shape="stairs"),
        Chart(key="top", title="Score on the highest level in play", percent=True),
        Chart(key="positions", title="Mismatch by position in the response", unit="mean exp |log w|"),
        Chart(key="clip", title="Tokens held back", percent=True),
        Chart(key="truncated", title="Cut off and unanswered", percent=True),
        Chart(key="informative", title="Informative share", percent=True, shape="stack"),
        Chart(key="seconds", title="Step time by phase", unit="seconds", shape="stack"),
    )
}
"""Charts of several metrics; any other metric has a chart of its own, from its row in the table."""

NOTES: Mapping[str, str] = {
    "validation": "Problems held out of training. Validations may steer resets, so that an evaluation on test "
    "problems says more.",
    "reward": "Score: of all judged groups. Reward: what was trained on, after filtering and shaping.",
    "domains": "Mean score of all judged groups, rejected ones included: those without a verifier error.",
    "levels": "Of tasks with adaptive levels. The next level comes into play when the highest one is mastered.",
    "top": "Of tasks with adaptive levels: it falls when a level comes into play, and rises as it is learned.",
    "clip": "Share of tokens whose ratio was clipped, or whose weight left the mismatch bounds.",
    "truncated": "Share of judged responses that hit the length limit, and of those without an answer.",
    "informative": "What became of the drawn problems: trained on, or dropped because all scores were equal.",
    "seconds": "Wall clock of a training step; validations and checkpoints come on top.",
    "entropy": "Near zero the policy no longer explores; a surge means that it falls apart.",
    "kl": "Falls to zero at a reset and climbs as the policy moves on.",
    "grad_norm": "Before clipping.",
    "mismatch": "Should stay small: both compute the same policy.",
    "positions": "1 where engine and learner agree, from each of these tokens on. Above 1.05 the engine errs.",
    "length": "Mean over the responses of all groups without a verifier error.",
    "learning_rate": "As used, with the changes by detectors and the operator.",
    "kl_coef": "Weight of the KL penalty that keeps the policy near the reference.",
    "length_weight": "Weight of the cosine length penalty; zero outside its windows.",
    "tokens_per_second": "All sampled tokens over the whole time of the step.",
}
WHOLE: Mapping[str, Mapping[str, Any]] = {
    "score": {"width": 3.0, "dash": "solid"},
    "pass_at_n": {"width": 1.8, "dash": "dot"},
}
"""Lines of what the other curves of a chart make up, and of what they may reach; grey where these have colours."""


def chapters(runs: Sequence[RunHistory]) -> dict[str, list[Chart]]:
    """All charts, by what they tell; domains and phases are those of the runs."""
    made: dict[str, dict[str, Chart]] = {}
    for metric in (*VALIDATION, *STEP):
        if metric.chart is not None:
            key = metric.chart or metric.name
            charts = made.setdefault(metric.chapter, {})
            shape: Any = "stairs" if metric.chapter == "schedule" else "curve"
            own = Chart(key=key, title=metric.title, unit=metric.unit, shape=shape)
            chart = charts.get(key) or SHARED.get(key) or own
            lines, family = [(metric.label, metric.key)], metric.key.removesuffix(".*")
            if family != metric.key:
                names = {name for run in runs for name in getattr(run, chart.source).below(family)}
                lines = [(name, f"{family}.{name}") for name in sorted(names - {"total"})]
            charts[key] = replace(chart, lines=(*chart.lines, *lines))
    return {name: list(charts.values()) for name, charts in made.items()}


# -- runs that are one experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs whose recipes differ in nothing but the seed: one colour of an overlay."""

    label: str
    color: str
    runs: tuple[RunHistory, ...]


def groups(runs: Sequence[RunHistory]) -> list[Group]:
    """The runs by recipe, in the order given."""
    found, named = [], told_apart(runs)
    for at, positions in enumerate(repetitions(runs)):
        names = ", ".join(named[position] for position in positions)
        if len(positions) > 1 and len(names) > LONGEST_LABEL:
            names = f"{named[positions[0]]} … {named[positions[-1]]} ({len(positions)} seeds)"
        alike = tuple(runs[position] for position in positions)
        found.append(Group(label=names, color=PALETTE[at % len(PALETTE)], runs=alike))
    return found


def told_apart(runs: Sequence[RunHistory]) -> list[str]:
    """The runs' names, or their folders where two have one name."""
    alike = Counter(run.name for run in runs)
    return [run.name if alike[run.name] == 1 else str(run.folder) for run in runs]


def repetitions(runs: Sequence[RunHistory]) -> list[tuple[int, ...]]:
    """Positions of the runs whose recipes differ only in their seed, in order of first appearance.

    Runs that share steps are no independent repetitions, so they are never in one group: those of one recipe and
    seed, a branch and its parent, two branches of one parent; nor is a run whose recipe could not be read.
    """
    found: list[list[int]] = []
    for position, run in enumerate(runs):
        for group in found:
            if all(_repeats(run, runs[other]) for other in group):
                group.append(position)
                break
        else:
            found.append([position])
    return [tuple(group) for group in found]


def _repeats(one: RunHistory, other: RunHistory) -> bool:
    if not one.config or experiment(one.config) != experiment(other.config):
        return False
    mine, others = ({parent.partition("@")[0] for parent in run.branches} for run in (one, other))
    share_steps = mine & {other.folder.name, *others} or one.folder.name in others
    return not share_steps and one.config.get("seed") != other.config.get("seed")


def experiment(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What makes an experiment: a recipe without its name, its seed and the settings that change no result."""
    return {key: value for key, value in recipe.items() if key not in ("seed", "name", *RUNTIME_SECTIONS)}


# -- figures


def curve_sections(runs: Sequence[RunHistory]) -> list[Section]:
    """Every curve that any of the runs has numbers for, under a few headings."""
    found = groups(runs)
    marks = annotation_traces(runs)
    made = []
    for name, charts in chapters(runs).items():
        figures = tuple(figure for chart in charts for figure in _figures(chart, found, marks))
        if figures:
            made.append(Section(key=name, title=name.capitalize(), figures=figures))
    return made


def _figures(chart: Chart, found: Sequence[Group], marks: Sequence[Trace]) -> Iterator[Figure]:
    """The chart as one figure, or one per curve where runs are compared; none without a number."""
    alone = len(found) == 1
    for at, lines in enumerate([chart.lines] if alone else [(line,) for line in chart.lines]):
        colors = cycle(PALETTE)
        traces: list[Trace] = []
        for name, column in lines:
            for group in found:
                own = GREY if column in WHOLE else next(colors)
                shown = (name, own) if alone else (group.label, group.color)
                raw = alone and chart.shape == "curve" and len(lines) <= RAW_LINES
                main = _main(chart, column, *shown, alone=alone)
                traces += _traces(chart, column, group.runs, main, raw=raw)
        if traces:
            title = chart.title if len(lines) == len(chart.lines) else f"{chart.title}: {lines[0][0]}"
            yield Figure(
                key=chart.key if alone else f"{chart.key}-{at}",
                title=title,
                data=(*marks, *traces),
                layout=_layout(chart, traces, wide=alone and chart.key == "validation"),
                note=NOTES.get(chart.key, ""),
            )


def _layout(chart: Chart, traces: Sequence[Trace], *, wide: bool) -> dict[str, Any]:
    vertical: dict[str, Any] = {"title": {"text": label(chart.unit)}, "rangemode": "tozero"}
    if all(y is None or y >= 0 for trace in traces if trace["mode"] != "none" for y in trace["y"]):
        vertical["autorangeoptions"] = {"clipmin": 0}  # an interval may reach below what can be
    if chart.percent:
        vertical["tickformat"] = "~%"
    # Annotations have an axis of their own, from bottom to top whatever the curve does.
    over = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    step = {"title": {"text": "step"}}
    return {"xaxis": step, "yaxis": vertical, "yaxis2": over, "meta": {"wide": wide}}


def _main(chart: Chart, column: str, name: str, color: str, *, alone: bool) -> Trace:
    """The trace of a curve without its points; `alone`: of one recipe, whose curves share a figure."""
    line = {"color": color, "width": 1.8, "dash": "solid", **WHOLE.get(column, {})}
    trace: Trace = {
        "type": "scatter",
        "name": label(name),
        "legendgroup": label(name),
        "showlegend": not alone or len(chart.lines) > 1,
        "mode": "lines+markers" if chart.shape == "points" else "lines",
        "line": line | ({"shape": "hv"} if chart.shape == "stairs" else {}),
        "marker": {"color": color, "size": 6},
        "hovertemplate": "%{y:.1%}" if chart.percent else "%{y:.4g}",
    }
    if not alone or chart.shape != "stack":
        return trace
    return trace | {"stackgroup": "all", "fillcolor": faded(color, 0.45), "line": line | {"width": 0.8}}


def _traces(chart: Chart, column: str, runs: Sequence[RunHistory], main: Trace, *, raw: bool) -> list[Trace]:
    """One curve of runs that differ in their seed; nothing where they have no numbers for it."""
    found = [getattr(run, chart.source) for run in runs]
    read = [(columns.steps, columns.get(column)) for columns in found]
    curves = [(steps, values) for steps, values in read if any(map(math.isfinite, values))]
    exact = chart.shape in ("points", "stairs")
    if len(curves) > 1:
        return _several(curves if exact else [(steps, smoothed(values)) for steps, values in curves], main)
    if not curves:
        return []
    ((steps, values),) = curves
    if exact or len(steps) <= FEW:
        return [main | _thinned(steps, values)]
    smooth = main | _thinned(steps, smoothed(values), SMOOTHED_POINTS)
    light = {"color": faded(main["marker"]["color"], 0.28), "width": 1}
    below = main | {"showlegend": False, "hoverinfo": "skip", "line": light} | _thinned(steps, values)
    return [below, smooth] if raw else [smooth]


def _several(curves: Sequence[tuple[Sequence[int], Sequence[float]]], main: Trace) -> list[Trace]:
    """The mean of curves (steps, values) in its interval."""
    found = over_seeds([dict(zip(*curve, strict=True)) for curve in curves])
    middle = main | _thinned([*found], [mean for mean, _, _ in found.values()], SMOOTHED_POINTS)
    if "stackgroup" in main:
        return [middle]  # an interval of one layer has no place among layers
    known = {step: ends for step, (_, *ends) in found.items() if math.isfinite(ends[0])}
    top, bottom = (
        _thinned([*known], [ends[at] for ends in known.values()], SMOOTHED_POINTS) for at in (1, 0)
    )
    outline = ([*top[axis], *reversed(bottom[axis])] for axis in "xy")
    return [band(main["name"], main["marker"]["color"], *outline), middle]


def _thinned(xs: Sequence[float], ys: Sequence[float], limit: int = POINTS) -> Trace:
    kept_x, kept_y = thin(xs, ys, limit)
    return {"x": kept_x, "y": short(kept_y)}


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
        finite = [at for at in range(start, end) if math.isfinite(ys[at])] or [start]
        kept += sorted({min(finite, key=ys.__getitem__), max(finite, key=ys.__getitem__)})
    kept.append(count - 1)
    return [xs[at] for at in kept], [ys[at] for at in kept]


def smoothed(ys: Sequence[float], window: int | None = None) -> list[float]:
    """The mean over `window` values around each one; what is not finite counts as missing, and stays so alone."""
    half = (max(1, len(ys) // SMOOTHING) if window is None else window) // 2
    finite = [math.isfinite(y) for y in ys]
    sums = [0.0, *accumulate(y if good else 0.0 for y, good in zip(ys, finite, strict=True))]
    counts = [0, *accumulate(finite)]
    smooth = []
    for at in range(len(ys)):
        start, end = max(0, at - half), min(len(ys), at + half + 1)
        number = counts[end] - counts[start]
        smooth.append((sums[end] - sums[start]) / number if number and finite[at] else math.nan)
    return smooth


def over_seeds(curves: Sequence[Mapping[int, float]]) -> dict[int, tuple[float, float, float]]:
    """At the steps that all curves (step → value) have: the mean and both ends of its 95 % t-interval."""
    found = {}
    for step in sorted(set.intersection(*(set(curve) for curve in curves))):
        row = [curve[step] for curve in curves]
        finite = all(map(math.isfinite, row))
        ends = t_interval(row) if finite and len(row) > 1 else (math.nan, math.nan)
        found[step] = (fmean(row) if finite else math.nan, *ends)
    return found


def short(values: Sequence[float]) -> list[float | None]:
    """Numbers as they travel to the page: six significant digits, and null for what is not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


# -- annotations: what happened, drawn over every curve

MARK_COLORS: Mapping[str, str] = {
    "reset": "#b8508f",
    "stage": "#1f9a85",
    "level": "#5a9e3a",
    "intervention": "#d9622b",
    "roll back": "#c8323c",
    "command": "#6a63c6",
    "resume": "#7d858f",
    "warning": "#a5821a",
}
"""Kind of annotation → colour of its thin line; the end of a run needs none."""

TICK = 0.06  # of the height


def annotation_traces(runs: Sequence[RunHistory]) -> list[Trace]:
    """Events of all runs: lines for a single run, short ones that name the run where there are several.

    Every kind is one entry of the legend, which hides and shows it.
    """
    traces: list[Trace] = []
    named = [*zip(told_apart(runs), runs, strict=True)]
    for kind, color in MARK_COLORS.items():
        marks = [
            (name, mark)
            for name, run in named
            for mark in [one for one in run.marks if one.kind == kind][-MARKS_DRAWN:]
        ]
        told = [mark.text if len(runs) == 1 else f"{name}: {mark.text}" for name, mark in marks]
        if marks:
            sizes = [0, 8, 0] * len(marks)
            traces.append(
                {
                    "type": "scatter",
                    "name": kind,
                    "legendgroup": kind,
                    "legendrank": 2000,
                    "yaxis": "y2",
                    "x": [x for _, mark in marks for x in (mark.step, mark.step, None)],
                    "y": [0, 1 if len(runs) == 1 else TICK, None] * len(marks),
                    "text": [hover for text in told for hover in ("", label(text, width=HOVER_WIDTH), "")],
                    "hoverinfo": ["skip", "text", "skip"] * len(marks),
                    "mode": "lines+markers",
                    "line": {"color": faded(color, 0.55), "width": 1},
                    "marker": {"color": color, "symbol": "triangle-down", "size": sizes, "opacity": 1},
                }
            )
    return traces


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean of two or more independent, normal values: mean ± t(n - 1) · s / √n."""
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


@cache
def t_quantile(freedom: int) -> float:
    """The t for which P(|T| ≤ t) = 0.95, T of Student's distribution with `freedom` degrees."""
    from mpmath import MPContext

    mp = MPContext()  # of its own: pages are made in threads, and the precision of a context is everybody's

    def outside(t: Any) -> Any:
        return mp.betainc(freedom / 2, 0.5, 0, freedom / (freedom + t * t), regularized=True)

    return float(mp.findroot(lambda t: outside(t) - 0.05, 2))
