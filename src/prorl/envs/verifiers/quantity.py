"""Numbers with units: `0.5 kg` is `500 g`, `36 km/h` is `10 m/s`, and neither is `10`.

A unit is a product of powers of named units, `/` applying to the one factor after it: `J/kg K` is `(J/kg)·K`, and
whoever means otherwise writes `J/(kg K)`. Prefixes go only with the units that take them. Angles keep a dimension
of their own, so that rad/s is no Hz. (pint takes 0.6 s to load, and reads `kmeter`, `kmin` and `m//s` as units,
`ms^{-1}` as "per millisecond" and rad/s as Hz.)

`same_amount` compares mathematical answers: the unit stands in the problem, so it may be left out. `quantity_equal`
compares STEM answers: a unit is required exactly where the gold answer has one. Values are compared in the unit of
the gold answer, so that a tolerance in °C is not one in K, and within 1 %, as STEM answers are rounded somewhere.
A gold answer that is a bare whole number is a count and has to be met exactly. A word that is no unit, as in
`3 apples` or `70 dB`, may be left out, and two such words have to be the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from typing import ClassVar

from prorl.envs.verifiers.expressions import Reader, UnreadableError
from prorl.envs.verifiers.formula import constant
from prorl.envs.verifiers.latex import Numeral, agree, leading_numeral, normalised

TOLERANCE = Fraction(1, 100)  # relative
MAX_CHARS, MAX_UNIT_CHARS = 200, 60
MAX_WORDS = 8  # behind a constant such as \pi/4, tried as its unit
MAX_POWER = 12
BASES = ("m", "kg", "s", "A", "K", "mol", "cd", "rad")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a unit measures, as powers of `BASES`, and its size: value_SI = (value + offset) * factor."""

    dimension: tuple[int, ...] = (0,) * len(BASES)
    factor: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)  # of temperature scales whose zero is elsewhere; they stand in no product

    def times(self, other: Unit, power: int = 1) -> Unit:
        """This unit times a power of another one."""
        dimension = tuple(a + power * b for a, b in zip(self.dimension, other.dimension, strict=True))
        return Unit(dimension=dimension, factor=self.factor * other.factor**power)


