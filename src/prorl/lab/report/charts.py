"""Which numbers of a run are drawn together, and how to read them: data alone, drawn by `curves.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from prorl.lab.report.reader import RunRecord

Values = Callable[[RunRecord], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve: a value for every step, or every exam, of a run."""

    label: str
    values: Values
    kind: Literal["part", "whole", "bound"] = (
        "part"  # whole: what the parts make up; bound: what they may reach
    )


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
    return [
        Chapter(key="learning", title="Learning", charts=(_exam(runs), _reward(), _domains(runs))),
        Chapter(key="policy", title="Policy", charts=_policy()),
        Chapter(key="sampling", title="Sampling", charts=_sampling()),
        Chapter(key="knobs", title="Knobs", charts=_knobs()),
        Chapter(key="speed", title="Speed", charts=_speed(runs)),
    ]


def column(name: str, label: str, kind: Literal["part", "whole", "bound"] = "part") -> Line:
    """A curve that the journal holds as it is."""
    if name.startswith("exam."):
        return Line(label=label, values=lambda run: run.exams.get(name.removeprefix("exam.")), kind=kind)
    return Line(label=label, values=lambda run: run.steps.get(name), kind=kind)


def _exam(runs: Sequence[RunRecord]) -> Chart:
    domains = sorted({name for run in runs for name in run.exams.below("domains")})
    return Chart(
        key="exam",
        title="Exam",
        note="Problems held out of training. Exams may steer resets, so that a study on test problems says more.",
        source="exams",
        shape="points",
        percent=True,
        wide=True,
        lines=(
            column("exam.score", "mean pass@1", "whole"),
            column("exam.pass_at_n", "mean pass@n", "bound"),
            *(column(f"exam.domains.{name}", name) for name in domains),
        ),
    )


def _reward() -> Chart:
    return Chart(
        key="reward",
        title="Score and reward",
        note="Score: of all judged groups. Reward: what was trained on, after filtering and shaping.",
        lines=(column("tally.score", "score"), column("tally.reward", "reward")),
    )


def _domains(runs: Sequence[RunRecord]) -> Chart:
    domains = sorted({name for run in runs for name in run.steps.below("tally.domain_scores")})
    return Chart(
        key="domains",
        title="Score per domain",
        note="Mean score of all judged groups, rejected ones included: those without a verifier error.",
        lines=tuple(column(f"tally.domain_scores.{name}", name) for name in domains),
    )


def _policy() -> tuple[Chart, ...]:
    named = (
        (
            "entropy",
            "Entropy",
            "nats per token",
            "Near zero the policy no longer explores; a surge means that it falls apart.",
        ),
        (
            "kl",
            "KL to the reference",
            "nats per token",
            "Falls to zero at a reset and climbs as the policy moves on.",
        ),
        ("grad_norm", "Gradient norm", "", "Before clipping."),
        (
            "mismatch",
            "Mismatch of engine and learner",
            "|log w|",
            "Should stay small: both compute the same policy.",
        ),
    )
    shares = (
        column("update.clip_share", "clipped"),
        column("update.mismatch_out_share", "outside mismatch bounds"),
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
        Chart(
            key="clip",
            title="Tokens held back",
            note="Share of tokens whose ratio was clipped, or whose weight left the mismatch bounds.",
            percent=True,
            lines=shares,
        ),
    )


def _sampling() -> tuple[Chart, ...]:
    def share(name: str) -> Values:
        return lambda run: ratio(run.steps.get(f"tally.{name}"), run.steps.get("tally.draws"))

    fates = (
        ("accepted", "informative"),
        ("easy", "too easy"),
        ("hard", "too hard"),
        ("errors", "verifier errors"),
    )
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
            note="What became of the drawn problems: trained on, or thrown away since all their scores were alike.",
            percent=True,
            shape="stack",
            lines=tuple(Line(label=label, values=share(name)) for name, label in fates),
        ),
    )


def _knobs() -> tuple[Chart, ...]:
    named = (
        ("learning_rate", "Learning rate", "As used, with what detectors and the operator changed."),
        ("kl_coef", "KL coefficient", "The price of leaving the reference."),
        ("length_weight", "Length penalty", "Weight of the cosine length penalty; zero outside its windows."),
    )
    return tuple(
        Chart(key=key, title=title, note=note, shape="stairs", lines=(column(key, title.lower()),))
        for key, title, note in named
    )


def _speed(runs: Sequence[RunRecord]) -> tuple[Chart, ...]:
    phases = sorted({name for run in runs for name in run.steps.below("seconds")} - {"total"})
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
            lines=(
                Line(
                    label="tokens/s",
                    values=lambda run: ratio(
                        run.steps.get("tally.sampled_tokens"), run.steps.get("seconds.total")
                    ),
                ),
            ),
        ),
    )


def ratio(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Quotients; NaN where nothing is divided by."""
    return [a / b if b else math.nan for a, b in zip(above, below, strict=True)]
