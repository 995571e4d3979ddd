"""Expanded polynomials, compared by their coefficients; sympy's parser, which the library uses, executes text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

Entry = Mapping[str, Any]
Monomial = tuple[tuple[str, int], ...]  # variables with their exponents, in alphabetical order

MAX_POLYNOMIAL_CHARS = 2000
_TERM = re.compile(
    r"([+-]?)([0-9]{1,30}|[A-Za-z](?:\*\*[0-9]{1,3})?)((?:\*[0-9]{1,30}|\*[A-Za-z](?:\*\*[0-9]{1,3})?)*)"
)
_FACTOR = re.compile(r"([0-9]+)|([A-Za-z])(?:\*\*([0-9]+))?")


def polynomial(entry: Entry, answer: str) -> float:
    """The gold polynomial multiplied out; an unexpanded product, such as the question itself, earns nothing."""
    given = coefficients(answer)
    return float(given is not None and given == coefficients(entry["answer"]))


def coefficients(text: str) -> dict[Monomial, int] | None:
    """The coefficient of each monomial of a sum of terms like `-3*x**2*y`; None for any other text.

    >>> coefficients("2*x - 3 + x")
    {(('x', 1),): 3, (): -3}
    """
    text = "".join(text.split())
    if not text or len(text) > MAX_POLYNOMIAL_CHARS:
        return None
    totals: Counter[Monomial] = Counter()
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or (position > 0 and not match[1]):
            return None
        monomial, coefficient = _term(match[2] + match[3])
        totals[monomial] += -coefficient if match[1] == "-" else coefficient
        position = match.end()
    return {monomial: total for monomial, total in totals.items() if total}


def _term(text: str) -> tuple[Monomial, int]:
    coefficient = 1
    exponents: Counter[str] = Counter()
    for digits, variable, exponent in _FACTOR.findall(text):
        if digits:
            coefficient *= int(digits)
        else:
            exponents[variable] += int(exponent or 1)
    return tuple(sorted((variable, power) for variable, power in exponents.items() if power)), coefficient
