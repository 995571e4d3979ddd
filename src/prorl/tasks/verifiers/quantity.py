"""Numbers with units: `0.5 kg` is `500 g`, `36 km/h` is `10 m/s`, and neither is `10`.

A unit is required exactly where the gold answer has one. Values are compared in the unit of the gold answer, so
that a tolerance in °C is not one in K, and within 1 % unless the caller says otherwise: STEM answers are rounded
at various places. A gold answer that is a bare whole number is a count and has to be met exactly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from prorl.tasks.verifiers.latex import normalised
from prorl.tasks.verifiers.numerals import Numeral, leading_numeral
from prorl.tasks.verifiers.units import Unit, unit_of

REL_TOL = 0.01
MAX_CHARS = 200

_NAMED = re.compile(r"^\\?[A-Za-z](?:_\{?\w{1,8}\}?)?\s*(?:=|\\approx|≈)\s*")
_DIGIT_SPACES = re.compile(r"(?<=[0-9]) (?=[0-9]{3}(?![0-9]))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number as written, and its unit; None for a bare number."""

    number: Numeral
    unit: Unit | None

    def in_unit(self, wanted: Unit) -> Fraction | None:
        """The value in another unit of the same kind; None if it is of another kind."""
        unit = self.unit or Unit(dimension=(0,) * len(wanted.dimension), factor=Fraction(1))
        if unit.dimension != wanted.dimension:
            return None
        return (self.number.value * unit.factor + unit.offset - wanted.offset) / wanted.factor


def read_quantity(text: str) -> Quantity | None:
    """The number and unit that are the whole text; None for anything else.

    >>> read_quantity("x = 3.0 \\\\times 10^{-3}\\\\ \\\\mathrm{kg}").number.value
    Fraction(3, 1000)
    """
    if len(text) > MAX_CHARS:
        return None
    text = _DIGIT_SPACES.sub("", _NAMED.sub("", normalised(text)))
    number, rest = leading_numeral(text.removeprefix("≈").removeprefix(r"\approx").strip())
    if number is None:
        return None
    rest = rest.strip().removeprefix("*").strip()
    if not rest:
        return Quantity(number=number, unit=None)
    unit = unit_of(rest)
    return None if unit is None else Quantity(number=number, unit=unit)


def quantity_equal(answer: str, gold: str, *, rel_tol: float = REL_TOL) -> bool:
    """Whether the answer is the gold quantity, up to the relative tolerance, in whatever unit of its kind.

    A bare gold accepts an answer with a unit only if the numbers agree: the gold does not say in which unit.
    """
    one, other = read_quantity(answer), read_quantity(gold)
    if one is None or other is None:
        return False
    expected = other.number.value
    if other.unit is None:
        is_count = other.number.places is None and expected.denominator == 1
        candidates = [one.number.value] if one.unit is None or any(one.unit.dimension) else []
        if one.unit is not None and not any(one.unit.dimension):
            candidates.append(one.number.value * one.unit.factor)
        return any(_near(value, expected, 0.0 if is_count else rel_tol) for value in candidates)
    value = one.in_unit(other.unit)
    return value is not None and _near(value, expected, rel_tol)


def _near(value: Fraction, expected: Fraction, rel_tol: float) -> bool:
    return abs(value - expected) <= Fraction(rel_tol) * abs(expected)
