"""A function's result as JSON: copied to exact plain types, so that no object of the program's making is compared.

A copy reads what the base type holds: an `int` subclass whose `__eq__` always agrees is no more than its number.
"""

from __future__ import annotations

import json
import operator
from typing import Any

MAX_DEPTH = 100  # nesting of a result
MAX_INT_BITS = 14_000  # below the 4,300 digits that Python converts by default

_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_SCALARS = frozenset((bool, float, str, type(None)))
_KEYS = (*_SCALARS, int)


class NotPlain(Exception):
    """The value is not plain data; the text says what it is."""


def encode(value: Any, limit: int) -> str | None:
    """Canonical JSON of a result; None if it is longer than `limit` characters.

    Tuples are lists, keys of dicts are texts as JSON writes them, subclasses are their base types, and what has
    `__index__` or `__float__` (numpy's scalars, fractions, decimals) is that number.

    Raises:
        NotPlain: something in it is of another type, is nested too deeply, or is an integer of thousands of digits.
    """
    text = _encode(_plain(value, MAX_DEPTH, strict=False))
    return text if len(text) <= limit else None


def require_plain(value: Any) -> None:
    """Accept plain data, silently.

    Raises:
        NotPlain: something in it is of another type than None, bool, int, float, str, list, tuple or dict with
            keys of type str, is nested too deeply, or is an integer of thousands of digits.
    """
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
    if issubclass(kind, int):
        return int.__index__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, str):
        return str.__str__(value)
    if hasattr(kind, "__index__"):
        return operator.index(value)
    if hasattr(kind, "__float__"):
        return float(value)
    raise NotPlain(f"a value of type {kind.__name__}")
