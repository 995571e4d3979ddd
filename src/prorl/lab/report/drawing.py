"""What the figures of a study share: colours of models, panels side by side, an axis of k, a curve with its band."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prorl.lab.evals.evaluation_store import BASE, Study
from prorl.lab.evals.statistics import Curve
from prorl.lab.report.style import PALETTE, faded, label
from prorl.rollout.validation import Part, ProblemResult

GREY = PALETTE[-1]
RAMP = ("#23a3b5", "#2f74c0", "#7a52c7")  # first to last checkpoint; as legible on white as on the dark page
FOREIGN = (PALETTE[4], PALETTE[3], PALETTE[6])
COLUMNS = 3
PANEL_PIXELS, FRAME_PIXELS = 215, 95

Trace = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A model as figures show it."""

    name: str  # `base`, `step 320`, or what a model from elsewhere is called
    color: str
    study: Study

    @property
    def label(self) -> str:
        """The name, safe in a figure."""
        return label(self.name)

    @property
    def is_base(self) -> bool:
        """Whether the others are compared with it."""
        return self.study.model == BASE

    def of(self, *parts: Part) -> list[ProblemResult]:
        """Its problems of these parts."""
        return [problem for problem in self.study.problems if problem.part in parts]


def drawn(studies: Sequence[Study]) -> list[Drawn]:
    """The base first and in grey, models from elsewhere, then checkpoints by step on a scale of colours."""
    base = [study for study in studies if study.model == BASE]
    foreign = [study for study in studies if study.model != BASE and study.step is None]
    steps = [study for study in studies if study.model != BASE and study.step is not None]
    return [
        *(Drawn(name=BASE, color=GREY, study=study) for study in base),
        *(
            Drawn(name=study.model, color=FOREIGN[place % len(FOREIGN)], study=study)
            for place, study in enumerate(foreign)
        ),
        *(
            Drawn(name=f"step {study.step}", color=_on_ramp((place + 1) / len(steps)), study=study)
            for place, study in enumerate(steps)
        ),
    ]


def curve_traces(model: Drawn, curve: Curve, panel: int, *, legend: bool) -> list[Trace]:
    """A line with its interval as a band, in a panel counted from 0."""
    axes = {"xaxis": axis("x", panel), "yaxis": axis("y", panel), "legendgroup": model.label}
    band = {
        "type": "scatter",
        "x": [*curve.ks, *reversed(curve.ks)],
        "y": [*curve.high, *reversed(curve.low)],
        "fill": "toself",
        "fillcolor": faded(model.color, 0.16),
        "line": {"width": 0},
        "mode": "lines",
        "hoverinfo": "skip",
        "showlegend": False,
    }
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": model.label,
        "x": curve.ks,
        "y": curve.rates,
        "customdata": list(zip(curve.low, curve.high, strict=True)),
        "hovertemplate": "%{y:.1%} (%{customdata[0]:.1%} to %{customdata[1]:.1%})",
        "line": {"color": model.color, "width": 2.2, "dash": "dot" if model.is_base else "solid"},
        "marker": {"color": model.color, "size": 5},
        "showlegend": legend,
    }
    return [{**band, **axes}, {**line, **axes}]


def k_axis(ks: Sequence[int], what: str = "k") -> dict[str, Any]:
    """An axis of numbers of responses, equal steps for equal factors."""
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": list(ks),
        "ticktext": [str(k) if place % 2 == 0 or len(ks) < 6 else "" for place, k in enumerate(ks)],
        "title": {"text": what},
        "unifiedhovertitle": {"text": f"{what} = %{{x}}"},
    }


def share_axis(what: str) -> dict[str, Any]:
    """An axis of shares of problems, from zero."""
    return {"tickformat": ".0%", "rangemode": "tozero", "title": {"text": what}}


def panels(
    titles: Iterable[str], x: Mapping[str, Any], y: Mapping[str, Any], *, columns: int = COLUMNS
) -> dict[str, Any]:
    """The layout of equal panels in rows, all on the scale of the first one, each below its title."""
    names = list(titles)
    columns = min(columns, len(names))
    rows = -(-len(names) // columns)
    layout: dict[str, Any] = {
        "grid": {
            "rows": rows,
            "columns": columns,
            "pattern": "independent",
            "xgap": 0.07,
            "ygap": 0.32 if rows > 1 else 0,
        },
        "height": FRAME_PIXELS + rows * PANEL_PIXELS + (60 if rows == 1 else 0),
        "annotations": [_title(title, panel) for panel, title in enumerate(names)],
        "margin": {"t": 64},
        "meta": {"wide": True},
        "legend": {"y": 1, "yref": "container", "yanchor": "top", "tracegroupgap": 0},
    }
    for panel in range(len(names)):
        lowest, leftmost = panel >= len(names) - columns, panel % columns == 0
        layout[_key("x", panel)] = {**x, **({} if lowest else {"title": {"text": ""}})}
        layout[_key("y", panel)] = {
            **y,
            **({} if leftmost else {"title": {"text": ""}, "showticklabels": False}),
            **({"matches": "y"} if panel else {}),
        }
    return layout


def axis(letter: str, panel: int) -> str:
    """What a trace calls the axis of a panel: `x`, `x2`, …"""
    return letter if panel == 0 else f"{letter}{panel + 1}"


def _key(letter: str, panel: int) -> str:
    return f"{letter}axis" if panel == 0 else f"{letter}axis{panel + 1}"


def _title(text: str, panel: int) -> dict[str, Any]:
    return {
        "text": f"<b>{text}</b>",
        "xref": f"{axis('x', panel)} domain",
        "yref": f"{axis('y', panel)} domain",
        "x": 0,
        "y": 1,
        "yshift": 4,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }


def _on_ramp(place: float) -> str:
    """The colour at `place` in [0, 1] of the ramp."""
    below = min(int(place * (len(RAMP) - 1)), len(RAMP) - 2)
    share = place * (len(RAMP) - 1) - below
    ends = zip(_channels(RAMP[below]), _channels(RAMP[below + 1]), strict=True)
    return "#" + "".join(f"{round(first + share * (second - first)):02x}" for first, second in ends)


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
