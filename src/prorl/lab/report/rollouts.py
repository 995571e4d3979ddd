"""Rollouts to read, from the files that hold them: of a run's 100,000 records only a few dozen are shown."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prorl.lab.evals.evaluation_store import Evaluation
from prorl.lab.report.page import Section, fold, heading, paragraph, shortened
from prorl.lab.tables import count, escape
from prorl.rollout.validation import Kept
from prorl.run.layout import SAMPLES

if TYPE_CHECKING:
    from prorl.lab.evals.comparison import Move

T = TypeVar("T")

TITLE = "Sample rollouts"
LINES = 64  # of a file that are read
LATEST, EARLIER = 16, 6  # rollouts that are shown of the newest file, and of each earlier one
EARLIER_FILES = 3
PAIRS = 12

WORDS = {"ok": "passed", "wrong": "failed", "error": "not judged"}


def rollout_section(folder: Path) -> Section:
    """What the policy writes now, and what it wrote along the run: at most 34 rollouts, grouped by domain."""
    files = sorted(path for path in (folder / SAMPLES).glob("step_*.jsonl") if path.stat().st_size)
    if not files:
        text = paragraph("No rollout is stored yet: the run writes some every few steps.")
        return Section(key="rollouts", title=TITLE, html=text)
    newest, *earlier = along(files)
    text = paragraph(
        "Prompts and responses as the model read and wrote them, with the verifier's verdict. "
        "They are the first ones of a step and not chosen by how they went."
    )
    title, body = _step(newest, LATEST)
    folds = "".join(fold(*_step(path, EARLIER)) for path in earlier)
    return Section(key="rollouts", title=TITLE, html=text + heading(title) + body + folds)


def along(files: Sequence[Path], earlier: int = EARLIER_FILES) -> list[Path]:
    """The newest file, then some spread evenly over the run back to its first one."""
    last = len(files) - 1
    places = {round(last * share / earlier) for share in range(earlier)} - {last}
    return [files[last], *(files[place] for place in sorted(places, reverse=True))]


def _step(path: Path, most: int) -> tuple[str, str]:
    """A title and the rollouts of one file as HTML."""
    domains = by_domain(_records(path), most)
    step = path.stem.removeprefix("step_").lstrip("0") or "0"
    body = "".join(
        f"<h4>{escape(domain)}</h4>{''.join(map(_card, records))}" for domain, records in domains.items()
    )
    shown = sum(map(len, domains.values()))
    return f"Step {step}: {count(shown, 'rollout')}", body


def _records(path: Path) -> list[Mapping[str, Any]]:
    """The first records of a file, each text once; a line that is not whole or no record is passed over."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    with path.open("rb") as file:
        for line in islice(file, LINES):
            try:
                record = json.loads(line)
                found.setdefault((str(record["prompt"]), str(record["response"])), record)
            except (ValueError, TypeError, KeyError):
                continue
    return list(found.values())


def by_domain(records: Iterable[Mapping[str, Any]], most: int) -> dict[str, list[Mapping[str, Any]]]:
    """At most so many records, as equally many of each domain as there are."""
    return _grouped(in_turn(_grouped(records, _domain).values())[:most], _domain)


def _domain(record: Mapping[str, Any]) -> str:
    return str(record.get("domain", ""))


def _grouped(items: Iterable[T], by: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = defaultdict(list)
    for item in items:
        groups[by(item)].append(item)
    return groups


def in_turn(lists: Iterable[Sequence[T]]) -> list[T]:
    """The first of each list, then the second of each, and so on."""
    ranked = [(place, item) for items in lists for place, item in enumerate(items)]
    return [item for _, item in sorted(ranked, key=itemgetter(0))]


def _card(record: Mapping[str, Any]) -> str:
    facts = (
        record.get("task", ""),
        f"level {record.get('level')}",
        f"score {record.get('score')}",
        f"{record.get('tokens')} tokens",
        "cut off at the limit" if record.get("finish") == "length" else "",
        "trained on" if record.get("trained") else "not trained on",
        record.get("note", ""),
    )
    answer = response(str(record["response"]), str(record.get("status")), facts)
    return f'<article class="rollout">{_prompt(str(record["prompt"]))}{answer}</article>'


def _prompt(text: str) -> str:
    return f'<pre class="prompt">{escape(shortened(text))}</pre>'


def response(text: str, status: str, facts: Iterable[object]) -> str:
    """One response with its verdict as a word and a colour (`status` as the verifier gave it), and facts about it."""
    word = WORDS.get(status, status)
    about = " · ".join(str(fact) for fact in facts if fact not in ("", None))
    verdict = f'<span class="verdict">{escape(word)}</span> {escape(about)}'
    kind = status if status in WORDS else "error"
    body = escape(shortened(text)) or "<em>nothing</em>"
    return f'<div class="response {kind}"><p>{verdict}</p><pre>{body}</pre></div>'


def solvable_section(base: Evaluation, trained: Evaluation, key: str, title: str) -> Section:
    """Problems that the base never solved and the trained model did: a response of each side by side."""
    from prorl.lab.evals.comparison import paired  # imports numpy, which the dashboard does without

    moves = [
        move for move in paired(base.problems, trained.problems) if move.fate == "new" and move.trained.kept
    ]
    if not moves:
        text = paragraph("No problem that the base never solved is solved now.")
        return Section(key=key, title=title, html=text)
    moves.sort(key=lambda move: (not move.sure, -move.trained.solved))
    shown = in_turn(_grouped(moves, lambda move: move.base.domain).values())[:PAIRS]
    text = paragraph(
        f"{len(shown)} of {count(len(moves), 'problem')}, that the base never solved and the trained "
        "model did, those it solves most often first: the base's first response, and the first that passed."
    )
    return Section(key=key, title=title, html=text + "".join(map(_pair, shown)))


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
    cut = "cut off at the limit" if kept.finish == "length" else ""
    return response(kept.text, kept.status, (who, f"{kept.tokens} tokens", cut, kept.note))
