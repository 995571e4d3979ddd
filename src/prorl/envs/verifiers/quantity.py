"""Numbers with units: `0.5 kg` is `500 g`, `36 km/h` is `10 m/s`, and neither is `10`.

A unit is required exactly where the gold answer has one. Values are compared in the unit of the gold answer, so
that a tolerance in °C is not one in K, and within 1 % unless the caller says otherwise: STEM answers are rounded
at various places. A gold answer that is a bare whole number is a count and has to be met exactly. A word that is no
unit, as in `3 apples` or `70 dB`, may be left out, and two such words have to be the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from prorl.envs.verifiers.algebra import constant
from prorl.envs.verifiers.amounts import folded, read_amount
from prorl.envs.verifiers.latex import normalised
from prorl.envs.verifiers.numerals import Numeral, leading_numeral
from prorl.envs.verifiers.units import BASES, Unit, unit_of

REL_TOL = 0.01
MAX_CHARS = 200
MAX_WORDS = 8  # behind a constant such as \pi/4, tried as its unit

_NAMED = re.compile(
    r"^(?:pH(?![A-Za-z])|\\?[A-Za-z](?:_\{?\w{1,8}\}?)?\s*(?=[=≈]|\\approx))\s*(?:=|\\approx|≈)?\s*"
)
_IRRATIONAL = re.compile(r"\\(?:pi|sqrt)(?![A-Za-z])")
PERCENT = Unit(dimension=(0,) * len(BASES), factor=Fraction(1, 100))
_DIGIT_SPACES = re.compile(r"(?<=[0-9]) (?=[0-9]{3}(?![0-9]))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number as written, and its unit; None for a bare number."""

    number: Numeral
    unit: Unit | None
    noun: str = ""  # what is counted, where that is no unit

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
    text = text.removeprefix("≈").removeprefix(r"\approx").strip()
    number, rest = _irrational(text) if _IRRATIONAL.search(text) else leading_numeral(text)
    if number is None:
        return None
    rest = rest.strip().removeprefix("*").strip()
    if not rest:
        return Quantity(number=number, unit=None)
    unit = unit_of(rest)
    if unit is not None:
        return Quantity(number=number, unit=unit)
    counted = read_amount(text)
    if counted is None:
        return None
    return Quantity(number=counted.number, unit=None, noun=folded(counted.unit))


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
        if other.noun and (one.unit is not None or one.noun not in ("", other.noun)):
            return False
        candidates = [one.number.value] if one.unit in (None, PERCENT) or any(one.unit.dimension) else []
        if one.unit is not None and not any(one.unit.dimension):
            candidates.append(one.number.value * one.unit.factor)
        return any(_near(value, expected, 0.0 if is_count else rel_tol) for value in candidates)
    value = one.in_unit(other.unit)
    return value is not None and _near(value, expected, rel_tol)


def _irrational(text: str) -> tuple[Numeral | None, str]:
    """The longest constant formula that ends at a space or with the text, and what follows it."""
    ends = [len(text), *(position for position in range(len(text) - 1, 0, -1) if text[position] == " ")]
    for end in ends[:MAX_WORDS]:
        value = constant(text[:end])
        if value is not None:
            return Numeral(value=value), text[end:]
    return None, text


def _near(value: Fraction, expected: Fraction, rel_tol: float) -> bool:
    return abs(value - expected) <= Fraction(rel_tol) * abs(expected)
