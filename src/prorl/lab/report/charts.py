"""Which figures of a run are drawn together, from the table of metrics; what happened meanwhile, drawn over them.

Data alone: `curves.py` draws the charts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, Literal

from prorl.config.schema import RUNTIME_SECTIONS
from prorl.control.metrics import STEP, VALIDATION, Metric
from prorl.lab.report.drawing import PALETTE, faded, label
from prorl.run.history import RunHistory

LONGEST_LABEL = 40  # characters

Shape = Literal["curve", "stack", "stairs", "points"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve: a column of the runs."""

    label: str
    column: str
    kind: Literal["part", "whole", "bound"] = (
        "part"  # whole: what the parts make up; bound: what they may reach
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves that belong in one picture of one run; of several runs each curve has its own."""

    key: str
    title: str
    note: str = ""
    lines: tuple[Line, ...] = ()
    source: Literal["steps", "validations"] = "steps"
    shape: Shape = "curve"
    unit: str = ""
    percent: bool = False
    wide: bool = False  # as wide as the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Charts under one heading."""

    key: str
    title: str
    charts: tuple[Chart, ...]


SHARED: Mapping[str, Chart] = MappingProxyType(
    {
        chart.key: chart
        for chart in (
            Chart(
                key="validation",
                title="Validation",
                note="Problems held out of training. Validations may steer resets, so that an evaluation on test "
                "problems says more.",
                source="validations",
                shape="points",
                percent=True,
                wide=True,
            ),
            Chart(
                key="reward",
                title="Score and reward",
                note="Score: of all judged groups. Reward: what was trained on, after filtering and shaping.",
            ),
            Chart(
                key="domains",
                title="Score per domain",
                note="Mean score of all judged groups, rejected ones included: those without a verifier error.",
            ),
            Chart(
                key="clip",
                title="Tokens held back",
                note="Share of tokens whose ratio was clipped, or whose weight left the mismatch bounds.",
                percent=True,
            ),
            Chart(
                key="truncated",
                title="Cut off and unanswered",
                note="Share of judged responses that hit the length limit, and that hold no answer in the form "
                "asked.",
                percent=True,
            ),
            Chart(
                key="informative",
                title="Informative share",
                note="What became of the drawn problems: trained on, or dropped because all their scores were "
                "equal.",
                percent=True,
                shape="stack",
            ),
            Chart(
                key="seconds",
                title="Step time by phase",
                note="Wall clock of a training step; validations and checkpoints come on top.",
                unit="seconds",
                shape="stack",
            ),
        )
    }
)
"""Charts of several metrics; any other metric has a chart of its own, from its row in the table."""

KINDS: Mapping[str, Literal["whole", "bound"]] = MappingProxyType({"score": "whole", "pass_at_n": "bound"})


NOTES: Mapping[str, str] = MappingProxyType(
    {
        "entropy": "Near zero the policy no longer explores; a surge means that it falls apart.",
        "kl": "Falls to zero at a reset and climbs as the policy moves on.",
        "grad_norm": "Before clipping.",
        "mismatch": "Should stay small: both compute the same policy.",
        "length": "Mean over the responses of all groups without a verifier error.",
        "learning_rate": "As used, with the changes by detectors and the operator.",
        "kl_coef": "Weight of the KL penalty that keeps the policy near the reference.",
        "length_weight": "Weight of the cosine length penalty; zero outside its windows.",
        "tokens_per_second": "All sampled tokens over the whole time of the step.",
    }
)


def chapters(runs: Sequence[RunHistory]) -> list[Chapter]:
    """All charts, by what they tell; domains and phases are those of the runs."""
    made: dict[str, dict[str, Chart]] = {}
    for metric in (*VALIDATION, *STEP):
        if metric.chart is not None:
            key = metric.chart or metric.name
            charts = made.setdefault(metric.chapter, {})
            chart = charts.get(key) or SHARED.get(key) or _own(metric)
            charts[key] = replace(chart, lines=(*chart.lines, *_lines(metric, chart.source, runs)))
    return [
        Chapter(key=name, title=name.capitalize(), charts=tuple(charts.values()))
        for name, charts in made.items()
    ]


def _own(metric: Metric) -> Chart:
    return Chart(
        key=metric.name,
        title=metric.title,
        note=NOTES.get(metric.name, ""),
        unit=metric.unit,
        shape="stairs" if metric.chapter == "schedule" else "curve",
    )


def _lines(metric: Metric, source: str, runs: Sequence[RunHistory]) -> Iterator[Line]:
    if not metric.key.endswith(".*"):
        yield Line(label=metric.label, column=metric.key, kind=KINDS.get(metric.key, "part"))
        return
    family = metric.key[:-2]
    for name in sorted({name for run in runs for name in getattr(run, source).below(family)} - {"total"}):
        yield Line(label=name, column=f"{family}.{name}")


# -- runs that are one experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs whose recipes differ in nothing but the seed: one colour of an overlay."""

    label: str
    color: str
    runs: tuple[RunHistory, ...]


def groups(runs: Sequence[RunHistory]) -> list[Group]:
    """The runs by recipe, in the order given."""
    return [
        Group(label=_label(alike), color=PALETTE[at % len(PALETTE)], runs=tuple(alike))
        for at, positions in enumerate(repetitions([run.config for run in runs]))
        for alike in [[runs[position] for position in positions]]
    ]


def repetitions(recipes: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
    """Positions of the recipes that differ only in their seed, in order of first appearance.

    Runs of one recipe and one seed are no independent repetitions, so they are never in one group; nor is a run whose
    recipe could not be read.
    """
    found: list[tuple[str, dict[Any, int]]] = []
    for position, recipe in enumerate(recipes):
        key, seed = json.dumps(experiment(recipe), sort_keys=True), recipe.get("seed")
        alike = (seeds for other, seeds in found if other == key and seed not in seeds)
        group = next(alike, None) if recipe else None
        if group is None:
            found.append((key, {seed: position}))
        else:
            group[seed] = position
    return [tuple(seeds.values()) for _, seeds in found]


def experiment(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What makes an experiment: a recipe without its name, its seed and the settings that change no result."""
    return {key: value for key, value in recipe.items() if key not in ("seed", "name", *RUNTIME_SECTIONS)}


def _label(runs: Sequence[RunHistory]) -> str:
    names = ", ".join(run.name for run in runs)
    return names if len(names) <= LONGEST_LABEL else f"{runs[0].name} … {runs[-1].name} ({len(runs)} seeds)"


# -- annotations: what happened, drawn over every curve

MARK_COLORS: Mapping[str, str] = MappingProxyType(
    {
        "reset": "#b8508f",
        "stage": "#1f9a85",
        "intervention": "#d9622b",
        "roll back": "#c8323c",
        "command": "#6a63c6",
        "resume": "#7d858f",
        "warning": "#a5821a",
    }
)
"""Kind of annotation → colour of its thin line; the end of a run needs none."""

# Annotations have an axis of their own from 0 to 1, so that they reach from bottom to top whatever the curve does.
LAYOUT = {"yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}}
HOVER_WIDTH = 70  # characters of a line of hover text
SHADE = "#a5821a"


def annotation_traces(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Penalty windows and events of all runs: lines for a single run, ticks in its colour where there are several.

    Every kind is one entry of the legend, which hides and shows it.
    """
    runs = [(group.color, run) for group in found for run in group.runs]
    windows = penalty_windows([run for _, run in runs])
    traces = [_shades(windows)] if windows else []
    for kind in MARK_COLORS:
        marks = [(color, run, mark) for color, run in runs for mark in run.marks if mark.kind == kind]
        if marks and len(runs) == 1:
            traces.append(_event_lines(kind, [(mark.step, mark.text) for _, _, mark in marks]))
        elif marks:
            ticks = [(color, mark.step, f"{run.name}: {mark.text}") for color, run, mark in marks]
            traces.append(_ticks(kind, ticks))
    return traces


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


def _event_lines(kind: str, marks: Sequence[tuple[int, str]]) -> dict[str, Any]:
    color, size = MARK_COLORS[kind], [0, 8, 0] * len(marks)
    return _over(
        kind,
        x=[x for step, _ in marks for x in (step, step, None)],
        y=[0, 1, None] * len(marks),
        text=[hover for _, text in marks for hover in ("", label(text, width=HOVER_WIDTH), "")],
        hoverinfo=["skip", "text", "skip"] * len(marks),
        mode="lines+markers",
        line={"color": faded(color, 0.55), "width": 1},
        marker={"color": color, "symbol": "triangle-down", "size": size, "opacity": 1},
    )


def _ticks(kind: str, marks: Sequence[tuple[str, int, str]]) -> dict[str, Any]:
    return _over(
        kind,
        x=[step for _, step, _ in marks],
        y=[0.03] * len(marks),
        text=[label(text, width=HOVER_WIDTH) for _, _, text in marks],
        hoverinfo="text",
        mode="markers",
        marker={"color": [color for color, _, _ in marks], "symbol": "line-ns-open", "size": 12},
    )


def _over(name: str, **trace: Any) -> dict[str, Any]:
    return {"type": "scatter", "name": name, "yaxis": "y2", "legendgroup": name, "legendrank": 2000, **trace}
