"""Rollouts to read, from the files that hold them: of a run's 100,000 records only a few dozen are shown."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prorl.lab.evals.problems import Kept
from prorl.lab.report.page import Section, fold, heading, paragraph, shortened
from prorl.lab.tables import count, escape
from prorl.rollout.pipeline import grouped
from prorl.run.layout import samples, step_of

if TYPE_CHECKING:
    from prorl.lab.evals.comparison import Move

T = TypeVar("T")

TITLE = "Sample rollouts"
LINES = 64  # of a file that are read
LATEST, EARLIER = 32, 8  # rollouts that are shown of the newest file, and of each earlier one
EARLIER_FILES = 3
PAIRS = 12

CUT = "cut off at the limit"
WORDS = {"ok": "passed", "wrong": "failed", "error": "not judged"}


def rollout_section(folder: Path) -> Section:
    """What the policy writes now, and what it wrote along the run: at most 56 rollouts, grouped by problem."""
    files = [path for path in samples(folder).values() if path.stat().st_size]
    if not files:
        text = paragraph("No rollout is stored yet: the run writes some every few steps.")
        return Section(key="rollouts", title=TITLE, html=text)
    newest, *earlier = along(files)
    text = paragraph(
        "Prompts and responses as the model read and wrote them, with the verifier's verdict. "
        "They are the first ones of a step, not chosen by how they went, and some that could not be judged."
    )
    title, body = _step(newest, LATEST)
    folds = "".join(fold(*_step(path, EARLIER)) for path in earlier)
    return Section(key="rollouts", title=TITLE, html=text + heading(title) + body + folds)


def along(files: Sequence[Path]) -> list[Path]:
    """The newest file, then some spread evenly over the run back to its first one."""
    last = len(files) - 1
    places = {round(last * share / EARLIER_FILES) for share in range(EARLIER_FILES)} - {last}
    return [files[last], *(files[place] for place in sorted(places, reverse=True))]


def _step(path: Path, most: int) -> tuple[str, str]:
    """A title and the rollouts of one file as HTML: at most so many, as equally many of each domain as there are."""
    chosen = in_turn(read_records(path), _domain, most)
    problems = grouped(sorted(chosen, key=_domain), lambda one: (_domain(one), str(one["prompt"])))
    body = "".join(_card(step_of(path), records) for records in problems.values())
    return f"Step {step_of(path)}: {count(len(chosen), 'rollout')}", body


def read_records(path: Path) -> list[Mapping[str, Any]]:
    """The first records of a file, each text once; a line that is not whole or no record is passed over."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    with path.open("rb") as file:
        for line in itertools.islice(file, LINES):
            try:
                record = json.loads(line)
                found.setdefault((str(record["prompt"]), str(record["response"])), record)
            except (ValueError, TypeError, KeyError):
                continue
    return list(found.values())


def _domain(record: Mapping[str, Any]) -> str:
    return str(record.get("domain", ""))


def in_turn(items: Iterable[T], group: Callable[[T], str], most: int) -> list[T]:
    """At most so many items: the first of each group, then the second of each, and so on."""
    turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    return sorted(items, key=lambda item: next(turns[group(item)]))[:most]


def _card(step: int | None, records: Sequence[Mapping[str, Any]]) -> str:
    """A problem of a step with its right answer, if one is known, and the responses to it."""
    first = records[0]
    trained = "trained on" if first.get("trained") else "group dropped"
    about = " · ".join((str(first.get("task", "")), _domain(first), f"level {first.get('level')}", trained))
    # The score that is stored with an error says nothing.
    titles = ("" if one.get("status") == "error" else f"score {one.get('score')}" for one in records)
    responses = "".join(map(_response, titles, records))
    right = shortened(str(first.get("answer", "")))
    known = right and f'<p class="answer">right answer: <code>{escape(right)}</code></p>'
    return (
        f'<article class="rollout" data-task="{escape(first.get("task", ""))}" data-step="{escape(step)}">'
        f"<h4>{escape(about)}</h4>{_prompt(str(first['prompt']))}{known}"
        f'<div class="pair">{responses}</div></article>'
    )


def _prompt(text: str) -> str:
    return f'<pre class="prompt" tabindex="0">{escape(shortened(text))}</pre>'


def _response(title: str, record: Mapping[str, Any]) -> str:
    """One response as it is stored: its verdict as a word and a colour, the title, facts about it, and its text."""
    status, cut = str(record.get("status")), CUT * (record.get("finish") == "length")
    facts = (title, f"{record.get('tokens')} tokens", cut, record.get("note", ""))
    about = " · ".join(str(fact) for fact in facts if fact not in ("", None))
    verdict = f'<span class="verdict">{escape(WORDS.get(status, status))}</span> {escape(about)}'
    kind = status if status in WORDS else "error"
    body = escape(shortened(str(record["response"]))) or "<em>nothing</em>"
    return f'<div class="response {kind}"><p>{verdict}</p><pre tabindex="0">{body}</pre></div>'


def solvable_html(moves: Sequence[Move]) -> str:
    """Problems that the trained model solves beyond guessing and the base does not: a response of each."""
    found = [move for move in moves if move.outcome == "new" and move.trained.kept]
    if not found:
        return paragraph("No problem is solved now that the base did not solve, guesses left out.")
    found.sort(key=lambda move: (not move.sure, -move.trained.solved))
    shown = in_turn(found, lambda move: move.base.domain, PAIRS)
    text = paragraph(
        f"{len(shown)} of {count(len(found), 'problem')} that the trained model solves beyond guessing and the base "
        "does not, the surest of each domain first: the base's first response, and one that passed."
    )
    return text + "".join(map(_pair, shown))


def _pair(move: Move) -> str:
    base, trained = move.base, move.trained
    passed = max(trained.kept, key=lambda kept: kept.score)
    title = (
        f"{base.domain}: {base.task} {base.index}, level {base.level} ({base.part}): {base.solved} of {base.samples} "
        f"→ {trained.solved} of {trained.samples}"
    )
    before = "".join(_kept("base", kept) for kept in base.kept[:1])
    return fold(title, f'{_prompt(base.prompt)}<div class="pair">{before}{_kept("trained", passed)}</div>')


def _kept(who: str, kept: Kept) -> str:
    return _response(who, {**asdict(kept), "response": kept.text})
