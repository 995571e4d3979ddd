"""Which figures of a run are drawn together, and how to read them: made from the table of metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from prorl.control.metrics import STEP, VALIDATION, Metric
from prorl.run.history import RunHistory

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
                note="What became of the drawn problems: trained on, or thrown away since all their scores were "
                "alike.",
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
        "learning_rate": "As used, with what detectors and the operator changed.",
        "kl_coef": "The price of leaving the reference.",
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
