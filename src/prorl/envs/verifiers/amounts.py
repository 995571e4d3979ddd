"""Single numbers as mathematical answers carry them: with a percent sign, a degree, a unit, or a word for 10^6.

The answer to a mathematical problem is the number: its unit stands in the problem, so it may be left out. Where
both sides name a unit, they have to be the same amount.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

from prorl.envs.verifiers.numerals import Numeral, agree, leading_numeral
from prorl.envs.verifiers.units import unit_of

_MAGNITUDES: Mapping[str, int] = MappingProxyType(
    {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
)
_MAGNITUDE = re.compile(rf"({'|'.join(_MAGNITUDES)})s?(?![a-z])\s*")
_PERCENT = re.compile(r"%|percent(?:age)?(?![a-z])")
_DEGREES = re.compile(r"\^\\circ|degrees?(?![a-z])")
_WORDS = re.compile(r"[A-Za-z]{2,}\.?(?: [A-Za-z]{2,}\.?){0,2} ?(?:\^\{?[23]\}?)?")
_NO_UNITS = frozenset(
    re.findall(
        r"\w+",
        "dozen half halves thirds quarters tenths hundredths thousandths squared cubed factorial plus minus times "
        "pi sqrt sin cos tan log ln exp or and to mod not base over under",
    )
)  # words behind a number that change it


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
    """Whether two amounts are equal: `50%` is `50` and `0.5`, `5 m` is `5` and `500 cm` but not `5 cm`."""
    if answer.percent != gold.percent and not answer.unit and not gold.unit:
        share, other = (answer, gold) if answer.percent else (gold, answer)
        fraction = replace(share.number, value=share.number.value / 100, places=_shifted(share.number))
        return agree(share.number, other.number) or agree(fraction, other.number)
    if answer.unit and gold.unit and folded(answer.unit) != folded(gold.unit):
        one, other_unit = unit_of(answer.unit), unit_of(gold.unit)
        if one is None or other_unit is None or one.dimension != other_unit.dimension:
            return False
        return (answer.number.value * one.factor + one.offset) == (
            gold.number.value * other_unit.factor + other_unit.offset
        )
    return agree(answer.number, gold.number)


def _is_unit(text: str, *, spaced: bool) -> bool:
    """A unit that we know, or up to three words; one letter right behind a number is a variable."""
    words = set(text.lower().replace(".", " ").split())
    if words & _NO_UNITS or (not spaced and len(text.rstrip("^{}0123456789")) < 2):
        return False
    return bool(_WORDS.fullmatch(text)) or unit_of(text) is not None


def folded(unit: str) -> str:
    """A unit or a noun without case, dots, spaces and the s of a plural."""
    return unit.casefold().replace(".", "").replace(" ", "").removesuffix("s")


def _shifted(number: Numeral) -> int | None:
    return None if number.places is None else number.places + 2
