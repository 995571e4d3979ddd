"""Answers that are numbers: parsed by one strict grammar, compared exactly or within a stated tolerance."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import chain
from typing import Any

Entry = Mapping[str, Any]
MAX_NUMBER_CHARS = 60

_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9,]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?")
_PLAIN = r"[0-9]+(?:\.[0-9]+)?"
_COMPLEX = (
    re.compile(rf"(?P<real>[+-]?{_PLAIN})"),
    re.compile(rf"(?P<imag>[+-]?(?:{_PLAIN})?)[ij]"),
    re.compile(rf"(?P<real>[+-]?{_PLAIN})(?P<imag>[+-](?:{_PLAIN})?)[ij]"),
)


def parse_number(text: str) -> Fraction | None:
    """A decimal number with an optional exponent and commas between digits; None for anything else.

    >>> parse_number("-1,000.50")
    Fraction(-2001, 2)
    >>> parse_number("nan") is None
    True
    """
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARS or not _NUMBER.fullmatch(text):
        return None
    return Fraction(text.replace(",", "").removesuffix("."))


def number(entry: Entry, answer: str) -> float:
    """The gold number exactly, however it is written."""
    value = parse_number(answer)
    return float(value is not None and value == parse_number(entry["answer"]))


def within(tolerance: float) -> Callable[[Entry, str], float]:
    """A scorer: the gold number give or take `tolerance`."""

    def score(entry: Entry, answer: str) -> float:
        return float(_near(parse_number(entry["answer"]), parse_number(answer), tolerance))

    return score


def within_share(tolerance: float) -> Callable[[Entry, str], float]:
    """A scorer: the gold number give or take the share `tolerance` of it."""

    def score(entry: Entry, answer: str) -> float:
        gold = parse_number(entry["answer"])
        return float(gold is not None and _near(gold, parse_number(answer), tolerance * abs(gold)))

    return score


def probability(entry: Entry, answer: str) -> float:
    """The gold probability as a decimal or a fraction, to one part in a thousand.

    Relative, since the library's absolute 1e-4 calls 0 right for fifteen heads in a row.
    """
    numerator, bar, denominator = answer.partition("/")
    value, divisor = parse_number(numerator), parse_number(denominator) if bar else Fraction(1)
    if value is None or not divisor:
        return 0.0
    gold = Fraction(entry["answer"])
    return float(_near(gold, value / divisor, gold / 1000))


def to_the_last_place(entry: Entry, answer: str) -> float:
    """The gold numbers, comma-separated, each to one unit of the last decimal place that its gold shows."""
    gold, given = (_listed(text.strip("() °\n")) for text in (entry["answer"], answer))
    if len(gold) != len(given):
        return 0.0
    places = (10.0 ** -len(text.partition(".")[2]) for text in gold)
    pairs = zip(gold, given, places, strict=True)
    return float(all(_near(parse_number(want), parse_number(got), place) for want, got, place in pairs))


def number_list(entry: Entry, answer: str) -> float:
    """The gold list of numbers in its order; brackets and quotes are decoration."""
    gold, given = (
        [parse_number(item) for item in _listed(re.sub(r"[\[\]'\"]", "", text))]
        for text in (entry["answer"], answer)
    )
    return float(None not in given and gold == given)


def roots(entry: Entry, answer: str) -> float:
    """All gold numbers in any order, each to a thousandth, and no others."""
    gold = sorted(Fraction(item) for item in _listed(entry["answer"]))
    given = [parse_number(item) for item in _listed(answer)]
    values = sorted(value for value in given if value is not None)
    if len(given) != len(gold) or len(values) != len(gold):
        return 0.0
    return float(all(_near(want, got, 1e-3) for want, got in zip(gold, values, strict=True)))


def matrix(entry: Entry, answer: str) -> float:
    """The gold matrix, cell by cell to one hundredth."""
    gold, given = (
        [[parse_number(cell) for cell in row.split()] for row in text.strip().splitlines()]
        for text in (entry["answer"], answer)
    )
    if [len(row) for row in gold] != [len(row) for row in given]:
        return 0.0
    cells = zip(chain.from_iterable(gold), chain.from_iterable(given), strict=True)
    return float(all(_near(want, got, 0.0101) for want, got in cells))


def factors(entry: Entry, answer: str) -> float:
    """The prime factors of the gold answer in any order, joined by ×, * or x."""
    gold, given = ([item.strip() for item in re.split(r"[×*x]", text)] for text in (entry["answer"], answer))
    return float(sorted(gold) == sorted(given))


def hexadecimal(entry: Entry, answer: str) -> float:
    """The gold whole number, with a base prefix or in base ten."""
    if len(answer) > MAX_NUMBER_CHARS:
        return 0.0
    try:
        return float(int(answer, 0) == int(entry["answer"], 16))
    except ValueError:
        return 0.0


def complex_number(entry: Entry, answer: str) -> float:
    """`metadata.result`, a pair (real, imaginary), written like `3 - 2i`; parts of value 0 may be left out."""
    text = "".join(answer.lower().split()).removeprefix("(").removesuffix(")")
    if len(text) > MAX_NUMBER_CHARS:
        return 0.0
    match = next(filter(None, (form.fullmatch(text) for form in _COMPLEX)), None)
    if match is None:
        return 0.0
    parts = match.groupdict()
    imaginary = parts.get("imag", "0")
    if imaginary in ("", "+", "-"):
        imaginary += "1"
    given = [Fraction(parts.get("real", "0")), Fraction(imaginary)]
    return float(given == [Fraction(part) for part in entry["metadata"]["result"]])


def _near(gold: Fraction | None, given: Fraction | None, tolerance: float | Fraction) -> bool:
    """Whether two numbers differ by at most the tolerance, with a little room for its own rounding."""
    if gold is None or given is None:
        return False
    return abs(gold - given) <= Fraction(tolerance) * Fraction(1001, 1000)


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]
