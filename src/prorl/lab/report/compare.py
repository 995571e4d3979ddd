"""Runs side by side, as tables: where their recipes differ, what they cost, what came of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from prorl.algo.t_interval import t_interval
from prorl.control.events import Intervened, Ordered, ReferenceReset, Validated
from prorl.control.metrics import STEP, ratio
from prorl.lab.report.charts import experiment, repetitions
from prorl.lab.results import Gains, difference_cell
from prorl.lab.tables import Cell, Number, Several, Table
from prorl.run.history import RECENT, RunHistory

SHARE, COUNT, REAL = ".1%", ",.0f", ".3g"

Rows = Iterator[tuple[str, Sequence[Cell]]]
"""What is compared, and a cell for every run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One run and its evaluations."""

    name: str
    run: RunHistory
    gains: Sequence[Gains] = ()


def comparison(runs: Sequence[Compared]) -> list[Table]:
    """All that is compared, a table per topic; all have the same columns.

    Runs that differ only in their seed share a column: a mean with Student's interval over the seeds, and each value.
    """
    groups = repetitions([one.run.config for one in runs])
    columns = ["", *(", ".join(runs[at].name for at in group) for group in groups)]
    tables = []
    for title, rows in _topics(runs):
        shown = tuple(
            (name, *(_together([cells[at] for at in group]) for group in groups)) for name, cells in rows
        )
        if shown:
            tables.append(Table(title=title, columns=tuple(columns), rows=shown))
    seeds = "of several runs: mean ± half of its 95 % interval over seeds, then each run"
    notes = (seeds,) if len(groups) < len(runs) else ()
    return [*tables[:-1], *(replace(last, notes=notes) for last in tables[-1:])]


def _together(cells: Sequence[Cell]) -> Cell:
    """The cells of a group's runs as one."""
    if len(cells) == 1:
        return cells[0]
    numbers = [cell for cell in cells if isinstance(cell, Number)]
    values = [one.value for one in numbers if one.value is not None and math.isfinite(one.value)]
    if len(values) < len(cells):
        return Several(cells=tuple(cells))
    low, high = t_interval(values)
    each = tuple(Number(value=one.value, form=one.form) for one in numbers)
    return Several(cells=each, mean=Number(value=fmean(values), low=low, high=high, form=numbers[0].form))


def _topics(compared: Sequence[Compared]) -> Iterator[tuple[str, Rows]]:
    runs = [one.run for one in compared]
    validations = [run.of(Validated) for run in runs]
    yield "recipe", _recipes(runs)
    yield "run", _work(runs)
    last = [of_run[-1] if of_run else None for of_run in validations]
    yield "first validation", _validation([of_run[0] if of_run else None for of_run in validations])
    yield "last validation", _validation(last)
    yield "best validation", _validation([run.best for run in runs])
    common = max(
        set.intersection(*({validation.step for validation in of_run} for of_run in validations)),
        default=None,
    )
    if common is not None and any(validation and validation.step != common for validation in last):
        at = [
            next(validation for validation in reversed(of_run) if validation.step == common)
            for of_run in validations
        ]
        yield "last validation in common", _validation(at)
    yield "decisions", _decisions(runs)
    yield f"mean of the last {RECENT} steps", _end(runs)
    found = [{gain.title: gain for gain in one.gains} for one in compared]
    for title in dict.fromkeys(title for of_run in found for title in of_run):
        yield title, _measured([of_run.get(title) for of_run in found])


def _recipes(runs: Sequence[RunHistory]) -> Rows:
    """The keys in which the recipes differ, the seed among them."""
    recipes = [{"seed": run.config.get("seed")} | _flat(experiment(run.config)) for run in runs]
    for key in dict.fromkeys(key for recipe in recipes for key in recipe):
        values = [recipe.get(key) for recipe in recipes]
        if any(value != values[0] for value in values):
            yield key, [None if value is None else _text(value) for value in values]


def _work(runs: Sequence[RunHistory]) -> Rows:
    measures: Mapping[str, tuple[str, Callable[[RunHistory], float | None]]] = {
        "steps": (COUNT, lambda run: run.step),
        "hours in steps": (REAL, lambda run: run.steps.total("seconds.total") / 3600),
        "responses sampled": (COUNT, lambda run: run.steps.total("rollout_stats.rollouts")),
        "tokens sampled": (COUNT, lambda run: run.steps.total("rollout_stats.sampled_tokens")),
        "tokens sampled per second": (
            COUNT,
            lambda run: ratio(
                run.steps.total("rollout_stats.sampled_tokens"), run.steps.total("seconds.total")
            ),
        ),
        "overhead": (SHARE, _overhead),
    }
    yield "state", [run.state for run in runs]
    for title, (form, measure) in measures.items():
        yield title, _numbers(form, (measure(run) if len(run.steps) else None for run in runs))


def _overhead(run: RunHistory) -> float | None:
    """Share of the time in steps that was neither generation nor learning."""
    busy = run.steps.total("seconds.generate") + run.steps.total("seconds.learn")
    share = ratio(busy, run.steps.total("seconds.total"))
    return None if share is None else 1 - share


def _validation(validations: Sequence[Validated | None]) -> Rows:
    yield (
        "after step",
        _numbers(COUNT, (validation.step if validation else None for validation in validations)),
    )
    yield "pass@1", _numbers(SHARE, (validation.score if validation else None for validation in validations))
    for domain in dict.fromkeys(
        domain for validation in validations if validation for domain in validation.domains
    ):
        yield (
            domain,
            _numbers(
                SHARE, (validation.domains.get(domain) if validation else None for validation in validations)
            ),
        )


def _decisions(runs: Sequence[RunHistory]) -> Rows:
    reasons: Mapping[str, Callable[[RunHistory], Iterable[str]]] = {
        "reference resets": lambda run: (event.reason for event in run.of(ReferenceReset)),
        "interventions": lambda run: (f"{event.detector}: {event.action}" for event in run.of(Intervened)),
        "orders": lambda run: (event.order for event in run.of(Ordered) if event.refused is None),
    }
    for title, reason in reasons.items():
        counts = (Counter(reason(run)) for run in runs)
        yield (
            title,
            [
                ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in of.items()) or "none"
                for of in counts
            ],
        )


def _end(runs: Sequence[RunHistory]) -> Rows:
    for metric in STEP:
        if "table" in metric.shown:
            found = (run.steps.recent(metric.key) for run in runs)
            share = metric.key == "rollout_stats.score" or metric.form.endswith("%")
            title = f"{metric.title}, {metric.unit}" if metric.unit else metric.title
            yield (
                title,
                _numbers(SHARE if share else REAL, (fmean(values) if values else None for values in found)),
            )


def _measured(runs: Sequence[Gains | None]) -> Rows:
    """Base → trained, means over domains."""
    means = [{of_k.k: of_k for of_k in found.rows[-1].differences} if found else {} for found in runs]
    yield "after step", _numbers(COUNT, (found.step if found else None for found in runs))
    for k in dict.fromkeys(k for mean in means for k in mean):
        at_k = [mean.get(k) for mean in means]
        yield f"pass@{k}, base", _numbers(SHARE, (found.base if found else None for found in at_k))
        yield f"pass@{k}, trained", _numbers(SHARE, (found.trained if found else None for found in at_k))
        yield f"pass@{k}, gain", [difference_cell(found) for found in at_k]


def _numbers(form: str, values: Iterable[float | None]) -> list[Number]:
    return [Number(value=value, form=form) for value in values]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