ONE, PERCENT = Unit(), Unit(factor=Fraction(1, 100))
_EXPONENTS = (24, 21, 18, 15, 12, 9, 6, 3, 2, -1, -2, -3, -6, -6, -9, -12, -15, -18)
_PREFIXES = dict(zip("YZEPTGMkhdcmµunpfa", _EXPONENTS, strict=True)) | {"da": 1, "K": 3}  # as in Kg
_NAMES = "tera giga mega kilo hecto deci centi milli micro nano pico femto"
_LONG_PREFIXES = dict(zip(_NAMES.split(), (12, 9, 6, 3, 2, -1, -2, -3, -6, -9, -12, -15), strict=True))
# of a normalised text
_SPELLINGS = tuple((re.compile(pattern), plain) for pattern, plain in (
    (r"\\(?:mu|micro)(?![A-Za-z])\s*", "µ"),
    (r"\\(?:Omega|ohm)(?![A-Za-z])|\u2126", "Ω"),
    (r"\^?\s*\\circ|º", "°"),
    (r"\\(?:AA|angstrom)(?![A-Za-z])", "Å"),
    (r"\\frac\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r"(\1)/(\2)"),
    (r"\s+per\s+", "/"),
    (r"(?<![A-Za-z])ms(?=\s*\^?\s*\{?\s*-)", "m s"),  # metres per second, not "per millisecond"
    (r"°\s*(?=[CF](?![A-Za-z]))", "°"),
    (r"(?<![A-Za-z])(?:square|sq\.?)\s+([A-Za-z]+)", r"\1^2"),
    (r"(?<![A-Za-z])cubic\s+([A-Za-z]+)", r"\1^3"),
    (r"(?i)(degrees?)\s+(celsius|fahrenheit)", r"\2"),
    (r"(?i:deg(?:ree)?s?)\s+(?=[CF](?![A-Za-z]))", "°"),
    (r"(?<![A-Za-z])([kKM])\s+(?=Ω)", r"\1"),
    (r"(?i)mm\s+Hg", "mmHg"),
))  # fmt: skip
_NAME = re.compile("[A-Za-zµΩÅ°%]+")


@lru_cache(maxsize=4096)
def unit_of(text: str) -> Unit | None:
    """What a written unit means; None if any part of it is no unit that we know.

    >>> unit_of("kg*m/s^2") == unit_of("N") == unit_of("kg m s⁻²")
    True
    """
    if len(text) > MAX_UNIT_CHARS or text.endswith((".", ",", ";")):  # which belong to no unit
        return None
    text = normalised(text)
    for pattern, plain in _SPELLINGS:
        text = pattern.sub(plain, text)
    text = " ".join(text.split())
    if alone := _named(text):
        return alone
    try:
        product: Unit = _Product(text).value()
    except UnreadableError:
        return None
    return product if max(map(abs, product.dimension)) <= MAX_POWER else None


class _Product(Reader):
    """A product of powers of units."""

    token = re.compile(
        rf"\s*({_NAME.pattern}(?:\s*\^\s*\{{?\s*[+-]?[0-9]{{1,2}}\s*\}}?|[+-]?[0-9]{{1,2}})?"
        r"|1(?=\s*/)|[*/()]|-(?=\s*[A-Za-z]))"
    )
    operators: ClassVar = dict.fromkeys("*-", (1, Unit.times)) | {
        "/": (1, lambda one, other: one.times(other, -1))
    }
    max_depth = MAX_UNIT_CHARS

    def _rank(self) -> int:
        return int(self._peek() not in ("", ")"))

    def _operand(self) -> Unit:
        token = self._next()
        if token == "(":
            group: Unit = self._group(")")
            return group
        if token == "1":
            return ONE
        name = _NAME.match(token)
        unit = _named(name[0]) if name else None
        power = int(re.sub(rf"{_NAME.pattern}|[\s^{{}}]", "", token) or 1) if unit else 0
        if unit is None or abs(power) > MAX_POWER:  # in a product a degree is a difference
            raise UnreadableError
        return ONE.times(unit, power)


def _named(name: str) -> Unit | None:
    exact, prefixed = _units()
    small, singular = name.lower(), name.lower().removesuffix("s")
    found = [exact.get(name), prefixed.get(name)]
    if len(name) >= 3:
        found += [exact.get(small), exact.get(singular)]
    if len(name) >= 4:
        found.append(prefixed.get(singular))
    return next(filter(None, found), None)


@cache
def _units() -> tuple[dict[str, Unit], dict[str, Unit]]:
    """All units by name, and by prefix and name those that take prefixes: of each line of the file, before a bar.

    A definition is `names = factor and base powers`, for a temperature scale with `+ offset` behind it. Names of up
    to three letters take short prefixes, those from three on long ones: neither "kmeter" nor "kilom".
    """
    exact: dict[str, Unit] = {}
    prefixed: dict[str, Unit] = {}
    for line in Path(__file__).with_name("units.txt").read_text(encoding="utf-8").splitlines():
        for position, definition in enumerate(line.split("|")):
            names, _, meaning = definition.partition("=")
            measure, _, offset = meaning.partition("+")
            size, _, powers = measure.strip().partition(" ")
            by_base = dict(re.findall(r"([A-Za-z]+)(-?[0-9]*)", powers))
            dimension = tuple(int(by_base.get(base, "0") or 1) for base in BASES)
            unit = Unit(dimension=dimension, factor=Fraction(size or 1), offset=Fraction(offset or 0))
            exact |= dict.fromkeys(names.split(), unit)
            for name in names.split() if position == 0 else ():
                fitting = (_PREFIXES if len(name) <= 3 else {}) | (_LONG_PREFIXES if len(name) >= 3 else {})
                for prefix, power in fitting.items():
                    prefixed[prefix + name] = replace(unit, factor=unit.factor * Fraction(10) ** power)
    return exact, prefixed


_MAGNITUDES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_MAGNITUDE = re.compile(rf" ?({'|'.join(_MAGNITUDES)})s?(?![a-z])")
_PERCENT = re.compile(r"%|percent(?:age)?(?![a-z])")
_DEGREES = re.compile(r"\^\\circ|degrees?(?![a-z])")
# Of a mathematical answer, with the space before it. Right behind a number two letters are a product, `2mg`, but for
# these units; so are letters one by one, `2 x y`, but for a few units; a noun has four letters there: `2xyz`.
_PRODUCT = re.compile(
    r"(?!(?:[cmk]m|kg|m[lLi]|ft|in|yd|lb|oz|hr|dB|Hz|k[WJ]|ha)(?![A-Za-z]))\S{0,2}[\^{}0-9]*"
    r"| ?(?!(?:N m|[AVJN] s|[AW] h)$)[A-Za-z](?:\^\{?[2-9]\}?)?(?: [A-Za-z](?:\^\{?[2-9]\}?)?)+"
)
_NOUN = re.compile(
    r"(?: |(?=dB|[A-Za-z]{4}))(?:[A-Za-z]{3,}|[A-Za-z]{2}(?=\.? [A-Za-z]{2})|dB|Rs|cc|AD|BC|AM|PM|MB|GB|qt|pt)\.?"
    r"(?: [A-Za-z]{2,}\.?){0,2} ?(?:\^\{?[23]\}?)?"
)
_CHANGES = re.compile(  # words behind a number that change it
    "dozen|half|halves|(?:third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|[a-z]+teenth"
    "|[a-z]+tieth|hundredth|thousandth)s?|squared|cubed|factorial|choose|plus|minus|times|pi|sqrt|sin|cos|tan|log|ln"
    "|exp|or|and|to|mod|not|base|over|under|below|root"
)
_NAMED = re.compile(
    r"^(?:pH(?![A-Za-z])|(?:\\[A-Za-z]+\s*[A-Za-z]{0,3}|[A-Za-z]{1,3})(?:_\{?\w{1,8}\}?)?\s*(?=[=≈]|\\approx))"
    r"(?:\s*(?:=|\\approx|≈))*\s*"
)
_POWER_OF_TEN = re.compile(r"10\s*\^|[0-9][eE]")
_IRRATIONAL = re.compile(r"\\(?:pi|sqrt)(?![A-Za-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number and its unit, None for a bare number; a percent sign is a unit that is not kept as written."""

    number: Numeral
    unit: Unit | None = None
    written: str = ""  # the unit of a mathematical answer, or the noun that is counted

    def in_unit(self, wanted: Unit) -> Fraction | None:
        """The value in another unit of the same kind; None if it is of another kind."""
        unit = self.unit or ONE
        if unit.dimension != wanted.dimension:
            return None
        return (self.number.value + unit.offset) * unit.factor / wanted.factor - wanted.offset


def read_amount(text: str) -> Amount | None:
    """The amount that is the whole normalised text; None for anything else.

    >>> read_amount("5 million dollars").number.value, read_amount("5x") is None
    (Fraction(5000000, 1), True)
    """
    number, rest = leading_numeral(text)
    if number is None:
        return None
    if match := _MAGNITUDE.match(rest):
        factor = Fraction(10) ** _MAGNITUDES[match[1]]
        number, rest = replace(number, value=number.value * factor, places=None), rest[match.end() :]
    what = rest.strip()
    if _PERCENT.fullmatch(what):
        return Amount(number=number, unit=PERCENT)
    if not what or _DEGREES.fullmatch(what):
        return Amount(number=number)
    words = what.lower().replace(".", " ").split()
    if _PRODUCT.fullmatch(rest) or any(map(_CHANGES.fullmatch, words)):
        return None
    unit = unit_of(what)
    return Amount(number=number, unit=unit, written=what) if unit or _NOUN.fullmatch(rest) else None


def same_amount(answer: Amount, gold: Amount) -> bool:
    """Whether two amounts are equal: `50%` is `50` and `0.5`, `5 m` is `5` and `500 cm` but not `5 cm`."""
    if answer.unit != gold.unit and not answer.written and not gold.written:
        share, other = (answer.number, gold.number) if answer.unit else (gold.number, answer.number)
        places = None if share.places is None else share.places + 2
        return agree(share, other) or agree(replace(share, value=share.value / 100, places=places), other)
    if answer.written and gold.written and _folded(answer.written) != _folded(gold.written):
        return bool(answer.unit and gold.unit) and answer.in_unit(gold.unit or ONE) == gold.number.value
    return agree(answer.number, gold.number)


def _folded(unit: str) -> str:
    """A unit or a noun without case, dots, spaces and the s of a plural."""
    return unit.casefold().replace(".", "").replace(" ", "").removesuffix("s")


def read_quantity(text: str) -> Amount | None:
    """The number and unit that are the whole text; None for anything else.

    >>> read_quantity("x = 3.0 \\\\times 10^{-3}\\\\ \\\\mathrm{kg}").number.value
    Fraction(3, 1000)
    """
    if len(text) > MAX_CHARS:
        return None
    text = _NAMED.sub("", normalised(text))
    text = re.sub(r"^([+-]?)\s*10\s*(?=\^(?!\s*\\circ))", r"\g<1>1*10", text)  # a power of ten alone
    number, rest = leading_irrational(text) if _IRRATIONAL.search(text) else leading_numeral(text)
    if number is None:
        return None
    rest = rest.strip().removeprefix("*").strip()
    unit = unit_of(rest)
    if unit or not rest:
        return Amount(number=number, unit=unit)
    counted = read_amount(text)
    return counted and replace(counted, unit=None)


def quantity_equal(answer: str, gold: str) -> bool:
    """Whether the answer is the gold quantity, up to one percent, in whatever unit of its kind.

    A bare gold accepts an answer with a unit only if the numbers agree: the gold does not say in which unit.
    """
    one, other = read_quantity(answer), read_quantity(gold)
    if one is None or other is None:
        return False
    if (noun := _folded(other.written)) and (one.unit or _folded(one.written) not in ("", noun)):
        return False
    number, expected = one.number.value, other.number.value
    if other.unit is not None:
        candidates = [one.in_unit(other.unit)]
    elif one.unit is None or any(one.unit.dimension):
        candidates = [number]
    else:  # a share, an angle or a ratio: its number in units of one, and 50 % is also 50
        candidates = [number * one.unit.factor, *([number] if one.unit == PERCENT else ())]
    is_whole = other.number.places is None and expected.denominator == 1 and not _POWER_OF_TEN.search(gold)
    is_count = other.unit is None and is_whole
    most = 0 if is_count else TOLERANCE * abs(expected)
    return any(value is not None and abs(value - expected) <= most for value in candidates)


def leading_irrational(text: str) -> tuple[Numeral | None, str]:
    """The longest constant formula with a root or pi that ends at a space or with the text, and what follows it."""
    if not _IRRATIONAL.search(text):
        return None, text
    ends = [len(text), *(position for position in range(len(text) - 1, 0, -1) if text[position] == " ")]
    for end in ends[:MAX_WORDS]:
        value = constant(text[:end])
        if value is not None:
            return Numeral(value=value), text[end:]
    return None, text
