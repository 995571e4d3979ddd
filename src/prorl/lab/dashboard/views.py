"""What the dashboard shows beside the report's sections: health, orders, the list of runs.

Every text that an operator, a task or a folder's name brings in is escaped here, where it becomes HTML.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from urllib.parse import quote

from prorl.config.schema import KNOBS
from prorl.lab.report.page import Section, bullets, heading, paragraph
from prorl.lab.report.reader import RunRecord
from prorl.lab.tables import count, duration, escape
from prorl.run.status import RECENT
from prorl.steering import WORDS

LATELY = 5  # marks
NONE = "–"
BACK = '<p><a href="/">all runs</a></p>'
TONES: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("running", "done"), "good")
    | dict.fromkeys(("degraded", "crashed", "hung?", "unreadable"), "bad")
)
GOING = ("running", "degraded", "waiting", "hung?", "elsewhere")  # of health: what may still take steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """One run as a row of the list and the head of its page; small, so that many can be kept."""

    health: str
    stopped: str | None  # why, if it says so itself
    step: int
    steps: int
    rate: float | None  # steps per hour, lately
    exam: tuple[int, float] | None  # of the last one: step, pass@1
    written: float | None  # wall clock of the journal's last event
    lately: tuple[str, ...]  # what happened last, the newest first
    notes: tuple[str, ...]


def glance(run: RunRecord) -> Glance:
    """What is shown of a run at a glance."""
    seconds = [value for value in run.steps.get("seconds.total")[-RECENT:] if value > 0]
    planned = run.config.get("steps", 0)
    return Glance(
        health=run.health,
        stopped=run.stopped,
        step=run.steps.steps[-1] if len(run.steps) else 0,
        steps=planned if isinstance(planned, int) else 0,
        rate=3600 / fmean(seconds) if seconds else None,
        exam=(run.exams.steps[-1], run.exams.get("score")[-1]) if len(run.exams) else None,
        written=run.written,
        lately=tuple(mark.text for mark in run.marks[: -LATELY - 1 : -1]),
        notes=run.notes,
    )


def health_section(seen: Glance, now: float) -> Section:
    """How a run is doing."""
    facts = {
        "health": _health(seen.health),
        "step": f"{seen.step:,}{_progress(seen)}",
        "steps per hour": _rate(seen) + _left(seen),
        "last exam": _exam(seen),
        "last event": _age(seen, now),
    }
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    notes = "".join(paragraph(note, tone="warn") for note in seen.notes)
    lately = heading("Lately") + bullets(seen.lately) if seen.lately else ""
    return Section(key="health", title="Now", html=f'{BACK}<dl class="facts">{cells}</dl>{notes}{lately}')


def runs_section(runs: Mapping[str, Glance], now: float, *, unread: int = 0) -> Section:
    """All runs, a row each, those that go on first; of `unread` ones it is said that they will come."""
    titles = ("run", "health", "step", "exam", "steps/h", "last event", "lately")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    ordered = sorted(runs.items(), key=lambda item: _word(item[1].health) not in GOING)
    rows = "".join(_row(name, seen, now) for name, seen in ordered)
    table = f'<table class="runs"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    none = paragraph("There are no runs here yet; `prorl train` begins one.", tone="soft")
    more = paragraph(f"{count(unread, 'more run')} to be read …", tone="soft") if unread else ""
    html = f'<div class="scroll">{table}</div>{more}' if runs else none
    return Section(key="runs", title="Runs", html=html)


def orders_section() -> Section:
    """The form with which an operator steers; `live.js` switches it on where the token is known."""
    words = "".join(f'<button type="button" value="{word}">{word}</button>' for word in WORDS)
    knobs = "".join(f'<option value="{knob}="></option>' for knob in KNOBS)
    return Section(
        key="orders",
        title="Orders",
        html=(
            '<form class="orders card"><fieldset disabled>'
            f'<div class="words">{words}</div>'
            '<div class="line"><input name="line" list="order-knobs" autocomplete="off" spellcheck="false" '
            'aria-label="order" placeholder="kl.coef=5e-4 optimizer.lr=1e-4, or: note some text">'
            f'<datalist id="order-knobs">{knobs}</datalist><button type="submit">give</button></div>'
            '</fieldset><output class="soft">To give orders, open the address with the token that '
            "<code>prorl dashboard</code> printed when it started.</output></form>"
        ),
    )


def trouble_section(sentence: str) -> Section:
    """Said in place of what could not be shown."""
    return Section(key="trouble", title="Trouble", html=paragraph(sentence, tone="bad"))


def _row(name: str, seen: Glance, now: float) -> str:
    link = f'<a href="/run/{quote(os.fsencode(name))}">{escape(name)}</a>'
    lately = f"<small>{escape((*seen.notes, *seen.lately, '')[0])}</small>"
    step = f"{seen.step:,}{_progress(seen)}"
    cells = (link, _health(seen.health), step, _exam(seen), _rate(seen), _age(seen, now), lately)
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _progress(seen: Glance) -> str:
    bar = f'<progress aria-hidden="true" value="{seen.step}" max="{max(seen.steps, 1)}"></progress>'
    return f"<small>{bar} of {seen.steps:,}</small>"


def _rate(seen: Glance) -> str:
    return f"{seen.rate:,.0f}" if seen.rate else NONE


def _left(seen: Glance) -> str:
    if not seen.rate or seen.step >= seen.steps or _word(seen.health) not in GOING:
        return ""
    return f"<small>{duration((seen.steps - seen.step) / seen.rate * 3600)} to go at this rate</small>"


def _exam(seen: Glance) -> str:
    return f"{seen.exam[1]:.1%}<small>pass@1 at step {seen.exam[0]:,}</small>" if seen.exam else NONE


def _age(seen: Glance, now: float) -> str:
    return f"{duration(max(0.0, now - seen.written))} ago" if seen.written else NONE


def _health(text: str) -> str:
    word, rest = _word(text), text.partition(" ")[2]
    about = rest and f"<small>{escape(rest)}</small>"
    return f'<span class="{TONES.get(word, "warn")}">{escape(word)}</span>{about}'


def _word(health: str) -> str:
    return health.partition(" ")[0].rstrip(":")
