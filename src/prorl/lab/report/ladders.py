"""Difficulty ladders: one task at growing sizes, the trained ones shaded, and far beyond them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prorl.envs.files import decode_json
from prorl.envs.registry import TASKS, make_task
from prorl.lab.evals.comparison import Difference, differences, paired
from prorl.lab.evals.statistics import Curve, by_level, by_task, curve, grouped
from prorl.lab.report.drawing import GREY, Drawn, Trace, axis, curve_traces, panels, share_axis
from prorl.lab.report.markup import paragraph
from prorl.lab.report.section import Figure, Section
from prorl.lab.report.style import faded, label
from prorl.lab.report.words import count, listing, points
from prorl.rollout.validation import ProblemResult
from prorl.run.layout import CONFIG

Levels = Mapping[str, Sequence[int]]
"""Task → the levels that the run trains; a task that is not there is not trained."""


def ladder_section(models: Sequence[Drawn], run: Path, k: int, key: str, title: str) -> Section | None:
    """pass@1 and pass@k by level, a panel per ladder, all models; None where no ladder was climbed."""
    tasks = sorted(grouped(models[0].of("ladder"), by_task))
    if not tasks:
        return None
    trained = trained_levels(run)
    text = paragraph(
        _beyond(models[0], models[-1], tasks, trained, (1, k)), "Shaded are the levels that the run trains."
    )
    figures = tuple(_figure(models, tasks, trained, size, f"{key}-{size}") for size in (1, k))
    return Section(key=key, title=title, html=text, figures=figures)


def trained_levels(folder: Path) -> Levels:
    """What a run's recipe says of the levels of each task; a task without weights for them trains all its own.

    A recipe that cannot be read, which a page says elsewhere, says nothing.
    """
    try:
        config: Mapping[str, Any] = decode_json((folder / CONFIG).read_bytes())
        return {
            name: tuple(map(int, asked["levels"])) or (make_task(name).levels if name in TASKS else ())
            for name, asked in config["tasks"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _figure(models: Sequence[Drawn], tasks: Sequence[str], trained: Levels, k: int, key: str) -> Figure:
    traces: list[Trace] = []
    for model in models:
        ladders = grouped(model.of("ladder"), by_task)
        for panel, task in enumerate(tasks):
            if task in ladders:
                traces += curve_traces(model, _by_level(ladders[task], k), panel, legend=panel == 0)
    x = {"dtick": 1, "title": {"text": "level"}, "unifiedhovertitle": {"text": "level %{x}"}}
    layout = panels([label(task) for task in tasks], x, share_axis(f"pass@{k}"))
    layout["shapes"] = [
        shape for panel, task in enumerate(tasks) for shape in _shade(trained.get(task, ()), panel)
    ]
    note = f"pass@{k} by difficulty; bands are 95 % intervals over problems, shaded levels are trained."
    return Figure(
        key=key, title=f"Difficulty ladders, pass@{k}", data=tuple(traces), layout=layout, note=note
    )


def _by_level(problems: Sequence[ProblemResult], k: int) -> Curve:
    """The rate at every level, as a curve over levels instead of k's."""
    levels = sorted(grouped(problems, by_level).items())
    points_ = [curve("", members, (k,)) for _, members in levels]
    return Curve(
        label="",
        problems=len(problems),
        ks=tuple(level for level, _ in levels),
        rates=tuple(point.rates[0] for point in points_),
        low=tuple(point.low[0] for point in points_),
        high=tuple(point.high[0] for point in points_),
    )


def _shade(levels: Sequence[int], panel: int) -> list[Trace]:
    if not levels:
        return []
    return [
        {
            "type": "rect",
            "layer": "below",
            "xref": axis("x", panel),
            "yref": f"{axis('y', panel)} domain",
            "x0": min(levels) - 0.5,
            "x1": max(levels) + 0.5,
            "y0": 0,
            "y1": 1,
            "fillcolor": faded(GREY, 0.14),
            "line": {"width": 0},
        }
    ]


def _beyond(base: Drawn, last: Drawn, tasks: Sequence[str], trained: Levels, ks: Sequence[int]) -> str:
    """On which ladders pass@k surely rose above the trained levels."""
    found: dict[str, tuple[Difference, ...]] = {}
    for task in tasks:
        highest = max(trained.get(task, ()), default=-1)
        moves = [
            move
            for move in paired(base.of("ladder"), last.of("ladder"))
            if move.base.task == task and move.base.level > highest
        ]
        if moves:
            found[task] = differences(moves, ks)
    if base is last or not found:
        return ""
    rose = "; ".join(
        _rose(k, {task: gains[place] for task, gains in found.items()}) for place, k in enumerate(ks)
    )
    return f"Above the trained levels, {last.name} against {base.name}: {rose}."


def _rose(k: int, gains: Mapping[str, Difference]) -> str:
    up = [f"{task} ({points(gain.gain)} points)" for task, gain in gains.items() if gain.up]
    where = f"pass@{k} surely rose on {len(up) or 'none'} of {count(len(gains), 'ladder')}"
    return f"{where}, {listing(up)}" if up else where
