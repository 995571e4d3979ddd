"""Units of measurement: what a written unit measures, and its size in SI base units, exactly.

A unit is a product of powers of named units, `/` applying to the one factor after it: `J/kg K` is `(J/kg)·K`, and
whoever means otherwise writes `J/(kg K)`. Prefixes go only with the units that take them. Angles keep a dimension
of their own, so that rad/s is no Hz. (pint takes 0.6 s to load, and reads `kmeter`, `kmin` and `m//s` as units,
`ms^{-1}` as "per millisecond" and rad/s as Hz.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from typing import ClassVar

from prorl.envs.verifiers.expressions import Reader, UnreadableError

BASES = ("m", "kg", "s", "A", "K", "mol", "cd", "rad")
MAX_CHARS = 60
MAX_POWER = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a unit measures, as powers of `BASES`, and its size: value_SI = value * factor + offset."""

    dimension: tuple[int, ...]
    factor: Fraction
    offset: Fraction = Fraction(0)  # of temperature scales whose zero is elsewhere

    def si(self, value: Fraction) -> Fraction:
        """The value in SI base units."""
        return value * self.factor + self.offset

    def times(self, other: Unit, power: int = 1) -> Unit:
        """This unit times a power of another one."""
        dimension = tuple(a + power * b for a, b in zip(self.dimension, other.dimension, strict=True))
        return Unit(dimension=dimension, factor=self.factor * other.factor**power)


ONE = Unit(dimension=(0,) * len(BASES), factor=Fraction(1))

_EXPONENTS = (24, 21, 18, 15, 12, 9, 6, 3, 2, -1, -2, -3, -6, -6, -9, -12, -15, -18)
_SYMBOL_PREFIXES = dict(zip("YZEPTGMkhdcmµunpfa", _EXPONENTS, strict=True)) | {"da": 1}
_NAME_PREFIXES = {
    "giga": 9, "mega": 6, "kilo": 3, "hecto": 2, "deci": -1, "centi": -2, "milli": -3, "micro": -6, "nano": -9,
    "pico": -12, "femto": -15, "tera": 12,
}  # fmt: skip
_SHORT = 3  # letters: mol, bar and ohm are written with both kinds of prefixes
_CELSIUS, _FAHRENHEIT = (
    Unit(
        dimension=tuple(int(base == "K") for base in BASES), factor=factor, offset=Fraction("273.15") - shift
    )
    for factor, shift in ((Fraction(1), 0), (Fraction(5, 9), Fraction(160, 9)))
)
_SCALES = dict.fromkeys(("°C", "degC", "celsius", "degreescelsius"), _CELSIUS) | dict.fromkeys(
    ("°F", "degF", "fahrenheit", "degreesfahrenheit"), _FAHRENHEIT
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SPELLINGS = (
    (
        re.compile(r"\\(?:text|mathrm|mathsf|mathit|mbox|operatorname|rm)\s*\{((?:[^{}]|\{[^{}]*\})*)\}"),
        r" \1 ",
    ),
    (re.compile(r"\\(?:mu|micro)(?![A-Za-z])\s*|[μ]"), "µ"),
    (re.compile(r"\\(?:Omega|ohm)(?![A-Za-z])|\u2126"), "Ω"),
    (re.compile(r"\^?\s*\{?\s*\\circ\s*\}?|\\degree(?![A-Za-z])|º"), "°"),
    (re.compile(r"\\(?:AA|angstrom)(?![A-Za-z])"), "Å"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\\(?:cdot|times)(?![A-Za-z])|[·⋅*×]"), "*"),
    (re.compile(r"\\[,;:! ]|~|\$"), " "),
    (re.compile(r"\s+per\s+"), "/"),
    (re.compile(r"(?<![A-Za-z])ms(?=\s*\^?\s*\{?\s*-)"), "m s"),  # metres per second, not "per millisecond"
    (re.compile(r"°\s*(?=[CF](?![A-Za-z]))"), "°"),
    (re.compile(r"(?<![A-Za-z])(?:square|sq\.?)\s+([A-Za-z]+)"), r"\1^2"),
    (re.compile(r"(?<![A-Za-z])cubic\s+([A-Za-z]+)"), r"\1^3"),
    (re.compile(r"(?i)(degrees?)\s+(celsius|fahrenheit)"), r"\2"),
)
_NAME = re.compile("[A-Za-zµΩÅ°%]+")


@lru_cache(maxsize=4096)
def unit_of(text: str) -> Unit | None:
    """What a written unit means; None if any part of it is no unit that we know.

    >>> unit_of("kg*m/s^2") == unit_of("N") == unit_of("kg m s⁻²")
    True
    """
    if len(text) > MAX_CHARS:
        return None
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+", lambda raised: "^" + raised[0].translate(_RAISED), text)
    for pattern, plain in _SPELLINGS:
        text = pattern.sub(plain, text)
    text = " ".join(text.split())
    scale = _SCALES.get(text) or _SCALES.get(text.lower())
    if scale is not None:
        return scale
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
    ranks: ClassVar[dict[str, int]] = {"*": 1, "/": 1, "-": 1}
    max_depth = MAX_CHARS

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
        if unit is None or abs(power) > MAX_POWER:
            raise UnreadableError
        return ONE.times(unit, power)

    def _join(self, operator: str, left: Unit, right: Unit) -> Unit:
        return left.times(right, -1 if operator == "/" else 1)


def _named(name: str) -> Unit | None:
    exact, with_prefix = _tables()
    unit = exact.get(name) or _prefixed(name, with_prefix)
    if unit is None and len(name) >= 4:
        singular = name.lower().removesuffix("s")
        unit = exact.get(name.lower()) or exact.get(singular) or _prefixed(singular, with_prefix)
    return unit


def _prefixed(name: str, units: dict[str, Unit]) -> Unit | None:
    """Short units take the short prefixes and long names the long ones: neither "kmeter" nor "kilom"."""
    for prefix, exponent in (*_SYMBOL_PREFIXES.items(), *_NAME_PREFIXES.items()):
        rest = name.removeprefix(prefix)
        if rest == name or rest not in units:
            continue
        if len(rest) == _SHORT or (len(rest) < _SHORT) == (prefix in _SYMBOL_PREFIXES):
            return Unit(dimension=units[rest].dimension, factor=units[rest].factor * Fraction(10) ** exponent)
    return None


@cache
def _tables() -> tuple[dict[str, Unit], dict[str, Unit]]:
    """All units by name, and those among them that take prefixes: of each line of the file, those before a bar.

    A definition is `names = factor and base powers`.
    """
    exact: dict[str, Unit] = {}
    with_prefix: dict[str, Unit] = {}
    for line in Path(__file__).with_name("units.txt").read_text(encoding="utf-8").splitlines():
        for position, definition in enumerate(line.split("|")):
            names, _, meaning = definition.partition("=")
            if not names.strip():
                continue
            size, *powers = meaning.split()
            by_base = dict(re.findall(r"([A-Za-z]+)(-?[0-9]*)", " ".join(powers)))
            dimension = tuple(int(by_base.get(base, "0") or 1) for base in BASES)
            found = dict.fromkeys(names.split(), Unit(dimension=dimension, factor=Fraction(size)))
            exact |= found
            if position == 0:
                with_prefix |= found
    return exact, with_prefix
