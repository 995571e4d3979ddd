"""How figures look, and what those of evaluations share: colours of models, panels side by side, curves with bands.

The palette is for colour-blind readers, on white and on black.
"""

from __future__ import annotations

import html
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

from prorl.envs.files import storable
from prorl.lab.evals.evaluation_store import BASE, Evaluation

if TYPE_CHECKING:
    from prorl.lab.evals.statistics import Point  # imports numpy, which the dashboard does without

PALETTE = ("#2f74c0", "#d9622b", "#1f9a85", "#b8508f", "#a5821a", "#6a63c6", "#5f8a2e", "#7d858f")
"""Colours of runs or series, in order; each has at least 3:1 contrast on white and on the dark page."""

GREY = PALETTE[-1]
RAMP = ("#23a3b5", "#2f74c0", "#7a52c7")  # first to last checkpoint; as legible on white as on the dark page
FOREIGN = (PALETTE[4], PALETTE[3], PALETTE[6])
HEIGHT = 300  # pixels
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK = {"light": "#3c4450", "dark": "#c3c9d2"}
GRID = {"light": "#e8ebef", "dark": "#2a3039"}
PAPER = {"light": "#ffffff", "dark": "#161a20"}
COLUMNS = 3
PANEL_PIXELS, FRAME_PIXELS = 215, 95

Trace = dict[str, Any]


def template(theme: str) -> dict[str, Any]:
    """The plotly template of a theme, `light` or `dark`; page.js leaves the paper transparent."""
    axis = {
        "gridcolor": GRID[theme],
        "linecolor": GRID[theme],
        "zeroline": False,
        "ticks": "",
        "automargin": True,
        "exponentformat": "power",
        "minexponent": 5,
        "separatethousands": True,
        "title": {"font": {"size": 12}, "standoff": 6},
        "tickfont": {"size": 11},
    }
    hover = {"bgcolor": PAPER[theme], "bordercolor": GRID[theme], "font": {"size": 12}, "align": "left"}
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    layout = {
        "font": {"family": FONT, "size": 12, "color": INK[theme]},
        "colorway": list(PALETTE),
        "margin": {"l": 48, "r": 14, "t": 10, "b": 40},
        "height": HEIGHT,
        "hovermode": "x unified",
        "hoverlabel": hover,
        "legend": {**legend, "font": {"size": 11}, "bgcolor": "rgba(0,0,0,0)"},
        "xaxis": axis,
        "yaxis": axis,
    }
    return {"layout": layout}


def label(text: str, *, width: int = 0) -> str:
    """Any text as plotly shows it letter by letter; in lines of `width` characters where that is given.

    Plotly reads a subset of HTML in labels and hover texts: what is no label of ours must not be read so.
    """
    whole = storable(text)
    lines = textwrap.wrap(whole, width, max_lines=8, placeholder=" …") if width else [whole]
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def faded(color: str, share: float) -> str:
    """A `#rrggbb` colour that covers only a share of what is below it."""
    return f"{color}{round(255 * share):02x}"


def band(name: str, color: str, xs: Sequence[float], ys: Sequence[float | None]) -> Trace:
    """An interval as an area with this outline; it comes and goes with the curve of the same name."""
    below = {"type": "scatter", "mode": "none", "name": name, "legendgroup": name, "showlegend": False}
    return below | {"hoverinfo": "skip", "fill": "toself", "fillcolor": faded(color, 0.17), "x": xs, "y": ys}


# -- the models of an evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A model as figures show it: the base in grey."""

    color: str
    evaluation: Evaluation


def drawn(evaluations: Sequence[Evaluation]) -> list[Drawn]:
    """The base first and in grey, models from elsewhere, then checkpoints by step on a scale of colours.

    With the problems that all could be judged on.
    """
    judged = Counter(one.key for each in evaluations for one in each.problems if one.samples)
    evaluations = [
        replace(each, problems=tuple(one for one in each.problems if judged[one.key] == len(evaluations)))
        for each in evaluations
    ]
    others = [one for one in evaluations if one.model != BASE]
    foreign = [one for one in others if one.step is None]
    steps = [one for one in others if one.step is not None]
    found = [
        *((GREY, one) for one in evaluations if one.model == BASE),
        *zip(cycle(FOREIGN), foreign, strict=False),
        *((_on_ramp(at / len(steps)), one) for at, one in enumerate(steps, 1)),
    ]
    return [Drawn(color=color, evaluation=one) for color, one in found]


