"""Runs side by side, as rows of plain values: where their recipes differ, what they cost, what came of them.

Pure: what a terminal or a program is shown is made from the same rows. Runs that differ only in their seed are one
group, whose numbers have a mean with Student's interval over the seeds.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, TypeVar

from prorl.algo.t_interval import t_interval
from prorl.control.events import Evaluated, Intervened, Ordered, ReferenceReset
from prorl.control.metrics import STEP, ratio
from prorl.lab.evals.statistics import MEAN
from prorl.lab.report.gains import Gain
from prorl.lab.report.groups import told
from prorl.run.history import RECENT, RunHistory

Unit = Literal["text", "count", "number", "share", "points"]  # points: a difference of shares
Value = float | str | None  # None: the run does not say
Interval = tuple[float, float]
T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity of every run, in the order of the runs."""

    section: str
    title: str
    unit: Unit
    values: tuple[Value, ...]
    intervals: tuple[Interval | None, ...] = ()  # of each value by itself, where it has one: 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A number over the runs of a group; the interval says how well their mean is known: 95 %."""

    mean: float
    low: float
    high: float
    n: int


def spread(values: Sequence[Value]) -> Spread | None:
    """Mean and interval of a group's numbers; None for texts, for one run, or where one has no finite number."""
    numbers = [value for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
    if len(numbers) < 2 or len(numbers) < len(values):
        return None
    low, high = t_interval(numbers)
    return Spread(mean=fmean(numbers), low=low, high=high, n=len(numbers))


def rows(stories: Sequence[RunHistory], gains: Sequence[Sequence[Gain]]) -> Iterator[Row]:
    """The whole comparison; `gains` say of each run how it was measured."""
    yield from _recipes(stories)
    yield Row(section="run", title="state", unit="text", values=tuple(run.state for run in stories))
    yield from _work(stories)
    yield from _exams([story.of(Evaluated) for story in stories])
    yield from _decisions(stories)
    yield from _end(stories)
    yield from _measured(gains)


def _recipes(stories: Sequence[RunHistory]) -> Iterator[Row]:
    """The keys in which the recipes differ, the seed among them."""
    recipes = [{"seed": story.config.get("seed")} | _flat(told(story.config)) for story in stories]
    for key in dict.fromkeys(key for recipe in recipes for key in recipe):
        values = [recipe.get(key) for recipe in recipes]
        if any(value != values[0] for value in values):
            yield _row("recipe", key, "text", (None if value is None else _said(value) for value in values))


def _work(runs: Sequence[RunHistory]) -> Iterator[Row]:
    measures: Mapping[str, tuple[Unit, Callable[[RunHistory], float | None]]] = {
        "steps": ("count", lambda run: run.step),
        "hours in steps": ("number", lambda run: run.steps.total("seconds.total") / 3600),
        "responses sampled": ("count", lambda run: run.steps.total("tally.rollouts")),
        "tokens sampled": ("count", lambda run: run.steps.total("tally.sampled_tokens")),
        "tokens sampled per second": (
            "count",
            lambda run: ratio(run.steps.total("tally.sampled_tokens"), run.steps.total("seconds.total")),
        ),
        "overhead": ("share", _overhead),
    }
    begun = [run if len(run.steps) else None for run in runs]
    for title, (unit, measure) in measures.items():
        yield _row("run", title, unit, _each(begun, measure))


def _overhead(run: RunHistory) -> float | None:
    """Share of the time in steps that was neither generation nor learning."""
    busy = run.steps.total("seconds.generate") + run.steps.total("seconds.learn")
    share = ratio(busy, run.steps.total("seconds.total"))
    return None if share is None else 1 - share


def _exams(runs: Sequence[Sequence[Evaluated]]) -> Iterator[Row]:
    """Scores at the first, the last and the best exam, and at the last one that all have in common."""
    last = [exams[-1] if exams else None for exams in runs]
    yield from _exam("first exam", [exams[0] if exams else None for exams in runs])
    yield from _exam("last exam", last)
    yield from _exam("best exam", [max(exams, key=lambda exam: exam.score, default=None) for exams in runs])
    common = set.intersection(*({exam.step for exam in exams} for exams in runs))
    if common and any(exam and exam.step != max(common) for exam in last):
        at = [next(exam for exam in reversed(exams) if exam.step == max(common)) for exams in runs]
        yield from _exam("last exam in common", at)


def _exam(section: str, exams: Sequence[Evaluated | None]) -> Iterator[Row]:
    yield _row(section, "after step", "count", _each(exams, lambda exam: exam.step))
    yield _row(section, "pass@1", "share", _each(exams, lambda exam: exam.score))
    for domain in dict.fromkeys(domain for exam in exams if exam for domain in exam.domains):
        yield _row(section, domain, "share", (exam.domains.get(domain) if exam else None for exam in exams))


def _decisions(stories: Sequence[RunHistory]) -> Iterator[Row]:
    def row(title: str, reasons: Callable[[RunHistory], Iterable[str]]) -> Row:
        return _row("decisions", title, "text", (_tallied(reasons(story)) for story in stories))

    yield row("reference resets", lambda story: (event.reason for event in story.of(ReferenceReset)))
    yield row(
        "interventions",
        lambda story: (f"{event.detector}: {event.action}" for event in story.of(Intervened)),
    )
    yield row("orders", lambda story: (event.order for event in story.of(Ordered) if event.refused is None))


def _end(runs: Sequence[RunHistory]) -> Iterator[Row]:
    for metric in STEP:
        if "table" in metric.shown:
            found = (run.steps.recent(metric.key) for run in runs)
            means = (fmean(values) if values else None for values in found)
            title = f"{metric.title}, {metric.unit}" if metric.unit else metric.title
            share = metric.key == "tally.score" or metric.form.endswith("%")
            yield _row(f"mean of the last {RECENT} steps", title, "share" if share else "number", means)


def _measured(runs: Sequence[Sequence[Gain]]) -> Iterator[Row]:
    """The measurements base → trained: means over domains."""
    found = [
        {(gain.study, gain.part, gain.k): gain for gain in gains if gain.domain == MEAN} for gains in runs
    ]
    for study, part, k in dict.fromkeys(key for run in found for key in run):
        gains = [run.get((study, part, k)) for run in found]
        section, title = f"{study}: {part}", f"pass@{k}"
        if k == 1:
            yield _row(section, "after step", "count", _each(gains, lambda gain: gain.step))
        yield _row(section, f"{title}, base", "share", _each(gains, lambda gain: gain.base))
        yield _row(section, f"{title}, trained", "share", _each(gains, lambda gain: gain.trained))
        yield Row(
            section=section,
            title=f"{title}, gain",
            unit="points",
            values=_each(gains, lambda gain: gain.trained - gain.base),
            intervals=_each(gains, lambda gain: gain.interval),
        )


def _each(runs: Iterable[T | None], measure: Callable[[T], V]) -> tuple[V | None, ...]:
    """A measure of every run that has what it measures."""
    return tuple(None if run is None else measure(run) for run in runs)


def _row(section: str, title: str, unit: Unit, values: Iterable[Value]) -> Row:
    return Row(section=section, title=title, unit=unit, values=tuple(values))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _tallied(names: Iterable[str]) -> str:
    counts = Counter(names)
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in counts.items()) or "none"
