"""Which numbers of a run are drawn together and how to read them; what happened meanwhile, drawn over them.

Data alone: `curves.py` draws the charts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Literal

from prorl.config.care import SECTIONS
from prorl.lab.report.drawing import PALETTE, faded, label
from prorl.lab.report.reader import RunRecord

Values = Callable[[RunRecord], Sequence[float]]
Kind = Literal["part", "whole", "bound"]  # whole: what the parts make up; bound: what they may reach

LONGEST_LABEL = 40  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve: a value for every step, or every exam, of a run."""

    label: str
    values: Values
    kind: Kind = "part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves that belong in one picture of one run; of several runs each curve has its own."""

    key: str
    title: str
    note: str
    lines: tuple[Line, ...]
    source: Literal["steps", "exams"] = "steps"
    shape: Literal["curve", "stack", "stairs", "points"] = "curve"
    unit: str = ""
    percent: bool = False
    wide: bool = False  # as wide as the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Charts under one heading."""

    key: str
    title: str
    charts: tuple[Chart, ...]


def chapters(runs: Sequence[RunRecord]) -> list[Chapter]:
    """All charts, by what they tell; domains and phases are those of the runs."""

    def below(prefix: str, source: Literal["steps", "exams"] = "steps") -> list[str]:
        return sorted({name for run in runs for name in getattr(run, source).below(prefix)})

    learning = (
        Chart(
            key="exam",
            title="Exam",
            note="pass@1 on problems held out of training. Exams may steer resets, so an evaluation says more.",
            source="exams",
            shape="points",
            percent=True,
            wide=True,
            lines=(
                column("exam.score", "mean pass@1", "whole"),
                column("exam.pass_at_n", "mean pass@n", "bound"),
                *(column(f"exam.domains.{name}", name) for name in below("domains", "exams")),
            ),
        ),
        Chart(
            key="reward",
            title="Score and reward",
            note="Score: of all judged groups. Reward: what was trained on, after filtering and shaping.",
            lines=(column("tally.score", "score"), column("tally.reward", "reward")),
        ),
        Chart(
            key="domains",
            title="Score per domain",
            note="Mean score of all judged groups, rejected ones included: those without a verifier error.",
            lines=tuple(column(f"tally.domain_scores.{name}", name) for name in below("tally.domain_scores")),
        ),
    )
    phases = [name for name in below("seconds") if name != "total"]
    return [
        Chapter(key="learning", title="Learning", charts=learning),
        Chapter(key="policy", title="Policy", charts=_policy()),
        Chapter(key="sampling", title="Sampling", charts=_sampling()),
        Chapter(key="knobs", title="Hyperparameters", charts=_hyperparameters()),
        Chapter(key="speed", title="Speed", charts=_speed(phases)),
    ]


def column(name: str, label: str, kind: Kind = "part") -> Line:
    """A curve that the journal holds as it is."""
    if name.startswith("exam."):
        return Line(label=label, values=lambda run: run.exams.get(name.removeprefix("exam.")), kind=kind)
    return Line(label=label, values=lambda run: run.steps.get(name), kind=kind)


def _ratio(label: str, above: str, below: str) -> Line:
    """A curve of quotients; NaN where nothing is divided by."""

    def values(run: RunRecord) -> list[float]:
        pairs = zip(run.steps.get(above), run.steps.get(below), strict=True)
        return [a / b if b else math.nan for a, b in pairs]

    return Line(label=label, values=values)


