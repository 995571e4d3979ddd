"""Which problems changed sides: solved by both, new, lost, neither; and how often every model solves each one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prorl.lab.evals.comparison import Boundary, Move, TaskPattern, boundary, paired
from prorl.lab.report.drawing import GREY, Drawn, axis, panels
from prorl.lab.report.markup import fold, paragraph, table
from prorl.lab.report.section import Figure, Section
from prorl.lab.report.style import PALETTE, faded, label
from prorl.lab.report.words import PARTS, count, listing, points
from prorl.rollout.validation import Part, ProblemResult

NEW, LOST, BOTH = PALETTE[2], PALETTE[1], PALETTE[0]
ROW_PIXELS, HEAT_ROW_PIXELS, FRAME_PIXELS = 25, 34, 120

HATCH = {"size": 6, "solidity": 0.3, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.75)"}

Fate = tuple[str, str, Callable[[Boundary], int], str]
FATES: tuple[Fate, ...] = (
    ("both", faded(BOTH, 0.5), lambda row: row.both, ""),
    ("new, sure", NEW, lambda row: row.sure_new, ""),
    ("new, unsure", NEW, lambda row: row.new - row.sure_new, "/"),
    ("lost, sure", LOST, lambda row: row.sure_lost, ""),
    ("lost, unsure", LOST, lambda row: row.lost - row.sure_lost, "/"),
    ("neither", faded(GREY, 0.3), lambda row: row.neither, ""),
)
"""What a problem can be: name, colour, number of problems, hatch."""


def moved_section(
    models: Sequence[Drawn], found: Sequence[TaskPattern], k: int, key: str, title: str
) -> Section:
    """Problems solved by both, new, lost and neither per task, the first model against the last; a heat map."""
    base, trained = models[0], models[-1]
    moves = {part: paired(base.of(part), trained.of(part)) for part in PARTS}
    parts = [part for part in PARTS if moves[part]]
    rows = {part: _per_task(moves[part]) for part in parts}
    text = paragraph(
        f"{tasks_moved(found, k)} {problems_moved([one for part in parts for one in moves[part]], k)}"
    )
    return Section(
        key=key,
        title=title,
        html=text + _counts([(part, row) for part in parts for row in rows[part]]),
        figures=(_bars(rows, f"{key}-bars"), _heat_map(models, parts, f"{key}-map")),
    )


def tasks_moved(found: Sequence[TaskPattern], k: int) -> str:
    """Where the boundary moved beyond chance, in a sentence per part; as plainly where it did not."""
    parts = [(title, [one for one in found if one.part == part]) for part, title in PARTS.items()]
    return " ".join(_moved(title, chosen, k) for title, chosen in parts if chosen)


def _moved(title: str, chosen: Sequence[TaskPattern], k: int) -> str:
    up, down = [one for one in chosen if one.at_k.up], [one for one in chosen if one.at_k.down]
    tasks = count(len(chosen), f"{title} task")
    told = (
        f"The boundary, pass@{k}, moved out on {len(up)} of {tasks}: {listing(_names(up))}"
        if up
        else f"The boundary, pass@{k}, did not surely move out on any of {tasks}"
    )
    told += f", and moved in on {len(down)}: {listing(_names(down))}" if down else ""
    return f"{told} (95 % intervals; by chance about {0.025 * len(chosen):.1f} would seem so either way)."


def problems_moved(moves: Sequence[Move], k: int) -> str:
    """How many problems became solvable and how many were lost, beside what chance alone would give."""
    row = boundary("", moves)
    return (
        f"Never solved by the base in {k} tries and solved now: {row.new} of {count(row.problems, 'problem')} "
        f"({row.sure_new} surely); lost: {row.lost} ({row.sure_lost} surely). Were both models equally good at each "
        f"problem, chance alone would give about {row.chance_new:.1f} new and {row.chance_lost:.1f} lost."
    )


def pattern_section(
    found: Sequence[TaskPattern], between: str | None, k: int, key: str, title: str
) -> Section:
    """What training did to each task, as a table with the differences that decided it."""
    halves = (
        f"The halves are before and after {between}."
        if between
        else "Without a checkpoint between, nothing says when."
    )
    text = paragraph(
        f"diminish: pass@1 surely up and pass@{k} surely down; plateau: pass@{k} up early and surely slower after; "
        "sustained: still surely up in the second half; gain: surely up; unclear: the intervals do not decide. "
        f"{halves} Numbers are percentage points with 95 % intervals over problems."
    )
    header = ["task", "part", "pattern", "problems", "pass@1", f"pass@{k}"]
    header += ["first half", "second half"] if between else []
    rows = [
        (
            one.task,
            PARTS.get(one.part, one.part),
            one.pattern,
            str(one.problems),
            *(
                f"{points(gain.gain)} ({points(gain.low)} to {points(gain.high)})"
                for gain in (one.at_1, one.at_k, one.early, one.late)
                if gain is not None
            ),
        )
        for one in found
        if one.part in PARTS
    ]
    return Section(key=key, title=title, html=text + table(header, rows))


def _names(found: Sequence[TaskPattern]) -> list[str]:
    return [one.task if one.part == "test" else f"{one.task} ({PARTS[one.part]})" for one in found]


def _per_task(moves: Sequence[Move]) -> list[Boundary]:
    """A row per task, tasks of a domain side by side."""
    names = sorted({(move.base.domain, move.base.task) for move in moves})
    return [boundary(task, [move for move in moves if move.base.task == task]) for _, task in names]


def _counts(rows: Sequence[tuple[Part, Boundary]]) -> str:
    header = ("task", "part", "problems", "both", "new", "by chance", "lost", "by chance", "neither")
    cells = [
        (
            row.label,
            PARTS[part],
            str(row.problems),
            str(row.both),
            _surely(row.new, row.sure_new),
            f"{row.chance_new:.1f}",
            _surely(row.lost, row.sure_lost),
            f"{row.chance_lost:.1f}",
            str(row.neither),
        )
        for part, row in rows
    ]
    return fold("Numbers per task", table(header, cells))


def _surely(number: int, sure: int) -> str:
    return f"{number} ({sure} surely)" if sure else str(number)


def _bars(rows: Mapping[Part, Sequence[Boundary]], key: str) -> Figure:
    """A bar per task, as long for few problems as for many."""
    traces = [
        _fate(fate, rows[part], panel, legend=panel == 0) for panel, part in enumerate(rows) for fate in FATES
    ]
    x = {"tickformat": ".0%", "range": [0, 1], "showgrid": False, "title": {"text": "problems"}}
    most = max(map(len, rows.values()))
    y = {"type": "category", "range": [most - 0.5, -0.5], "showgrid": False, "dtick": 1}  # from top to bottom
    layout = panels([PARTS[part] for part in rows], x, y, columns=2)
    for panel in range(1, len(rows)):  # each part has its own tasks
        layout[f"yaxis{panel + 1}"] = y
    layout |= {
        "barmode": "stack",
        "bargap": 0.3,
        "uniformtext": {"minsize": 9, "mode": "hide"},
        "height": FRAME_PIXELS + ROW_PIXELS * most,
        "hovermode": "y unified",
    }
    layout["grid"]["xgap"] = 0.34
    return Figure(
        key=key,
        title="Problems solved by both, new, lost, by neither",
        data=tuple(traces),
        layout=layout,
        note="Numbers count problems. Unsure (hatched) may be chance: one pass in hundreds of tries, say.",
    )


def _fate(fate: Fate, rows: Sequence[Boundary], panel: int, *, legend: bool) -> Mapping[str, Any]:
    name, color, number, hatch = fate
    counts = [number(row) for row in rows]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "legendgroup": name,
        "showlegend": legend,
        "y": [label(row.label) for row in rows],
        "x": [found / row.problems for found, row in zip(counts, rows, strict=True)],
        "customdata": counts,
        "text": [str(found) if found else "" for found in counts],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertemplate": "%{customdata} (%{x:.0%})",
        "marker": {
            "color": color,
            "line": {"width": 0},
            "pattern": {**HATCH, "shape": hatch},
        },
        "xaxis": axis("x", panel),
        "yaxis": axis("y", panel),
    }


def _heat_map(models: Sequence[Drawn], parts: Sequence[Part], key: str) -> Figure:
    """A column per problem, the easiest for the base first; a row per model."""
    samples = max(model.study.samples for model in models)
    traces = [_map(models, part, panel, samples) for panel, part in enumerate(parts)]
    x = {"showgrid": False, "title": {"text": "problems, the base's easiest first"}}
    y = {"type": "category", "autorange": "reversed", "showgrid": False}
    layout = panels([PARTS[part] for part in parts], x, y, columns=2)
    layout |= {
        "height": FRAME_PIXELS + HEAT_ROW_PIXELS * len(models),
        "margin": {"t": 30},
        "hovermode": "closest",
        "coloraxis": _scale(samples),
    }
    layout["grid"]["xgap"] = 0.05
    return Figure(
        key=key,
        title="How often each problem is solved",
        data=tuple(traces),
        layout=layout,
        note="One column is one problem; the scale is logarithmic and its lowest colour means never.",
    )


def _map(models: Sequence[Drawn], part: Part, panel: int, samples: int) -> Mapping[str, Any]:
    by_key = [{problem.key: problem for problem in model.of(part)} for model in models]
    common = [problem for key, problem in by_key[0].items() if all(key in other for other in by_key)]
    ranked = sorted(
        common, key=lambda problem: [-_rate(results[problem.key]) for results in (by_key[0], by_key[-1])]
    )
    results = [[found[problem.key] for problem in ranked] for found in by_key]
    return {
        "type": "heatmap",
        "z": [[_depth(_rate(problem), samples) for problem in row] for row in results],
        "y": [model.label for model in models],
        "text": [[_told(problem) for problem in row] for row in results],
        "hovertemplate": "%{text}<extra>%{y}</extra>",
        "coloraxis": "coloraxis",
        "ygap": 3,
        "xaxis": axis("x", panel),
        "yaxis": axis("y", panel),
    }


def _rate(problem: ProblemResult) -> float:
    return problem.solved / problem.samples


def _depth(rate: float, samples: int) -> float:
    """Solve rate on a binary scale; never solved is one step below once."""
    return round(math.log2(max(rate, 0.5 / samples)), 3)


def _told(problem: ProblemResult) -> str:
    return (
        f"{label(problem.task)} {problem.index}, level {problem.level}: {problem.solved} of {problem.samples}"
    )


def _scale(samples: int) -> dict[str, Any]:
    rates = [4.0**-power for power in range(round(math.log(samples, 4)))]
    return {
        "cmin": _depth(0, samples),
        "cmax": 0,
        "colorscale": "Viridis",
        "colorbar": {
            "thickness": 12,
            "outlinewidth": 0,
            "tickvals": [_depth(0, samples), *(_depth(rate, samples) for rate in rates)],
            "ticktext": ["never", *(f"1/{round(1 / rate)}" if rate < 1 else "always" for rate in rates)],
        },
    }
