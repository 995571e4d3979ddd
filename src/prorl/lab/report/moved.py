"""What training changed: new and lost problems, how often each is solved, patterns of tasks, creativity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prorl.envs.files import StorageError
from prorl.lab.evals.comparison import Boundary, Move, TaskPattern, boundary, paired
from prorl.lab.evals.creativity import Creativity, Row, read_creativity
from prorl.lab.report.drawing import GREY, PALETTE, Drawn, Trace, axis, bar, faded, label, panels
from prorl.lab.report.page import Section, fold, paragraph
from prorl.lab.results import (
    PARTS,
    creativity_tables,
    gain_sentence,
    gain_table,
    gains,
    moved_table,
    newest_pairs,
    pattern_table,
    problems_moved,
    tasks_moved,
)
from prorl.lab.tables import Figure, to_html
from prorl.rollout.validation import Part, ProblemResult

NEW, LOST, BOTH = PALETTE[2], PALETTE[1], PALETTE[0]
ROW_PIXELS, HEAT_ROW_PIXELS, FRAME_PIXELS = 25, 34, 120
HATCH = {"size": 6, "solidity": 0.3, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.75)"}

FATES: tuple[tuple[str, str, Callable[[Boundary], int], str], ...] = (
    ("both", faded(BOTH, 0.5), lambda row: row.both, ""),
    ("new, sure", NEW, lambda row: row.sure_new, ""),
    ("new, unsure", NEW, lambda row: row.new - row.sure_new, "/"),
    ("lost, sure", LOST, lambda row: row.sure_lost, ""),
    ("lost, unsure", LOST, lambda row: row.lost - row.sure_lost, "/"),
    ("neither", faded(GREY, 0.3), lambda row: row.neither, ""),
)
"""Who solves a problem: name, colour, number of problems, hatch."""


def measured(folder: Path) -> str:
    """Whether training worked, as safe HTML: the newest checkpoint against the base in the run's largest evaluation.

    Its problems steer nothing in a run. It reads Parquet, which a dashboard does not do in its own process.
    """
    try:
        pairs = newest_pairs(folder)
    except StorageError as error:
        return paragraph(f"An evaluation cannot be read: {error}.", tone="warn")
    if not pairs:
        return paragraph(
            f"Not measured against its base yet: `prorl eval {folder.name}` does it.", tone="soft"
        )
    pair = max(pairs, key=lambda pair: pair.base.samples)
    html = ""
    for found in gains(pair, parts=PARTS):
        moves, title = pair.moves(found.part), f"{PARTS[found.part]} problems"
        names = ("its base", f"the policy of step {found.step}")
        html += paragraph(
            gain_sentence(moves, PARTS[found.part], pair.ks, names), problems_moved(moves, pair.ks[-1])
        )
        html += fold(f"By domain: {title}", to_html(gain_table(found, title)))
    return html


def moved_section(
    models: Sequence[Drawn], found: Sequence[TaskPattern], k: int, key: str, title: str
) -> Section:
    """Problems solved by both, new, lost and neither per task, the first model against the last; a heat map."""
    base, trained = models[0], models[-1]
    moves = {part: paired(base.of(part), trained.of(part)) for part in PARTS}
    parts = [part for part in PARTS if moves[part]]
    together = [move for part in parts for move in moves[part]]
    rows = {part: _per_task(moves[part]) for part in parts}
    return Section(
        key=key,
        title=title,
        html=paragraph(tasks_moved(found, k), problems_moved(together, k)),
        tables=(moved_table(together, "Numbers per task", folded=True),),
        figures=(_bars(rows, f"{key}-bars"), _heat_map(models, parts, f"{key}-map")),
    )


def pattern_section(
    found: Sequence[TaskPattern], between: str | None, k: int, key: str, title: str
) -> Section:
    """What training did to each task, as a table with the differences that decided it."""
    halves = (
        f"The halves are before and after {between}."
        if between
        else "No checkpoint between was evaluated, so nothing says when."
    )
    html = paragraph(
        f"diminish: pass@1 surely up and pass@{k} surely down; plateau: pass@{k} up early and surely slower after; "
        "sustained: still surely up in the second half; gain: surely up; unclear: the intervals do not decide. "
        f"{halves} Differences are in percentage points with 95 % intervals over problems."
    )
    chosen = [one for one in found if one.part in PARTS]
    return Section(key=key, title=title, html=html, tables=(pattern_table(chosen, k),))


def _per_task(moves: Sequence[Move]) -> list[Boundary]:
    """A row per task, tasks of a domain side by side."""
    names = sorted({(move.base.domain, move.base.task) for move in moves})
    return [boundary(task, [move for move in moves if move.base.task == task]) for _, task in names]


def _bars(rows: Mapping[Part, Sequence[Boundary]], key: str) -> Figure:
    """A bar per task, as long for few problems as for many."""
    traces = []
    for panel, tasks in enumerate(rows.values()):
        for name, color, number, hatch in FATES:
            counts = [number(row) for row in tasks]
            trace = bar(
                *(name, color, panel),
                orientation="h",
                y=[label(row.label) for row in tasks],
                x=[found / row.problems for found, row in zip(counts, tasks, strict=True)],
                customdata=counts,
                text=[str(found) if found else "" for found in counts],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                hovertemplate="%{customdata} (%{x:.0%})",
            )
            marker = {"color": color, "line": {"width": 0}, "pattern": {**HATCH, "shape": hatch}}
            traces.append({**trace, "marker": marker})
    most = max(map(len, rows.values()))
    layout = panels(
        [PARTS[part] for part in rows],
        {"tickformat": ".0%", "range": [0, 1], "showgrid": False, "title": {"text": "problems"}},
        # from top to bottom
        {"type": "category", "range": [most - 0.5, -0.5], "showgrid": False, "dtick": 1},
        columns=2,
        own_y=True,  # each part has its own tasks
    )
    layout |= {
        "barmode": "stack",
        "bargap": 0.3,
        "uniformtext": {"minsize": 9, "mode": "hide"},
        "height": FRAME_PIXELS + ROW_PIXELS * most,
        "hovermode": "y unified",
    }
    layout["grid"]["xgap"] = 0.34
    note = "Numbers count problems. Unsure (hatched) may be chance: one pass in hundreds of tries, say."
    title = "Problems solved by both, new, lost, by neither"
    return Figure(key=key, title=title, data=tuple(traces), layout=layout, note=note)


def _heat_map(models: Sequence[Drawn], parts: Sequence[Part], key: str) -> Figure:
    """A column per problem, the easiest for the base first; a row per model."""
    samples = max(model.evaluation.samples for model in models)
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
        data=tuple(_map(models, part, panel, samples) for panel, part in enumerate(parts)),
        layout=layout,
        note="One column is one problem; the scale is logarithmic and its lowest colour means never.",
    )


def _map(models: Sequence[Drawn], part: Part, panel: int, samples: int) -> Trace:
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
        "text": [[_hover(problem) for problem in row] for row in results],
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


def _hover(problem: ProblemResult) -> str:
    return (
        f"{label(problem.task)} {problem.index}, level {problem.level}: {problem.solved} of {problem.samples}"
    )


def _scale(samples: int) -> dict[str, Any]:
    rates = [4.0**-power for power in range(round(math.log(samples, 4)))]
    names = ["never", *(f"1/{round(1 / rate)}" if rate < 1 else "always" for rate in rates)]
    places = [_depth(0, samples), *(_depth(rate, samples) for rate in rates)]
    bar = {"thickness": 12, "outlinewidth": 0, "tickvals": places, "ticktext": names}
    return {"cmin": places[0], "cmax": 0, "colorscale": "Viridis", "colorbar": bar}


# -- creativity


def creativity_section(path: Path, models: Sequence[Drawn], key: str, title: str) -> Section | None:
    """The creativity index per domain of every model that has one, with intervals; None where none has."""
    if not path.exists():
        return None
    try:
        found = read_creativity(path)
    except StorageError as error:
        return Section(key=key, title=title, html=paragraph(str(error), tone="bad"))
    parts = [part for part in PARTS if any(row.part == part for row in found.rows)]
    if not parts:
        return None
    names = {model.evaluation.model: model for model in models}
    html = paragraph(
        f"The index sums, over lengths of {found.lengths.shortest} to {found.lengths.longest} words, the share of "
        "words that lie in no sequence of that length of the corpus: 0 where all of a text is in the corpus. A gain "
        "whose interval includes 0 may be chance.",
    )
    tables, figure = creativity_tables(found), _index_figure(found, parts, names, key)
    return Section(key=key, title=title, html=html, tables=tuple(tables), figures=(figure,))


def _index_figure(found: Creativity, parts: Sequence[Part], names: Mapping[str, Drawn], key: str) -> Figure:
    traces = [
        _points(rows, names, panel)
        for panel, part in enumerate(parts)
        for model in found.models
        if (rows := [row for row in found.rows if row.part == part and row.model == model.model])
    ]
    y = {"rangemode": "tozero", "title": {"text": "creativity index"}}
    layout = panels([PARTS[part] for part in parts], {"type": "category"}, y, columns=2)
    note = "Higher means less of the text is found in the corpus; bars are 95 % intervals over problems."
    return Figure(
        key=key,
        title="Creativity index per domain",
        data=tuple(traces),
        layout=layout | {"scattermode": "group", "scattergap": 0.6},
        note=note,
    )


def _points(rows: Sequence[Row], names: Mapping[str, Drawn], panel: int) -> Trace:
    model = rows[0].model
    name = label(_name(model, names))
    values = [row.index for row in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "legendgroup": name,
        "offsetgroup": name,
        "showlegend": panel == 0,
        "x": [label(row.domain) for row in rows],
        "y": [value.mean for value in values],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [value.high - value.mean for value in values],
            "arrayminus": [value.mean - value.low for value in values],
            "thickness": 1.5,
            "width": 3,
        },
        "hovertemplate": "%{y:.2f}",
        "marker": {"color": names[model].color if model in names else GREY, "size": 8},
        "xaxis": axis("x", panel),
        "yaxis": axis("y", panel),
    }


def _name(model: str, names: Mapping[str, Drawn]) -> str:
    return names[model].name if model in names else model
