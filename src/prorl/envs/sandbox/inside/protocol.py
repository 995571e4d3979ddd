"""What both ends of the fork server's pipes agree on: the messages, and which values a program may return.

A message is one byte of kind, four of length, and the payload; payloads that a program has influenced are passed on
as bytes, unread. A function's result travels as JSON, copied to exact plain types: an `int` subclass whose `__eq__`
always agrees is no more than its number.
"""

import json
import operator
import os
import struct
from typing import Any

HEADER = struct.Struct("!cI")

HELLO = b"H"  # server is ready
JOB = b"J"  # to the server: JSON
RESULT = b"R"  # bytes from a program's result descriptor
OUTPUT = b"O"  # bytes from a program's standard output
END = b"E"  # how the program ended: JSON

# what a child reports: READY once it is confined, then lines [index of the input, status, value, note]
READY = b"."
ALL_INPUTS = -1  # index: every input that has no line yet
NOTE_CHARS = 200

MAX_DEPTH = 100  # nesting of a result
MAX_INT_BITS = 14_000  # below the 4,300 digits that Python converts by default

_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_SCALARS = frozenset((bool, float, str, type(None)))
_KEYS = (*_SCALARS, int)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, however often the kernel interrupts."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def send(descriptor: int, kind: bytes, payload: bytes) -> None:
    """Write one message."""
    write_all(descriptor, HEADER.pack(kind, len(payload)) + payload)


def receive(descriptor: int) -> bytes | None:
    """Block for one message, and return its payload; None once the other end has gone."""
    header = _read(descriptor, HEADER.size)
    return header and _read(descriptor, HEADER.unpack(header)[1])


def _read(descriptor: int, length: int) -> bytes | None:
    data = b""
    while len(data) < length:
        chunk = os.read(descriptor, length - len(data))
        if not chunk:
            return None
        data += chunk
    return data


class NotPlain(Exception):
    """The value is not plain data; the text says what it is."""


def encode(value: Any, limit: int) -> str | None:
    """Canonical JSON of a result; None if it is longer than `limit` characters.

    Tuples are lists, keys of dicts are texts as JSON writes them, subclasses are their base types, and what has
    `__index__` or `__float__` (numpy's scalars, fractions, decimals) is that number. Raises NotPlain: something in it
    is of another type, is nested too deeply, or is an integer of thousands of digits.
    """
    text = _encode(_plain(value, MAX_DEPTH, strict=False))
    return text if len(text) <= limit else None


def require_plain(value: Any) -> None:
    """Accept None, bool, int, float, str, and list, tuple and dict (keys of type str) of these; else NotPlain."""
    _plain(value, MAX_DEPTH, strict=True)


def _plain(value: Any, depth: int, *, strict: bool) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is int:
        if value.bit_length() > MAX_INT_BITS:
            raise NotPlain("an integer of too many digits")
        return value
    if depth == 0:
        raise NotPlain("a value nested too deeply")
    if strict and kind not in (list, tuple, dict):
        raise NotPlain(f"a value of type {kind.__name__}")
    for sequence in (list, tuple):
        if issubclass(kind, sequence):
            return [_plain(item, depth - 1, strict=strict) for item in sequence.__iter__(value)]
    if issubclass(kind, dict):
        copy = {
            _key(key, strict=strict): _plain(item, depth - 1, strict=strict)
            for key, item in dict.items(value)
        }
        if len(copy) < dict.__len__(value):
            raise NotPlain("a dict with two keys of one text")
        return copy
    return _plain(_scalar(value, kind), depth - 1, strict=True)


def _key(key: Any, *, strict: bool) -> str:
    kind = type(key)
    if kind is str:
        return str(key)
    if strict or kind not in _KEYS:
        raise NotPlain(f"a dict with a key of type {kind.__name__}")
    return _encode(key)


def _scalar(value: Any, kind: type) -> Any:
    for base, read in ((int, int.__index__), (float, float.__float__), (str, str.__str__)):
        if issubclass(kind, base):
            return read(value)
    if hasattr(kind, "__index__"):
        return operator.index(value)
    if hasattr(kind, "__float__"):
        return float(value)
    raise NotPlain(f"a value of type {kind.__name__}")
