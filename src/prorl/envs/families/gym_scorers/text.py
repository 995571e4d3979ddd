"""Answers that are texts: equality up to what a reader would not call different."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

Entry = Mapping[str, Any]


def lines(entry: Entry, answer: str) -> float:
    """The gold answer line by line, whatever the spacing inside a line."""
    return float(_lines(answer) == _lines(entry["answer"]))


def compact(entry: Entry, answer: str) -> float:
    """The gold answer, all white space left out on both sides."""
    return float("".join(answer.split()) == "".join(entry["answer"].split()))


def folded(entry: Entry, answer: str) -> float:
    """The gold answer, white space and case left out on both sides."""
    return float("".join(answer.casefold().split()) == "".join(entry["answer"].casefold().split()))


def words(entry: Entry, answer: str) -> float:
    """The share of words in place, of the gold answer's or the answer's, whichever are more; case is left out.

    The library leaves surplus words unpunished, so that a list of candidates could be right.
    """
    gold, given = (text.casefold().replace(",", " ").split() for text in (entry["answer"], answer))
    in_place: int = sum(one == other for one, other in zip(gold, given, strict=False))
    return in_place / max(len(gold), len(given), 1)


def listed(entry: Entry, answer: str) -> float:
    """One of the texts in `metadata.valid_answers`, line by line."""
    return float(any(_lines(answer) == _lines(valid) for valid in entry["metadata"]["valid_answers"]))


def same_json(entry: Entry, answer: str) -> float:
    """The gold answer's JSON value; floats to one part in a million, true and 1 apart."""
    try:
        given = json.loads(answer)
    except (ValueError, RecursionError):
        return 0.0
    return float(_same(json.loads(entry["answer"]), given))


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _same(gold: Any, given: Any) -> bool:
    """Recursion follows the gold value, so that a deeply nested answer costs nothing."""
    if isinstance(gold, dict):
        return (
            isinstance(given, dict)
            and gold.keys() == given.keys()
            and all(_same(value, given[key]) for key, value in gold.items())
        )
    if isinstance(gold, list):
        return isinstance(given, list) and len(gold) == len(given) and all(map(_same, gold, given))
    if _is_number(gold) and _is_number(given) and float in (type(gold), type(given)):
        try:
            return math.isclose(gold, given, rel_tol=1e-6)
        except OverflowError:  # a whole number beyond every float
            return False
    return type(gold) is type(given) and bool(gold == given)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
