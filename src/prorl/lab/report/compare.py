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
from prorl.control.events import Evaluated, Intervened, Ordered, ReferenceReset, Stepped
from prorl.lab.report.charts import experiment, repetitions
from prorl.lab.report.story import Story
from prorl.lab.results import Gains, difference_cell
from prorl.lab.tables import Cell, Number, Several, Table

RECENT = 20  # steps over which the end of a run is averaged
SHARE, COUNT, REAL = ".1%", ",.0f", ".3g"

Rows = Iterator[tuple[str, Sequence[Cell]]]
"""What is compared, and a cell for every run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One run: its recipe and journal, its evaluations, and how it is doing."""

    name: str
    story: Story
    gains: Sequence[Gains] = ()
    health: str = ""


def comparison(runs: Sequence[Compared]) -> list[Table]:
    """All that is compared, a table per topic; all have the same columns.

    Runs that differ only in their seed share a column: a mean with Student's interval over the seeds, and each value.
    """
    groups = repetitions([run.story.config for run in runs])
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


def _topics(runs: Sequence[Compared]) -> Iterator[tuple[str, Rows]]:
    stories = [run.story for run in runs]
    steps = [story.of(Stepped) for story in stories]
    exams = [story.of(Evaluated) for story in stories]
    yield "recipe", _recipes(stories)
    yield "run", _work(steps, [run.health for run in runs])
    last = [of_run[-1] if of_run else None for of_run in exams]
    yield "first exam", _exam([of_run[0] if of_run else None for of_run in exams])
    yield "last exam", _exam(last)
    best = [max(of_run, key=lambda exam: exam.score, default=None) for of_run in exams]
    yield "best exam", _exam(best)
    common = max(set.intersection(*({exam.step for exam in of_run} for of_run in exams)), default=None)
    if common is not None and any(exam and exam.step != common for exam in last):
        at = [next(exam for exam in reversed(of_run) if exam.step == common) for of_run in exams]
        yield "last exam in common", _exam(at)
    yield "decisions", _decisions(stories)
    yield f"mean of the last {RECENT} steps", _end([of_run[-RECENT:] for of_run in steps])
    found = [{one.title: one for one in run.gains} for run in runs]
    for title in dict.fromkeys(title for of_run in found for title in of_run):
        yield title, _measured([of_run.get(title) for of_run in found])


def _recipes(stories: Sequence[Story]) -> Rows:
    """The keys in which the recipes differ, the seed among them."""
    recipes = [{"seed": story.config.get("seed")} | _flat(experiment(story.config)) for story in stories]
    for key in dict.fromkeys(key for recipe in recipes for key in recipe):
        values = [recipe.get(key) for recipe in recipes]
        if any(value != values[0] for value in values):
            yield key, [None if value is None else _text(value) for value in values]


def _work(runs: Sequence[Sequence[Stepped]], health: Sequence[str]) -> Rows:
    measures: Mapping[str, tuple[str, Callable[[Sequence[Stepped]], float]]] = {
        "steps": (COUNT, lambda steps: steps[-1].step),
        "hours in steps": (REAL, lambda steps: _seconds(steps, "total") / 3600),
        "responses sampled": (COUNT, lambda steps: sum(step.tally.rollouts for step in steps)),
        "tokens sampled": (COUNT, _sampled),
        "tokens sampled per second": (COUNT, lambda steps: _sampled(steps) / _seconds(steps, "total")),
        "overhead": (
            SHARE,
            lambda steps: 1 - (_seconds(steps, "generate", "learn") / _seconds(steps, "total")),
        ),
    }
    yield "state", health
    for title, (form, measure) in measures.items():
        yield title, _numbers(form, (measure(steps) if steps else None for steps in runs))


def _exam(exams: Sequence[Evaluated | None]) -> Rows:
    yield "after step", _numbers(COUNT, (exam.step if exam else None for exam in exams))
    yield "pass@1", _numbers(SHARE, (exam.score if exam else None for exam in exams))
    for domain in dict.fromkeys(domain for exam in exams if exam for domain in exam.domains):
        yield domain, _numbers(SHARE, (exam.domains.get(domain) if exam else None for exam in exams))


def _decisions(stories: Sequence[Story]) -> Rows:
    reasons: Mapping[str, Callable[[Story], Iterable[str]]] = {
        "reference resets": lambda story: (event.reason for event in story.of(ReferenceReset)),
        "interventions": lambda story: (
            f"{event.detector}: {event.action}" for event in story.of(Intervened)
        ),
        "orders": lambda story: (event.order for event in story.of(Ordered) if event.refused is None),
    }
    for title, reason in reasons.items():
        counts = (Counter(reason(story)) for story in stories)
        yield (
            title,
            [
                ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in of.items()) or "none"
                for of in counts
            ],
        )


def _end(runs: Sequence[Sequence[Stepped]]) -> Rows:
    measures: Mapping[str, tuple[str, Callable[[Stepped], float | None]]] = {
        "training score": (SHARE, lambda step: step.tally.score),
        "entropy, nats": (REAL, lambda step: step.update.entropy),
        "KL to the reference": (REAL, lambda step: step.update.kl),
        "response length, tokens": (REAL, lambda step: step.tally.length),
        "informative share": (SHARE, lambda step: step.tally.informative_share),
        "truncated share": (SHARE, lambda step: step.tally.truncated),
    }
    for title, (form, measure) in measures.items():
        found = ([value for step in steps if (value := measure(step)) is not None] for steps in runs)
        yield title, _numbers(form, (fmean(values) if values else None for values in found))


def _measured(runs: Sequence[Gains | None]) -> Rows:
    """Base → trained, means over domains."""
    ks = dict.fromkeys(k for found in runs if found for k in found.rows[-1].base.ks)
    yield "after step", _numbers(COUNT, (found.step if found else None for found in runs))
    for k in ks:
        means = [found.rows[-1] if found and k in found.rows[-1].base.ks else None for found in runs]
        yield f"pass@{k}, base", _numbers(SHARE, (row.base.at(k) if row else None for row in means))
        yield f"pass@{k}, trained", _numbers(SHARE, (row.trained.at(k) if row else None for row in means))
        found = [None if row is None else next(one for one in row.differences if one.k == k) for row in means]
        yield f"pass@{k}, gain", [difference_cell(one) for one in found]


def _numbers(form: str, values: Iterable[float | None]) -> list[Number]:
    return [Number(value=value, form=form) for value in values]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _seconds(steps: Iterable[Stepped], *phases: str) -> float:
    return sum(step.seconds.get(phase, 0.0) for phase in phases for step in steps)


def _sampled(steps: Iterable[Stepped]) -> int:
    return sum(step.tally.sampled_tokens for step in steps)
