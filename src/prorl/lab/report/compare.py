"""Runs side by side, as tables: where their recipes differ, what they cost, what came of them."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeVar

from prorl.config.recipe import flat
from prorl.control.events import CommandGiven, Intervened, ReferenceReset, Validated
from prorl.control.metrics import STEP, ratio
from prorl.envs.mixture import MEAN
from prorl.lab.report.curves import experiment, repetitions, t_interval, told_apart
from prorl.lab.report.summary import as_text
from prorl.lab.results import Gains, difference_cell
from prorl.lab.tables import Cell, Number, Several, Table
from prorl.run.history import RECENT, RunHistory

SHARE, COUNT, REAL = ".1%", ",.0f", ".3g"
T = TypeVar("T")

Rows = Iterator[tuple[str, Sequence[Cell]]]
"""What is compared, and a cell for every run."""


def comparison(runs: Sequence[RunHistory], gains: Sequence[Sequence[Gains]] = ()) -> list[Table]:
    """All that is compared, a table per topic; all have the same columns. `gains` are of each run's evaluations.

    Runs that differ only in their seed share a column: a mean with Student's interval over the seeds, and each value.
    """
    groups, named = repetitions(runs), told_apart(runs)
    columns = ("", *(", ".join(named[at] for at in group) for group in groups))
    tables = []
    for title, found in _topics(runs, gains):
        rows = tuple(
            (name, *(_together([cells[at] for at in group]) for group in groups)) for name, cells in found
        )
        if rows:
            tables.append(Table(title=title, columns=columns, rows=rows))
    if len(groups) < len(runs):
        notes = ("of several runs: mean ± half of its 95 % interval over seeds, then each run",)
        tables[-1] = replace(tables[-1], notes=notes)
    return tables


def _together(cells: Sequence[Cell]) -> Cell:
    if len(cells) == 1:
        return cells[0]
    numbers = [cell for cell in cells if isinstance(cell, Number)]
    values = [one.value for one in numbers if one.value is not None and math.isfinite(one.value)]
    if len(values) < len(cells):
        return Several(cells=tuple(cells))
    low, high = t_interval(values)
    each = tuple(Number(one.value, one.form) for one in numbers)
    return Several(cells=each, mean=Number(fmean(values), numbers[0].form, low=low, high=high))


def _topics(runs: Sequence[RunHistory], gains: Sequence[Sequence[Gains]]) -> Iterator[tuple[str, Rows]]:
    yield "recipe", _recipes(runs)
    yield "run", _work(runs)
    validations = [run.of(Validated) for run in runs]
    last = [of_run[-1] if of_run else None for of_run in validations]
    yield "first validation", _validation([of_run[0] if of_run else None for of_run in validations])
    yield "last validation", _validation(last)
    yield "best validation", _validation([run.best for run in runs])
    steps = [{validation.step: validation for validation in of_run} for of_run in validations]
    common = max(set.intersection(*map(set, steps)), default=None)
    if common is not None and any(validation and validation.step != common for validation in last):
        yield "last validation in common", _validation([of_run[common] for of_run in steps])
    yield "decisions", _decisions(runs)
    yield f"mean of the last {RECENT} steps", _end(runs)
    found = [{(gain.title, gain.tasks): gain for gain in of_run} for of_run in gains]
    for key in dict.fromkeys(key for of_run in found for key in of_run):
        yield key[0], _measured([of_run.get(key) for of_run in found])


def _recipes(runs: Sequence[RunHistory]) -> Rows:
    """The keys in which the recipes differ, the seed among them."""
    recipes = [{"seed": run.config.get("seed")} | dict(flat(experiment(run.config))) for run in runs]
    for key in dict.fromkeys(key for recipe in recipes for key in recipe):
        values = [recipe.get(key) for recipe in recipes]
        if any(value != values[0] for value in values):
            yield key, [None if value is None else as_text(value) for value in values]


def _work(runs: Sequence[RunHistory]) -> Rows:
    yield "state", [run.state for run in runs]
    begun = [run if len(run.steps) else None for run in runs]

    def total(*names: str) -> Callable[[RunHistory], float]:
        return lambda run: sum(map(run.steps.total, names))

    seconds, tokens = total("seconds.total"), total("rollout_stats.sampled_tokens")
    busy = total("seconds.generate", "seconds.learn")
    yield "steps", _numbers(COUNT, begun, lambda run: run.step)
    yield "hours in steps", _numbers(REAL, begun, lambda run: seconds(run) / 3600)
    yield "responses sampled", _numbers(COUNT, begun, total("rollout_stats.rollouts"))
    yield "tokens sampled", _numbers(COUNT, begun, tokens)
    yield "tokens sampled per second", _numbers(COUNT, begun, lambda run: ratio(tokens(run), seconds(run)))
    yield "overhead", _numbers(SHARE, begun, lambda run: ratio(seconds(run) - busy(run), seconds(run)))


def _validation(found: Sequence[Validated | None]) -> Rows:
    yield "after step", _numbers(COUNT, found, lambda one: one.step)
    yield "pass@1", _numbers(SHARE, found, lambda one: one.score)
    for domain in dict.fromkeys(domain for one in found if one for domain in one.domains):
        yield domain, [Number(one.domains.get(domain) if one else None, SHARE) for one in found]


def _decisions(runs: Sequence[RunHistory]) -> Rows:
    reasons: Mapping[str, Callable[[RunHistory], list[str]]] = {
        "reference resets": lambda run: [event.reason for event in run.of(ReferenceReset)],
        "interventions": lambda run: [f"{event.detector}: {event.action}" for event in run.of(Intervened)],
        "commands": lambda run: [event.name for event in run.of(CommandGiven) if event.refused is None],
    }
    for title, reason in reasons.items():
        counts = [Counter(reason(run)).items() for run in runs]
        told = [", ".join(name if n == 1 else f"{name} ×{n}" for name, n in of) for of in counts]
        yield title, [text or "none" for text in told]


def _end(runs: Sequence[RunHistory]) -> Rows:
    for metric in STEP:
        if "table" in metric.shown:
            share = metric.key == "rollout_stats.score" or metric.form.endswith("%")
            title = f"{metric.title}, {metric.unit}" if metric.unit else metric.title
            recent = [run.steps.recent(metric.key) or None for run in runs]
            yield title, _numbers(SHARE if share else REAL, recent, fmean)


def _measured(runs: Sequence[Gains | None]) -> Rows:
    means = [{of_k.k: of_k for of_k in found.rows[MEAN]} if found else {} for found in runs]
    yield "after step", _numbers(COUNT, runs, lambda found: found.pair.trained.step)
    for k in dict.fromkeys(k for mean in means for k in mean):
        at_k = [mean.get(k) for mean in means]
        yield f"pass@{k}, base", _numbers(SHARE, at_k, lambda found: found.base)
        yield f"pass@{k}, trained", _numbers(SHARE, at_k, lambda found: found.trained)
        yield f"pass@{k}, gain", [difference_cell(found) for found in at_k]


def _numbers(form: str, items: Sequence[T | None], read: Callable[[T], float | None]) -> list[Number]:
    """What is read from every item; blank where there is none."""
    return [Number(None if one is None else read(one), form) for one in items]
