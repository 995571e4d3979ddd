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

    def each(prefix: str, source: Literal["steps", "exams"] = "steps") -> dict[str, str]:
        """Column and label of everything below a prefix that any run has."""
        found = {name for run in runs for name in getattr(run, source).below(prefix)}
        return {f"{prefix}.{name}": name for name in sorted(found)}

    exam = Chart(
        key="exam",
        title="Exam",
        note="pass@1 on problems held out of training. Exams may steer resets, so an evaluation says more.",
        lines=(
            Line(label="mean pass@1", values=lambda run: run.exams.get("score"), kind="whole"),
            Line(label="mean pass@n", values=lambda run: run.exams.get("pass_at_n"), kind="bound"),
            *_columns(each("domains", "exams"), "exams"),
        ),
        source="exams",
        shape="points",
        percent=True,
        wide=True,
    )
    phases = {column: name for column, name in each("seconds").items() if name != "total"}
    speed = (
        _chart("seconds", "Step time by phase", STEP_TIME, _columns(phases), shape="stack", unit="seconds"),
        _chart("tokens", "Sampled tokens per second", TOKENS, [_ratio("tokens/s", *RATE)]),
    )
    reward = _columns({"tally.score": "score", "tally.reward": "reward"})
    learning = (
        exam,
        _chart("reward", "Score and reward", REWARD, reward),
        _chart("domains", "Score per domain", SCORES, _columns(each("tally.domain_scores"))),
    )
    return [
        Chapter(key="learning", title="Learning", charts=learning),
        Chapter(key="policy", title="Policy", charts=_policy()),
        Chapter(key="sampling", title="Sampling", charts=_sampling()),
        Chapter(key="knobs", title="Hyperparameters", charts=_hyperparameters()),
        Chapter(key="speed", title="Speed", charts=speed),
    ]


REWARD = "Score: of all judged groups. Reward: what was trained on, after filtering and shaping."
SCORES = "Mean score of all judged groups, rejected ones included: those without a verifier error."
STEP_TIME = "Wall clock of a training step; exams and checkpoints come on top."
TOKENS = "All sampled tokens over the whole time of the step."
RATE = ("tally.sampled_tokens", "seconds.total")


def _chart(key: str, title: str, note: str, lines: Iterable[Line], **how: Any) -> Chart:
    return Chart(key=key, title=title, note=note, lines=tuple(lines), **how)


def _columns(names: Mapping[str, str], source: Literal["steps", "exams"] = "steps") -> list[Line]:
    """Curves that the journal holds as they are, by column and label."""

    def line(name: str, label: str) -> Line:
        return Line(label=label, values=lambda run: getattr(run, source).get(name))

    return [line(name, label) for name, label in names.items()]


def _ratio(label: str, above: str, below: str) -> Line:
    """A curve of quotients; NaN where nothing is divided by."""

    def values(run: RunRecord) -> list[float]:
        pairs = zip(run.steps.get(above), run.steps.get(below), strict=True)
        return [a / b if b else math.nan for a, b in pairs]

    return Line(label=label, values=values)


def _policy() -> tuple[Chart, ...]:
    nats, mismatch = (
        "nats per token",
        "Difference of the log-probabilities that both give one token; should stay small.",
    )
    named = (
        (
            "entropy",
            "Entropy",
            nats,
            "Near zero the policy no longer explores; a surge means that it falls apart.",
        ),
        ("kl", "KL to the reference", nats, "Falls to zero at a reset and climbs as the policy moves on."),
        ("grad_norm", "Gradient norm", "", "Before clipping."),
        ("mismatch", "Mismatch of engine and learner", "|log w|", mismatch),
    )
    held = {"update.clip_share": "clipped", "update.mismatch_out_share": "outside mismatch bounds"}
    note = "Share of tokens whose ratio was clipped, or whose weight left the mismatch bounds."
    return (
        *(
            _chart(key, title, note, _columns({f"update.{key}": key.replace("_", " ")}), unit=unit)
            for key, title, unit, note in named
        ),
        _chart("clip", "Tokens held back", note, _columns(held), percent=True),
    )


def _sampling() -> tuple[Chart, ...]:
    length = "Mean over the responses of all groups without a verifier error."
    cut = "Share of judged responses that hit the length limit, and that hold no answer in the form asked."
    drawn = "What became of the drawn problems: trained on, or dropped because all their scores were equal."
    unanswered = {"tally.truncated": "cut off", "tally.unanswered": "no answer"}
    fates = {"accepted": "informative", "easy": "too easy", "hard": "too hard", "errors": "verifier errors"}
    lines = [_ratio(told, f"tally.{name}", "tally.draws") for name, told in fates.items()]
    return (
        _chart("length", "Response length", length, _columns({"tally.length": "length"}), unit="tokens"),
        _chart("truncated", "Cut off and unanswered", cut, _columns(unanswered), percent=True),
        _chart("informative", "Informative share", drawn, lines, percent=True, shape="stack"),
    )


def _hyperparameters() -> tuple[Chart, ...]:
    named = (
        ("learning_rate", "Learning rate", "As used, with the changes by detectors and the operator."),
        ("kl_coef", "KL coefficient", "Weight of the KL penalty that keeps the policy near the reference."),
        ("length_weight", "Length penalty", "Weight of the cosine length penalty; zero outside its windows."),
    )
    return tuple(
        _chart(key, title, note, _columns({key: title.lower()}), shape="stairs") for key, title, note in named
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
