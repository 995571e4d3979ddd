"""Physical laws with units: a formula, all its quantities but one, and the question for the missing one.

An answer is a number and a unit; either alone is wrong. It is converted exactly to the unit of the problem and
put into the law, so `0.5kg` is as good as `500g`. The prompt states the formula because a small model cannot know
the laws by heart: what is learned is to rearrange, substitute and keep the units, and that carries over to
held-out laws, whose units can all be read off the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from types import MappingProxyType
from typing import Any, Protocol

from prorl.envs.base import Draft, ProceduralTask
from prorl.envs.types import Witness
from prorl.envs.verifiers.units import unit_of

_QUANTITY = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9}|/[1-9][0-9]{0,8})?)\s*([^\s0-9]\S{0,7})")


def convert(answer: str, unit: str) -> Fraction | None:
    """The value of an answer such as `12 mV` in `unit`; None if it is no quantity of that kind."""
    match = _QUANTITY.fullmatch(answer.strip())
    written, wanted = (unit_of(match[2]) if match else None), unit_of(unit)
    if match is None or written is None or wanted is None or written.dimension != wanted.dimension:
        return None
    return Fraction(match[1]) * written.factor / wanted.factor


class Law(Protocol):
    """A relation between named quantities, which can draw whole-number values that satisfy it."""

    @property
    def formula(self) -> str:
        """The relation as the prompt shows it."""

    @property
    def units(self) -> tuple[tuple[str, str], ...]:
        """Each symbol and its unit."""

    def draw(self, rng: Random, largest: int) -> dict[str, int]:
        """Values of all symbols that satisfy the law; those chosen freely are at most `largest`."""

    def holds(self, values: Mapping[str, Fraction]) -> bool:
        """Whether the values satisfy the law exactly."""

    def steps(self, unknown: str, values: Mapping[str, int]) -> str:
        """The working that finds `unknown`, ending with its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """whole = left * right, whichever way round the formula is written."""

    formula: str
    units: tuple[tuple[str, str], ...]  # of the whole, the left and the right factor

    def draw(self, rng: Random, largest: int) -> dict[str, int]:
        """Two factors in 2..largest and their product."""
        whole, left, right = (symbol for symbol, _ in self.units)
        a, b = rng.randint(2, largest), rng.randint(2, largest)
        return {whole: a * b, left: a, right: b}

    def holds(self, values: Mapping[str, Fraction]) -> bool:
        """whole = left * right."""
        whole, left, right = (values[symbol] for symbol, _ in self.units)
        return whole == left * right

    def steps(self, unknown: str, values: Mapping[str, int]) -> str:
        """`V=I*R=3*4=12` or `I=V/R=12/4=3`."""
        symbols = [symbol for symbol, _ in self.units]
        one, other = [symbol for symbol in symbols if symbol != unknown]
        sign = "*" if unknown == symbols[0] else "/"
        return f"{unknown}={one}{sign}{other}={values[one]}{sign}{values[other]}={values[unknown]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformAcceleration:
    """v = u + a t."""

    formula: str = "v=u+a*t"
    units: tuple[tuple[str, str], ...] = (("v", "m/s"), ("u", "m/s"), ("a", "m/s2"), ("t", "s"))

    def draw(self, rng: Random, largest: int) -> dict[str, int]:
        """Start, acceleration and time in 2..largest."""
        u, a, t = (rng.randint(2, largest) for _ in range(3))
        return {"v": u + a * t, "u": u, "a": a, "t": t}

    def holds(self, values: Mapping[str, Fraction]) -> bool:
        """v = u + a t."""
        return values["v"] == values["u"] + values["a"] * values["t"]

    def steps(self, unknown: str, values: Mapping[str, int]) -> str:
        """The product first when a speed is asked, the difference first otherwise."""
        v, u, a, t = (values[symbol] for symbol in "vuat")
        if unknown == "v":
            return f"v=u+a*t={u}+{a * t}={v}"
        if unknown == "u":
            return f"u=v-a*t={v}-{a * t}={u}"
        other = "t" if unknown == "a" else "a"
        return f"{unknown}=(v-u)/{other}={v - u}/{values[other]}={values[unknown]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfLife:
    """N = N0 / 2^(t/T) for a whole number of half-lives."""

    formula: str = "N=N0/2^(t/T)"
    units: tuple[tuple[str, str], ...] = (("N", "g"), ("N0", "g"), ("t", "h"), ("T", "h"))

    def draw(self, rng: Random, largest: int) -> dict[str, int]:
        """One to four half-lives of 2..largest hours, which leave 2..largest grams."""
        halvings, half_life, rest = rng.randint(1, 4), rng.randint(2, largest), rng.randint(2, largest)
        return {"N": rest, "N0": rest << halvings, "t": half_life * halvings, "T": half_life}

    def holds(self, values: Mapping[str, Fraction]) -> bool:
        """N 2^(t/T) = N0. The masses differ by 2^4 at most: a huge exponent is not computed."""
        if values["T"] == 0:
            return False
        halvings = values["t"] / values["T"]
        if halvings.denominator != 1 or not 0 <= halvings <= 64:
            return False
        return values["N"] * (1 << halvings.numerator) == values["N0"]

    def steps(self, unknown: str, values: Mapping[str, int]) -> str:
        """The number of half-lives first, from the times or from the masses."""
        n, n0, t, half_life = (values[symbol] for symbol in ("N", "N0", "t", "T"))
        halvings, ratio = t // half_life, n0 // n
        if unknown == "N":
            return f"t/T={halvings};2^{halvings}={ratio};N={n0}/{ratio}={n}"
        if unknown == "N0":
            return f"t/T={halvings};2^{halvings}={ratio};N0={n}*{ratio}={n0}"
        if unknown == "t":
            return f"N0/N={ratio}=2^{halvings};t={halvings}*{half_life}={t}"
        return f"N0/N={ratio}=2^{halvings};T={t}/{halvings}={half_life}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dilution:
    """C1 V1 = C2 V2."""

    formula: str = "C1*V1=C2*V2"
    units: tuple[tuple[str, str], ...] = (("C1", "M"), ("V1", "mL"), ("C2", "M"), ("V2", "mL"))

    def draw(self, rng: Random, largest: int) -> dict[str, int]:
        """A solution of 2..largest molar is diluted two- to ninefold from 2..largest millilitres."""
        factor, concentration, volume = rng.randint(2, 9), rng.randint(2, largest), rng.randint(2, largest)
        return {"C1": concentration * factor, "V1": volume, "C2": concentration, "V2": volume * factor}

    def holds(self, values: Mapping[str, Fraction]) -> bool:
        """C1 V1 = C2 V2."""
        return values["C1"] * values["V1"] == values["C2"] * values["V2"]

    def steps(self, unknown: str, values: Mapping[str, int]) -> str:
        """The product of the known side, divided by the partner of the unknown."""
        kind, side = unknown[0], unknown[1]
        partner = ("V" if kind == "C" else "C") + side
        far = "2" if side == "1" else "1"
        product = values["C" + far] * values["V" + far]
        head = f"{unknown}=C{far}*V{far}/{partner}="
        return f"{head}{product}/{values[partner]}={values[unknown]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesResistance:
    """R = R1 + R2 + R3."""

    formula: str = "R=R1+R2+R3"
    units: tuple[tuple[str, str], ...] = (("R", "ohm"), ("R1", "ohm"), ("R2", "ohm"), ("R3", "ohm"))

    def draw(self, rng: Random, largest: int) -> dict[str, int]:
        """Three resistors of 2..largest ohm."""
        parts = [rng.randint(2, largest) for _ in range(3)]
        return {"R": sum(parts), **{f"R{i}": part for i, part in enumerate(parts, start=1)}}

    def holds(self, values: Mapping[str, Fraction]) -> bool:
        """R = R1 + R2 + R3."""
        return values["R"] == values["R1"] + values["R2"] + values["R3"]

    def steps(self, unknown: str, values: Mapping[str, int]) -> str:
        """A sum, or two differences."""
        sign = "+" if unknown == "R" else "-"
        known = [str(values[symbol]) for symbol, _ in self.units if symbol != unknown]
        return f"{unknown}={sign.join(known)}={values[unknown]}"


