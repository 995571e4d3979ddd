"""Run directories written by hand: a config and a journal of given events, as a trainer leaves them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prorl.control.events import Event, to_record
from prorl.envs.files import encode_json
from prorl.run.journal import Chain
from prorl.run.layout import CONFIG, JOURNAL

PLAIN: Mapping[str, Any] = {
    "name": "nano",
    "seed": 0,
    "steps": 100,
    "model": {"path": "org/model"},
    "tasks": {"arithmetic": {"weight": 1.0, "levels": {}}},
}


def lines(events: Iterable[Event]) -> bytes:
    """Events as the journal holds them."""
    return chained(map(to_record, events))


def chained(records: Iterable[Mapping[str, Any]], chain: Chain | None = None) -> bytes:
    """Lines as the journal holds them, behind those that `chain` has taken in."""
    chain, found = chain or Chain(), []
    for record in records:
        found.append(chain.encode(record))
        chain.take(found[-1])
    return b"".join(found)


def run_with(folder: Path, events: Iterable[Event], **config: Any) -> Path:
    """A run directory with these events, made where `folder` says."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_bytes(encode_json(PLAIN | config))
    (folder / JOURNAL).write_bytes(lines(events))
    return folder
