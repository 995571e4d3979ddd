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

# names = factor and base powers; the first names take SI prefixes, those after the bar do not
_DEFINITIONS = """
m metre meter = 1 m | Å angstrom = 1e-10 m | in inch inches = 0.0254 m | ft foot feet = 0.3048 m
| yd yard = 0.9144 m | mi mile = 1609.344 m | ly = 9460730472580800 m | au AU = 149597870700 m
g gram = 1e-3 kg | t tonne ton = 1000 kg | lb pound = 0.45359237 kg | u amu Da = 1.66053906892e-27 kg
s sec second = 1 s | min minute = 60 s | h hr hour = 3600 s | d day = 86400 s | week = 604800 s | yr year = 31557600 s
A amp ampere = 1 A
K kelvin = 1 K
mol mole = 1 mol
cd candela = 1 cd | lm lumen = 1 cd | lx lux = 1 cd m-2
rad radian = 1 rad | rev revolution turn = 6.283185307179586 rad | rpm = 0.10471975511965977 rad s-1
Hz hertz = 1 s-1
N newton = 1 kg m s-2 | dyn dyne = 1e-5 kg m s-2 | lbf = 4.4482216152605 kg m s-2
J joule = 1 kg m2 s-2 | cal calorie = 4.184 kg m2 s-2 | kcal Cal = 4184 kg m2 s-2 | erg = 1e-7 kg m2 s-2
eV electronvolt = 1.602176634e-19 kg m2 s-2
Wh = 3600 kg m2 s-2 | Nm = 1 kg m2 s-2
W watt = 1 kg m2 s-3 | hp = 745.69987158227 kg m2 s-3
Pa pascal = 1 kg m-1 s-2 | atm = 101325 kg m-1 s-2 | mmHg torr Torr = 133.322387415 kg m-1 s-2
bar = 100000 kg m-1 s-2 | psi = 6894.757293168 kg m-1 s-2
C coulomb = 1 A s
Ah = 3600 A s
V volt = 1 kg m2 s-3 A-1
Ω ohm Ohm = 1 kg m2 s-3 A-2
S siemens = 1 kg-1 m-2 s3 A2
F farad = 1 kg-1 m-2 s4 A2
Wb weber = 1 kg m2 s-2 A-1
T tesla = 1 kg s-2 A-1
G gauss Gauss = 1e-4 kg s-2 A-1
H henry = 1 kg m2 s-2 A-2
L l litre liter = 1e-3 m3 | ha hectare = 10000 m2 | gal gallon = 0.003785411784 m3
M molar = 1000 mol m-3
Bq becquerel = 1 s-1
Gy gray = 1 m2 s-2 | Sv sievert = 1 m2 s-2
| ° deg degree = 0.017453292519943295 rad
| % percent = 0.01 | ppm = 1e-6 | mph = 0.44704 m s-1 | knot = 0.514444444444 m s-1
"""
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
    """All units by name, and those among them that take prefixes."""
    exact: dict[str, Unit] = {}
    with_prefix: dict[str, Unit] = {}
    for line in _DEFINITIONS.strip().splitlines():
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