TRAINED: tuple[Law, ...] = (
    Product(formula="V=I*R", units=(("V", "V"), ("I", "A"), ("R", "ohm"))),
    Product(formula="rho=m/V", units=(("m", "g"), ("rho", "g/cm3"), ("V", "cm3"))),
    Product(formula="n=m/M", units=(("m", "g"), ("n", "mol"), ("M", "g/mol"))),
    Product(formula="W=F*d", units=(("W", "J"), ("F", "N"), ("d", "m"))),
    UniformAcceleration(),
    HalfLife(),
)
HELD_OUT: tuple[Law, ...] = (Dilution(), SeriesResistance())
_BY_FORMULA: Mapping[str, Law] = MappingProxyType({law.formula: law for law in (*TRAINED, *HELD_OUT)})


class PhysicalLaw(ProceduralTask):
    """`law V=I*R: I=3A R=4ohm V=?` asks for `12V`. Levels 5 and 6 ask about laws that are never trained."""

    name = "physical_law"
    domain = "stem"
    levels = (1, 2, 3, 4)
    ood_levels = (5, 6)
    largest = (12, 24, 50, 99, 24, 99)  # of the values chosen freely, by level

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (formula, unknown, known values), each value in the unit of its symbol."""
        law = rng.choice(TRAINED if level in self.levels else HELD_OUT)
        values = law.draw(rng, self.largest[level - 1])
        units = dict(law.units)
        unknown = rng.choice(list(units))
        known = [(symbol, value) for symbol, value in values.items() if symbol != unknown]
        rng.shuffle(known)
        shown = " ".join(f"{symbol}={value}{units[symbol]}" for symbol, value in known)
        answer = f"{values[unknown]}{units[unknown]}"
        steps = law.steps(unknown, values) + units[unknown]
        return Draft(
            prompt=f"law {law.formula}: {shown} {unknown}=?",
            payload=(law.formula, unknown, tuple(known)),
            witness=Witness(steps=steps, answer=answer),
        )

    def score(self, payload: Any, answer: str) -> float:
        """1 for a number with a unit of the right kind that satisfies the law."""
        formula, unknown, known = payload
        law = _BY_FORMULA[formula]
        value = convert(answer, dict(law.units)[unknown])
        if value is None:
            return 0.0
        return float(law.holds({symbol: Fraction(number) for symbol, number in known} | {unknown: value}))
