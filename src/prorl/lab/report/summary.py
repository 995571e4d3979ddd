"""The report for a reader with one minute: what was trained, whether it worked, what happened, what to look at."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from prorl.algo.t_interval import t_interval
from prorl.control.metrics import STEP, text
from prorl.lab.report.findings import findings
from prorl.lab.report.groups import groups
from prorl.lab.report.markup import bullets, facts, fold, heading, paragraph, remark, table
from prorl.lab.report.section import Section
from prorl.lab.watch.console import duration
from prorl.run.history import RECENT, RunHistory

MARKS_SHOWN = 40  # the newest of them
TASKS_NAMED = 20


def summary_section(runs: Sequence[RunHistory], *, measured: Sequence[str] = ()) -> Section:
    """The first part of every page; `measured` is what studies say, as safe HTML per run, where they were read."""
    html = _single(runs[0], "".join(measured)) if len(runs) == 1 else _overlay(runs, measured)
    return Section(key="summary", title="Summary", html=html)


def _single(run: RunHistory, measured: str) -> str:
    marks = [mark.text for mark in run.marks]
    found = findings(run)
    return "".join(
        [
            paragraph(_trained(run)),
            facts(_facts(run)),
            heading("Did it work?") + measured if measured else "",
            heading("What happened"),
            paragraph(_happened(run)),
            fold(f"Everything that was decided ({len(marks)})", bullets(reversed(marks[-MARKS_SHOWN:])))
            if marks
            else "",
            heading("Worth a look"),
            bullets(found, tone="warn") or remark("Nothing stands out.", "good"),
        ]
    )


def _trained(run: RunHistory) -> str:
    """One sentence: model, tasks, steps, time, rollouts."""
    tasks = run.config.get("tasks") or {}
    rollouts, tokens = (run.steps.total(f"tally.{name}") for name in ("rollouts", "sampled_tokens"))
    return (
        f"{_model(run.config)} was trained on {len(tasks)} task{'' if len(tasks) == 1 else 's'} "
        f"({_some(list(map(str, tasks)))}) for {_progress(run)} steps: {rollouts:,.0f} rollouts with {tokens:,.0f} "
        f"sampled tokens in {duration(run.steps.total('seconds.total'))} of training."
    )


def _some(names: Sequence[str]) -> str:
    """All names if they are few, else the first ones; the recipe has all."""
    more = len(names) - TASKS_NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:TASKS_NAMED])} and {more} more"


def _model(config: Mapping[str, Any]) -> str:
    model = config.get("model") or {}
    return str(model["path"]) if model.get("path") else "A tiny base, warmed up for this run,"


def _facts(run: RunHistory) -> Iterator[tuple[str, str, str]]:
    yield "Steps", _progress(run), run.health
    scores = _exam(run)
    if scores:
        (first_step, first), (last_step, last) = scores[0], scores[-1]
        best_step, best = max(scores, key=lambda item: item[1])
        yield (
            "Exam pass@1",
            f"{first:.1%} → {last:.1%}",
            f"step {first_step} → {last_step}; best {best:.1%} at {best_step}",
        )
    for metric in STEP:
        if "table" in metric.shown and len(run.steps):
            recent = run.steps.recent(metric.key)
            about = (
                f"{metric.unit}, last {RECENT} steps" if metric.unit else f"mean of the last {RECENT} steps"
            )
            yield metric.title, text(metric, fmean(recent) if recent else None), about


def _happened(run: RunHistory) -> str:
    counts = Counter(mark.kind for mark in run.marks if mark.kind != "stop")
    told = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items()]
    return f"{', '.join(told)}." if told else "Plain training: no reset, no intervention, no order."


def _overlay(runs: Sequence[RunHistory], measured: Sequence[str]) -> str:
    header = ("run", "seed", "health", "steps", "time", "resets", "exam first", "last", "best")
    rows = table(header, (_row(run) for run in runs))
    seeds = [
        text
        for group in groups(runs)
        if len(group.runs) > 1
        for text in [_seeds(group.label, group.runs)]
        if text
    ]
    found = [f"{run.name}: {text}" for run in runs for text in findings(run)]
    return "".join(
        [
            rows,
            bullets(seeds),
            *(fold(f"{run.name} against its base", text) for run, text in zip(runs, measured, strict=False)),
            heading("Worth a look") if found else "",
            bullets(found, tone="warn"),
            remark(
                "Runs that differ in nothing but the seed are one colour below: mean and 95 % interval.",
                "soft",
            ),
        ]
    )


def _row(run: RunHistory) -> tuple[str, ...]:
    scores = [score for _, score in _exam(run)]
    exams = (f"{scores[0]:.1%}", f"{scores[-1]:.1%}", f"{max(scores):.1%}") if scores else ("", "", "")
    return (
        run.name,
        str(run.config.get("seed", "")),
        run.health,
        _progress(run),
        duration(run.steps.total("seconds.total")),
        str(sum(mark.kind == "reset" for mark in run.marks)),
        *exams,
    )


def _seeds(label: str, runs: Sequence[RunHistory]) -> str:
    """The gain in the exam over seeds, with an honest word where the interval includes zero."""
    gains = [scores[-1][1] - scores[0][1] for scores in map(_exam, runs) if len(scores) > 1]
    if len(gains) < 2:
        return ""
    low, high = t_interval(gains)
    doubt = "; the interval includes zero, so this may be chance" if low <= 0 <= high else ""
    return (
        f"{label}: the exam gained {100 * fmean(gains):+.1f} points from first to last, 95 % interval over "
        f"{len(gains)} seeds {100 * low:+.1f} to {100 * high:+.1f}{doubt}."
    )


def _exam(run: RunHistory) -> list[tuple[int, float]]:
    return [
        (s, score)
        for s, score in zip(run.validations.steps, run.validations.get("score"), strict=True)
        if math.isfinite(score)
    ]


def _progress(run: RunHistory) -> str:
    return f"{run.step:,} of {run.planned:,}" if run.planned else f"{run.step:,}"
