"""The creativity index of a study's models: how much of what they write is not pieced together from a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from prorl.envs.files import StorageError
from prorl.lab.evals.creativity import Creativity, Estimate, Row, read_creativity
from prorl.lab.evals.statistics import MEAN
from prorl.lab.report.drawing import GREY, Drawn, Trace, axis, panels
from prorl.lab.report.markup import paragraph, remark
from prorl.lab.report.section import Figure, Section
from prorl.lab.report.style import label
from prorl.lab.report.words import PARTS
from prorl.rollout.validation import Part


def creativity_section(path: Path, models: Sequence[Drawn], key: str, title: str) -> Section | None:
    """The index per domain of every model that it was taken of, with intervals; None where it was not."""
    if not path.exists():
        return None
    try:
        found = read_creativity(path)
    except StorageError as error:
        return Section(key=key, title=title, html=remark(str(error), "bad"))
    parts = [part for part in PARTS if any(row.part == part for row in found.rows)]
    if not parts:
        return None
    names = {model.study.model: model for model in models}
    floors = ", ".join(f"{one.floor:.2f} ({_name(one.model, names)})" for one in found.models)
    text = (
        *(_told(found, part, names) for part in parts),
        f"It sums, over lengths of {found.lengths.shortest} to {found.lengths.longest} words, the share of words "
        f"that lie in no sequence of that length of the corpus, here {found.corpus} of {found.corpus_words:,} words.",
        f"Texts as short as these cannot fall below {floors}.",
    )
    return Section(key=key, title=title, html=paragraph(*text), figures=(_figure(found, parts, names, key),))


def _told(found: Creativity, part: Part, names: Mapping[str, Drawn]) -> str:
    """The mean over domains of the first model and the gain of the last one."""
    means = [row for row in found.rows if row.part == part and row.domain == MEAN]
    first, last = means[0], means[-1]
    where = PARTS[part].capitalize()
    text = f"{where}: the creativity index of {_name(first.model, names)} is {first.index.mean:.2f}"
    if last.gain is None:
        return f"{text}."
    gain = last.gain
    sure = "" if gain.low > 0 or gain.high < 0 else ", which includes no change"
    return (
        f"{text}, that of {_name(last.model, names)} {last.index.mean:.2f} (a difference of {gain.mean:+.2f}, 95 % "
        f"interval {gain.low:+.2f} to {gain.high:+.2f}{sure})."
    )


def _figure(found: Creativity, parts: Sequence[Part], names: Mapping[str, Drawn], key: str) -> Figure:
    traces = [
        _points([row for row in found.rows if row.part == part and row.model == model.model], names, panel)
        for panel, part in enumerate(parts)
        for model in found.models
    ]
    y = {"rangemode": "tozero", "title": {"text": "creativity index"}}
    layout = panels([PARTS[part] for part in parts], {"type": "category"}, y, columns=2)
    layout |= {"scattermode": "group", "scattergap": 0.6}
    return Figure(
        key=key,
        title="Creativity index per domain",
        data=tuple(trace for trace in traces if trace["x"]),
        layout=layout,
        note="Higher means less of the text is found in the corpus; bars are 95 % intervals over problems.",
    )


def _points(rows: Sequence[Row], names: Mapping[str, Drawn], panel: int) -> Trace:
    name = _name(rows[0].model, names) if rows else ""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(name),
        "legendgroup": label(name),
        "offsetgroup": label(name),
        "showlegend": panel == 0,
        "x": [label(row.domain) for row in rows],
        "y": [row.index.mean for row in rows],
        "error_y": _spread([row.index for row in rows]),
        "hovertemplate": "%{y:.2f}",
        "marker": {
            "color": names[rows[0].model].color if rows and rows[0].model in names else GREY,
            "size": 8,
        },
        "xaxis": axis("x", panel),
        "yaxis": axis("y", panel),
    }


def _spread(values: Sequence[Estimate]) -> Trace:
    return {
        "type": "data",
        "symmetric": False,
        "array": [value.high - value.mean for value in values],
        "arrayminus": [value.mean - value.low for value in values],
        "thickness": 1.5,
        "width": 3,
    }


def _name(model: str, names: Mapping[str, Drawn]) -> str:
    return names[model].name if model in names else model
