"""How every figure looks: a palette for colour-blind readers, on white and on black, and one quiet template."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PALETTE = ("#2f74c0", "#d9622b", "#1f9a85", "#b8508f", "#a5821a", "#6a63c6", "#5f8a2e", "#7d858f")
"""Colours of runs or series, in order; each has at least 3:1 contrast on white and on the dark page."""

MARK_COLORS: Mapping[str, str] = MappingProxyType(
    {
        "reset": "#b8508f",
        "stage": "#1f9a85",
        "intervention": "#d9622b",
        "roll back": "#c8323c",
        "order": "#6a63c6",
        "resume": "#7d858f",
        "warning": "#a5821a",
    }
)
"""Kind of mark → colour of its thin line; the end of a run needs none."""

HEIGHT = 300  # pixels
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, GRID, PAPER = (
    {"light": "#3c4450", "dark": "#c3c9d2"},
    {"light": "#e8ebef", "dark": "#2a3039"},
    {"light": "#ffffff", "dark": "#161a20"},
)


def template(theme: str = "light") -> dict[str, Any]:
    """The plotly template of a theme, `light` or `dark`; the background is the paper's, so pictures can use it."""
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
    layout = {
        "font": {"family": FONT, "size": 12, "color": INK[theme]},
        "paper_bgcolor": PAPER[theme],
        "plot_bgcolor": PAPER[theme],
        "colorway": list(PALETTE),
        "margin": {"l": 48, "r": 14, "t": 10, "b": 40},
        "height": HEIGHT,
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": PAPER[theme],
            "bordercolor": GRID[theme],
            "font": {"size": 12},
            "align": "left",
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 11},
            "bgcolor": "rgba(0,0,0,0)",
        },
        "xaxis": axis,
        "yaxis": axis,
    }
    return {"layout": layout}


def label(text: str, *, width: int = 0) -> str:
    """Any text as plotly shows it letter by letter; in lines of `width` characters where that is given.

    Plotly reads a subset of HTML in labels and hover texts: what is no label of ours must not be read so.
    """
    whole = text.encode("utf-8", "replace").decode()  # a tokenizer may leave halves of surrogate pairs
    lines = textwrap.wrap(whole, width, max_lines=8, placeholder=" …") if width else [whole]
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def faded(color: str, share: float) -> str:
    """A `#rrggbb` colour that covers only a share of what is below it."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share:g})"
