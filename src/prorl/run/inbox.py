"""The operator's orders: one JSON object per line, appended by anybody, read by the trainer at step boundaries.

Nothing is ever taken out of the inbox. Which orders have been obeyed is known by the run's own state (how many
bytes were read), so an order is obeyed exactly once in the journal that stands, however often the trainer dies.
A last line without its end is still being written, or its writer died; it counts once it is whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any

from prorl.envs.files import StorageError, encode_json, explain_no_room

INBOX = "inbox.jsonl"
UNREADABLE = "unreadable"  # the order that a line amounts to which is none
MAX_LINE = 16_384  # bytes
EXCERPT = 80  # characters of an unreadable line that are journalled
_ID = re.compile(r"[0-9a-f]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What an operator wants: `set` with recipe keys and values, `note` with a text, or just a word."""

    id: str
    order: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """An order as found in an inbox that has been read up to byte `end`."""

    order: Order
    end: int


def new_order(order: str, *, settings: Mapping[str, Any] | None = None, text: str = "") -> Order:
    """An order under an id of its own."""
    return Order(id=secrets.token_hex(6), order=order, settings=settings or {}, text=text)


def send(path: Path, order: Order) -> None:
    """Append an order; it is on disk, whole, when this returns.

    Raises:
        StorageError: no room, or too long for a line; the inbox is as it was.
    """
    line = encode_json({"id": order.id, "order": order.order, "settings": order.settings, "text": order.text})
    if len(line) > MAX_LINE:
        raise StorageError(f"an order may have {MAX_LINE:,} bytes, not {len(line):,}: say it shorter")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # against other senders; the trainer only reads
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        try:
            with explain_no_room(path):
                _write(descriptor, b"\n" + line if torn else line)
                os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def next_letter(path: Path, position: int, last: str) -> Letter | None:
    """The first order behind byte `position`, which is where the order `last` ended; None while there is none.

    A line that is no order comes as one that is `UNREADABLE`. So does, as a whole, an inbox that was changed by
    hand so that it no longer tells what has been obeyed: to obey an order twice would be worse than never.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if position > len(data) or (position and data[position - 1 : position] != b"\n"):
        found = _end_of(data, last)
        if found is None:
            whole = data.rfind(b"\n") + 1
            lost = "the inbox was changed by hand; what it holds is not obeyed, give the orders again"
            return _unreadable(lost, whole) if whole else None
        position = found
    while True:
        end = data.find(b"\n", position) + 1
        if not end:
            return None
        line = data[position : end - 1]
        if line.strip():
            return _letter(line, end)
        position = end


def _letter(line: bytes, end: int) -> Letter:
    order = _parse(line)
    if order is None:
        return _unreadable(line[:EXCERPT].decode(errors="replace"), end)
    return Letter(order=order, end=end)


def _unreadable(text: str, end: int) -> Letter:
    return Letter(order=Order(id="", order=UNREADABLE, text=text), end=end)


def _parse(line: bytes) -> Order | None:
    """The order that a line holds; None for everything else, whatever it is."""
    if len(line) > MAX_LINE:
        return None
    try:
        order = Order(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    texts = isinstance(order.id, str) and isinstance(order.order, str) and isinstance(order.text, str)
    if not (texts and _ID.fullmatch(order.id) and isinstance(order.settings, dict)):
        return None
    plain = all(isinstance(value, (str, int, float, NoneType)) for value in order.settings.values())
    return replace(order, text=" ".join(order.text.split())) if plain else None


def _end_of(data: bytes, last: str) -> int | None:
    """Where the line of the order `last` ends."""
    position = 0
    for line in data.split(b"\n")[:-1]:
        position += len(line) + 1
        order = _parse(line)
        if order is not None and order.id == last:
            return position
    return None


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