def _policy() -> tuple[Chart, ...]:
    token = "nats per token"
    named = (
        (
            "entropy",
            "Entropy",
            token,
            "Near zero the policy no longer explores; a surge means that it falls apart.",
        ),
        ("kl", "KL to the reference", token, "Falls to zero at a reset and climbs as the policy moves on."),
        ("grad_norm", "Gradient norm", "", "Before clipping."),
        (
            "mismatch",
            "Mismatch of engine and learner",
            "|log w|",
            "Difference of the log-probabilities that both give one token; should stay small.",
        ),
    )
    clipped = Chart(
        key="clip",
        title="Tokens held back",
        note="Share of tokens whose ratio was clipped, or whose weight left the mismatch bounds.",
        percent=True,
        lines=(
            column("update.clip_share", "clipped"),
            column("update.mismatch_out_share", "outside mismatch bounds"),
        ),
    )
    return (
        *(
            Chart(
                key=key,
                title=title,
                unit=unit,
                note=note,
                lines=(column(f"update.{key}", key.replace("_", " ")),),
            )
            for key, title, unit, note in named
        ),
        clipped,
    )


def _sampling() -> tuple[Chart, ...]:
    fates = {"accepted": "informative", "easy": "too easy", "hard": "too hard", "errors": "verifier errors"}
    return (
        Chart(
            key="length",
            title="Response length",
            unit="tokens",
            note="Mean over the responses of all groups without a verifier error.",
            lines=(column("tally.length", "length"),),
        ),
        Chart(
            key="truncated",
            title="Cut off and unanswered",
            note="Share of judged responses that hit the length limit, and that hold no answer in the form asked.",
            percent=True,
            lines=(column("tally.truncated", "cut off"), column("tally.unanswered", "no answer")),
        ),
        Chart(
            key="informative",
            title="Informative share",
            note="What became of the drawn problems: trained on, or dropped because all their scores were equal.",
            percent=True,
            shape="stack",
            lines=tuple(_ratio(told, f"tally.{name}", "tally.draws") for name, told in fates.items()),
        ),
    )


def _hyperparameters() -> tuple[Chart, ...]:
    named = (
        ("learning_rate", "Learning rate", "As used, with the changes by detectors and the operator."),
        ("kl_coef", "KL coefficient", "Weight of the KL penalty that keeps the policy near the reference."),
        ("length_weight", "Length penalty", "Weight of the cosine length penalty; zero outside its windows."),
    )
    return tuple(
        Chart(key=key, title=title, note=note, shape="stairs", lines=(column(key, title.lower()),))
        for key, title, note in named
    )


def _speed(phases: Iterable[str]) -> tuple[Chart, ...]:
    return (
        Chart(
            key="seconds",
            title="Step time by phase",
            unit="seconds",
            note="Wall clock of a training step; exams and checkpoints come on top.",
            shape="stack",
            lines=tuple(column(f"seconds.{name}", name) for name in phases),
        ),
        Chart(
            key="tokens",
            title="Sampled tokens per second",
            note="All sampled tokens over the whole time of the step.",
            lines=(_ratio("tokens/s", "tally.sampled_tokens", "seconds.total"),),
        ),
    )


# -- runs that are one experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs whose recipes differ in nothing but the seed: one colour of an overlay."""

    label: str
    color: str
    runs: tuple[RunRecord, ...]


def groups(runs: Sequence[RunRecord]) -> list[Group]:
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
    return {key: value for key, value in recipe.items() if key not in ("seed", "name", *SECTIONS)}


def _label(runs: Sequence[RunRecord]) -> str:
    names = ", ".join(run.name for run in runs)
    return names if len(names) <= LONGEST_LABEL else f"{runs[0].name} … {runs[-1].name} ({len(runs)} seeds)"


# -- annotations: what happened, drawn over every curve

MARK_COLORS: Mapping[str, str] = MappingProxyType(
    {
        "reset": "#b8508f",
        "stage": "#1f9a85",
        "intervention": "#d9622b",
        "roll back": "#c8323c",
        "order": "#6a63c6",
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
            traces.append(_lines(kind, [(mark.step, mark.text) for _, _, mark in marks]))
        elif marks:
            ticks = [(color, mark.step, f"{run.name}: {mark.text}") for color, run, mark in marks]
            traces.append(_ticks(kind, ticks))
    return traces


def penalty_windows(runs: Sequence[RunRecord]) -> list[tuple[int, int]]:
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


def _lines(kind: str, marks: Sequence[tuple[int, str]]) -> dict[str, Any]:
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
