"""Where a run's references come from, as a picture and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prorl.lab.report.drawing import PALETTE, label
from prorl.lab.report.page import Section, paragraph
from prorl.lab.tables import Figure, Table
from prorl.run.history import Born, RunHistory

TITLE = "Reference lineage"
GREY = PALETTE[-1]
ROW_PIXELS, FRAME_PIXELS = 26, 130


def lineage_section(run: RunHistory) -> Section:
    """Every reference the run ever held: born when, why, of which policy; and the runs this one branched from."""
    born, parents = run.references, run.branches
    origin = f"This run is a branch of {', itself of '.join(reversed(parents))}." if parents else ""
    if not born:
        text = paragraph(f"No reference was ever held: the run pays no KL penalty. {origin}")
        return Section(key="lineage", title=TITLE, html=text)
    last = max(born[-1].step, run.step, *(mark.step for mark in run.marks[-1:]))
    resets = len(born) - 1
    count = "The reference was never reset" if not resets else f"The reference was reset {_times(resets)}"
    text = paragraph(
        f"{count}; {born[-1].name} of step {born[-1].step} is in use. "
        "A reset takes the policy of a step as the new reference, so that the KL penalty no longer pulls back to an "
        f"older one. {origin}"
    )
    return Section(
        key="lineage",
        title=TITLE,
        html=text,
        tables=(_table(run, born),),
        figures=(_timeline(born, last),),
    )


def _table(run: RunHistory, born: Sequence[Born]) -> Table:
    header = (
        "reference",
        "reason",
        "parent",
        "optimizer",
        "hash",
        "on disk",
        "born at step",
        "policy of step",
    )
    rows = tuple(
        (
            one.name,
            words(one.reason),
            one.parent or "the base",
            one.optimizer,
            one.hash[:12],
            run.condition(one),
            one.step,
            one.source_step,
        )
        for one in born
    )
    return Table(title="", columns=header, rows=rows)


def _timeline(born: Sequence[Born], last: int) -> Figure:
    """A bar per reference from its birth to that of the next one, coloured by the reason of its birth."""
    ends = [*(one.step for one in born[1:]), last]
    lives = list(zip(born, ends, strict=True))
    reasons = list(dict.fromkeys(one.reason for one in born))
    bars = [
        _bars(
            words(reason), PALETTE[place % len(PALETTE)], [life for life in lives if life[0].reason == reason]
        )
        for place, reason in enumerate(reasons)
    ]
    moved = [one for one in born if one.source_step != one.step]
    return Figure(
        key="lineage",
        title="Which reference held the policy, and when",
        data=(*bars, *([_sources(moved)] if moved else [])),
        layout={
            "barmode": "overlay",
            "bargap": 0.35,
            "height": FRAME_PIXELS + ROW_PIXELS * len(born),
            "xaxis": {"title": {"text": "step"}, "range": [0, max(last, 1)]},
            "yaxis": {
                "type": "category",
                "categoryorder": "array",
                "categoryarray": [label(one.name) for one in reversed(born)],
                "automargin": True,
            },
            "hovermode": "closest",
            "meta": {"wide": True},
        },
        note="A bar is the time in which a reference was in use; its colour is the reason why it was born.",
    )


def _bars(reason: str, color: str, lives: Sequence[tuple[Born, int]]) -> Mapping[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(reason),
        "y": [label(one.name) for one, _ in lives],
        "base": [one.step for one, _ in lives],
        "x": [end - one.step for one, end in lives],
        "marker": {"color": color},
        "hovertext": [
            f"{label(one.name)}, steps {one.step} to {end}<br>parent {label(one.parent or 'the base')}, "
            f"policy of step {one.source_step}<br>optimizer {label(one.optimizer)}"
            for one, end in lives
        ],
        "hoverinfo": "text",
    }


def _sources(born: Sequence[Born]) -> Mapping[str, Any]:
    """Where a reference is not the policy of its birth: the step whose policy it is."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "taken from an earlier step",
        "x": [one.source_step for one in born],
        "y": [label(one.name) for one in born],
        "marker": {"symbol": "diamond-open", "size": 11, "color": GREY, "line": {"width": 2}},
        "hovertext": [f"{label(one.name)} is the policy of step {one.source_step}" for one in born],
        "hoverinfo": "text",
    }


def words(name: str) -> str:
    """An identifier as people say it: `kl_ceiling` → `kl ceiling`."""
    return name.replace("_", " ")


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