def _on_ramp(place: float) -> str:
    below = min(int(place * (len(RAMP) - 1)), len(RAMP) - 2)
    share = place * (len(RAMP) - 1) - below
    ends = ([int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in RAMP[below : below + 2])
    return "#" + "".join(
        f"{round(one + share * (other - one)):02x}" for one, other in zip(*ends, strict=True)
    )


# -- panels


def curve_traces(model: Drawn, curve: Sequence[Point], panel: int) -> list[Trace]:
    """A line with its interval as a band, in a panel counted from 0; the first panel's lines are the legend's."""
    shared = _of_model(model, panel)
    ks = [at.k for at in curve]
    dash = "dot" if model.evaluation.model == BASE else "solid"
    outline = [at.high for at in curve] + [at.low for at in reversed(curve)]
    line = shared | {
        "mode": "lines+markers",
        "x": ks,
        "y": [at.rate for at in curve],
        "customdata": [(at.low, at.high) for at in curve],
        "hovertemplate": "%{y:.1%} (%{customdata[0]:.1%} to %{customdata[1]:.1%})",
        "line": {"color": model.color, "width": 2.2, "dash": dash},
        "marker": {"color": model.color, "size": 5},
    }
    return [shared | band(shared["name"], model.color, ks + ks[::-1], outline), line]


def dots(model: Drawn, rows: Mapping[str, Point], panel: int) -> Trace:
    """A dot per row with its interval."""
    symbol = "circle-open" if model.evaluation.model == BASE else "circle"
    return _of_model(model, panel) | {
        "mode": "markers",
        "x": [at.rate for at in rows.values()],
        "y": [*map(label, rows)],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "color": faded(model.color, 0.5),
            "thickness": 2,
            "array": [at.high - at.rate for at in rows.values()],
            "arrayminus": [at.rate - at.low for at in rows.values()],
        },
        "marker": {"color": model.color, "size": 10, "symbol": symbol},
        "hovertemplate": "%{y}: %{x:.1%}",
    }


def _of_model(model: Drawn, panel: int) -> Trace:
    name, axes = label(model.evaluation.title), {"xaxis": axis("x", panel), "yaxis": axis("y", panel)}
    return {"type": "scatter", "name": name, "legendgroup": name, "showlegend": panel == 0, **axes}


def k_axis(ks: Sequence[int]) -> dict[str, Any]:
    """An axis of numbers of responses, equal steps for equal factors."""
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": list(ks),
        "ticktext": [str(k) if place % 2 == 0 or len(ks) < 6 else "" for place, k in enumerate(ks)],
        "title": {"text": "k"},
        "unifiedhovertitle": {"text": "k = %{x}"},
    }


def share_axis(what: str) -> dict[str, Any]:
    """An axis of shares of problems, from zero."""
    return {"tickformat": ".0%", "rangemode": "tozero", "title": {"text": what}}


def panels(titles: Sequence[str], x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    """The layout of equal panels in rows, each below its title, all on the scale of the first one."""
    columns = min(COLUMNS, len(titles))
    rows = -(-len(titles) // columns)
    gaps = {"xgap": 0.07, "ygap": 0.32 if rows > 1 else 0}
    place = {"x": 0, "y": 1, "yshift": 4, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    layout: dict[str, Any] = {
        "grid": {"rows": rows, "columns": columns, "pattern": "independent", **gaps},
        "height": FRAME_PIXELS + rows * PANEL_PIXELS + (60 if rows == 1 else 0),
        "annotations": [],
        "margin": {"t": 64},
        "meta": {"wide": len(titles) > 1, "panels": len(titles) > 1},
        "legend": {"y": 1, "yref": "container", "yanchor": "top", "tracegroupgap": 0},
    }
    for panel, title in enumerate(titles):
        refs = {f"{letter}ref": f"{axis(letter, panel)} domain" for letter in "xy"}
        layout["annotations"].append({"text": f"<b>{title}</b>", **refs, **place})
        lowest, leftmost = panel >= len(titles) - columns, panel % columns == 0
        layout[axis("xaxis", panel)] = {**x, **({} if lowest else {"title": {"text": ""}})}
        right = {} if leftmost else {"title": {"text": ""}, "showticklabels": False}
        layout[axis("yaxis", panel)] = {**y, **right, **({"matches": "y"} if panel else {})}
    return layout


def axis(letter: str, panel: int) -> str:
    """What a trace calls the axis of a panel: `x`, `x2`, …; a layout begins with `xaxis`."""
    return letter if panel == 0 else f"{letter}{panel + 1}"
