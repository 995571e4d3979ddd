"""A function's result as JSON: exact plain types only, so that no object of the program's making is compared.

An `int` subclass whose `__eq__` always agrees, or a list that changes when it is read twice, is a failure here.
"""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 100  # nesting of a result
MAX_INT_BITS = 14_000  # below the 4,300 digits that Python converts by default

_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_SCALARS = frozenset((bool, float, str, type(None)))


class NotPlain(Exception):
    """The value is not plain data; the text says what it is."""


def encode(value: Any, limit: int) -> str | None:
    """Canonical JSON of a result, tuples as lists; None if it is longer than `limit` characters.

    Raises:
        NotPlain: see `require_plain`.
    """
    require_plain(value)
    text = _encode(value)
    return text if len(text) <= limit else None


def require_plain(value: Any) -> None:
    """Accept plain data, silently.

    Raises:
        NotPlain: something in it is of another type than None, bool, int, float, str, list, tuple or dict with
            keys of type str, is nested too deeply, or is an integer of thousands of digits.
    """
    _require(value, MAX_DEPTH)


def _require(value: Any, depth: int) -> None:
    kind = type(value)
    if kind in _SCALARS:
        return
    if kind is int:
        if value.bit_length() > MAX_INT_BITS:
            raise NotPlain("an integer of too many digits")
        return
    if depth == 0:
        raise NotPlain("a value nested too deeply")
    if kind is list or kind is tuple:
        for item in value:
            _require(item, depth - 1)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise NotPlain(f"a dict with a key of type {type(key).__name__}")
            _require(item, depth - 1)
    else:
        raise NotPlain(f"a value of type {kind.__name__}")
