"""Numbers with units: `0.5 kg` is `500 g`, `36 km/h` is `10 m/s`, and neither is `10`.

An `Amount` is what a mathematical answer may be: its unit stands in the problem, so it may be left out. A `Quantity`
is what a STEM answer is: a unit is required exactly where the gold answer has one. Values are compared in the unit of
the gold answer, so that a tolerance in °C is not one in K, and within 1 % unless the caller says otherwise: STEM
answers are rounded at various places. A gold answer that is a bare whole number is a count and has to be met exactly.
A word that is no unit, as in `3 apples` or `70 dB`, may be left out, and two such words have to be the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from prorl.envs.verifiers.formula import constant
from prorl.envs.verifiers.latex import normalised
from prorl.envs.verifiers.numbers import Numeral, agree, leading_numeral
from prorl.envs.verifiers.units import ONE, Unit, unit_of

REL_TOL = 0.01
MAX_CHARS = 200
MAX_WORDS = 8  # behind a constant such as \pi/4, tried as its unit
PERCENT = replace(ONE, factor=Fraction(1, 100))

_MAGNITUDES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_MAGNITUDE = re.compile(rf"({'|'.join(_MAGNITUDES)})s?(?![a-z])\s*")
_PERCENT = re.compile(r"%|percent(?:age)?(?![a-z])")
_DEGREES = re.compile(r"\^\\circ|degrees?(?![a-z])")
_WORDS = re.compile(r"[A-Za-z]{2,}\.?(?: [A-Za-z]{2,}\.?){0,2} ?(?:\^\{?[23]\}?)?")
_CHANGES = re.compile(  # words behind a number that change it
    "dozen|half|halves|thirds|quarters|tenths|hundredths|thousandths|squared|cubed|factorial|plus|minus|times"
    "|pi|sqrt|sin|cos|tan|log|ln|exp|or|and|to|mod|not|base|over|under"
)
_NAMED = re.compile(
    r"^(?:pH(?![A-Za-z])|\\?[A-Za-z](?:_\{?\w{1,8}\}?)?\s*(?=[=≈]|\\approx))\s*(?:=|\\approx|≈)?\s*"
)
_IRRATIONAL = re.compile(r"\\(?:pi|sqrt)(?![A-Za-z])")
_DIGIT_SPACES = re.compile(r"(?<=[0-9]) (?=[0-9]{3}(?![0-9]))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number, whether it counts hundredths, and the unit as written ("" for none)."""

    number: Numeral
    percent: bool = False
    unit: str = ""


def read_amount(text: str) -> Amount | None:
    """The amount that is the whole normalised text; None for anything else.

    >>> read_amount("5 million dollars").number.value, read_amount("5x") is None
    (Fraction(5000000, 1), True)
    """
    number, rest = leading_numeral(text)
    if number is None:
        return None
    spaced, rest = rest[:1].isspace(), rest.strip()
    if match := _MAGNITUDE.match(rest):
        factor = Fraction(10) ** _MAGNITUDES[match[1]]
        number, rest = replace(number, value=number.value * factor, places=None), rest[match.end() :]
    if _PERCENT.fullmatch(rest):
        return Amount(number=number, percent=True)
    if not rest or _DEGREES.fullmatch(rest):
        return Amount(number=number)
    return Amount(number=number, unit=rest) if _is_unit(rest, spaced=spaced) else None


def same_amount(answer: Amount, gold: Amount) -> bool:
    """Whether two amounts are equal: `50%` is `50` and `0.5`, `5 m` is `5` and `500 cm` but not `5 cm`.

    The unit of a mathematical answer stands in its problem, so it may be left out on either side.
    """
    if answer.percent != gold.percent and not answer.unit and not gold.unit:
        share, other = (answer.number, gold.number) if answer.percent else (gold.number, answer.number)
        places = None if share.places is None else share.places + 2
        return agree(share, other) or agree(replace(share, value=share.value / 100, places=places), other)
    if answer.unit and gold.unit and _folded(answer.unit) != _folded(gold.unit):
        one, other_unit = unit_of(answer.unit), unit_of(gold.unit)
        if one is None or other_unit is None or one.dimension != other_unit.dimension:
            return False
        return one.si(answer.number.value) == other_unit.si(gold.number.value)
    return agree(answer.number, gold.number)


def _is_unit(text: str, *, spaced: bool) -> bool:
    """A unit that we know, or up to three words; one letter right behind a number is a variable."""
    words = text.lower().replace(".", " ").split()
    if any(map(_CHANGES.fullmatch, words)) or (not spaced and len(text.rstrip("^{}0123456789")) < 2):
        return False
    return bool(_WORDS.fullmatch(text)) or unit_of(text) is not None


def _folded(unit: str) -> str:
    """A unit or a noun without case, dots, spaces and the s of a plural."""
    return unit.casefold().replace(".", "").replace(" ", "").removesuffix("s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number as written, and its unit; None for a bare number."""

    number: Numeral
    unit: Unit | None = None
    noun: str = ""  # what is counted, where that is no unit

    def in_unit(self, wanted: Unit) -> Fraction | None:
        """The value in another unit of the same kind; None if it is of another kind."""
        unit = self.unit or ONE
        if unit.dimension != wanted.dimension:
            return None
        return (unit.si(self.number.value) - wanted.offset) / wanted.factor


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
        return Quantity(number=number)
    unit = unit_of(rest)
    if unit is not None:
        return Quantity(number=number, unit=unit)
    counted = read_amount(text)
    return None if counted is None else Quantity(number=counted.number, noun=_folded(counted.unit))


def quantity_equal(answer: str, gold: str, *, rel_tol: float = REL_TOL) -> bool:
    """Whether the answer is the gold quantity, up to the relative tolerance, in whatever unit of its kind.

    A bare gold accepts an answer with a unit only if the numbers agree: the gold does not say in which unit.
    """
    one, other = read_quantity(answer), read_quantity(gold)
    if one is None or other is None:
        return False
    expected = other.number.value
    if other.unit is not None:
        value = one.in_unit(other.unit)
        return value is not None and _near(value, expected, rel_tol)
    is_count = other.number.places is None and expected.denominator == 1
    if other.noun and (one.unit is not None or one.noun not in ("", other.noun)):
        return False
    candidates = [one.number.value] if one.unit in (None, PERCENT) or any(one.unit.dimension) else []
    if one.unit is not None and not any(one.unit.dimension):
        candidates.append(one.number.value * one.unit.factor)
    return any(_near(value, expected, 0.0 if is_count else rel_tol) for value in candidates)


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
