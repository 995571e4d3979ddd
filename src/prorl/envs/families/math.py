"""Compact arithmetic families: signed sums, linear equations, products modulo a number.

Every answer is one integer in decimal notation. It is checked by putting it into the problem, so whatever
solves the problem scores 1 and everything else 0: a working, a list of numbers or an unevaluated expression is
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from random import Random
from typing import Any

from prorl.envs.base import Draft, ProceduralTask
from prorl.envs.types import Witness

_INTEGER = re.compile(r"-?[0-9]{1,15}")


def parse_integer(answer: str) -> int | None:
    """The integer that is the whole answer, up to surrounding white space and 15 digits; None otherwise."""
    text = answer.strip()
    return int(text) if _INTEGER.fullmatch(text) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRung:
    """How many terms a sum has, and the largest of them."""

    terms: int
    largest: int


class Arithmetic(ProceduralTask):
    """Sums and differences: `sum 16+67=?` asks for `83`. The working adds tens, then units: `16+60=76;76+7=83`."""

    name = "arithmetic"
    domain = "math"
    levels = (1, 2, 3, 4)
    ood_levels = (5, 6)
    rungs = (
        SumRung(terms=2, largest=99),
        SumRung(terms=3, largest=99),
        SumRung(terms=4, largest=99),
        SumRung(terms=4, largest=999),
        SumRung(terms=5, largest=999),
        SumRung(terms=6, largest=999),
    )

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: the signed terms."""
        rung = self.rungs[level - 1]
        first, *rest = (rng.randint(1, rung.largest) for _ in range(rung.terms))
        terms = (first, *(rng.choice((1, -1)) * term for term in rest))
        parts = [part for term in terms[1:] for part in _tens_and_units(term)]
        totals = tuple(accumulate(parts, initial=first))
        steps = ";".join(
            f"{before}{part:+d}={after}"
            for (before, after), part in zip(pairwise(totals), parts, strict=True)
        )
        shown = str(first) + "".join(f"{term:+d}" for term in terms[1:])
        return Draft(
            prompt=f"sum {shown}=?", payload=terms, witness=Witness(steps=steps, answer=str(totals[-1]))
        )

    def score(self, payload: Any, answer: str) -> float:
        """1 for the total."""
        return float(parse_integer(answer) == sum(payload))


def _tens_and_units(term: int) -> Iterator[int]:
    """The parts of a term that are not zero, of its own sign: what one head of a tiny model can add at a time."""
    sign = 1 if term > 0 else -1
    tens, units = divmod(abs(term), 10)
    yield from (sign * part for part in (10 * tens, units) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class EquationRung:
    """Bounds on the absolute values of coefficients, root and constant; `x` on one side or on both."""

    coefficient: int
    root: int
    constant: int
    two_sided: bool


class LinearEquation(ProceduralTask):
    """One unknown: `solve 2x+16=-8 x=?` asks for `-12`; from level 3 on `x` stands on both sides."""

    name = "linear_equation"
    domain = "math"
    levels = (1, 2, 3, 4)
    ood_levels = (5, 6)
    rungs = (
        EquationRung(coefficient=9, root=9, constant=9, two_sided=False),
        EquationRung(coefficient=9, root=30, constant=60, two_sided=False),
        EquationRung(coefficient=9, root=12, constant=30, two_sided=True),
        EquationRung(coefficient=20, root=60, constant=99, two_sided=True),
        EquationRung(coefficient=50, root=120, constant=300, two_sided=True),
        EquationRung(coefficient=99, root=300, constant=999, two_sided=True),
    )

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (a, b, c, d) of ax+b=cx+d. Coefficients 0, 1 and -1 need no division: left out."""
        rung = self.rungs[level - 1]
        x = rng.randint(-rung.root, rung.root)
        b = rng.choice((1, -1)) * rng.randint(1, rung.constant)
        a, c = rng.randint(2, rung.coefficient), 0
        while rung.two_sided and (abs(c) < 2 or abs(a - c) < 2):
            c = rng.randint(-rung.coefficient, rung.coefficient)
        d = a * x + b - c * x
        if rung.two_sided:
            right = f"{c}x{d:+d}" if d else f"{c}x"
            steps = f"{a}x{-c:+d}x={d}{-b:+d};{a - c}x={d - b};x={x}"
        else:
            right = str(d)
            steps = f"{a}x={d}{-b:+d}={d - b};x={x}"
        return Draft(
            prompt=f"solve {a}x{b:+d}={right} x=?",
            payload=(a, b, c, d),
            witness=Witness(steps=steps, answer=str(x)),
        )

    def score(self, payload: Any, answer: str) -> float:
        """1 for a number that makes both sides equal."""
        a, b, c, d = payload
        x = parse_integer(answer)
        return float(x is not None and a * x + b == c * x + d)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModularRung:
    """How many factors, their range, and the moduli: primes, so that no residue is favoured."""

    factors: int
    smallest: int
    largest: int
    moduli: tuple[int, ...]


class ModularProduct(ProceduralTask):
    """A product's remainder: `mod 29: 14*27=?` asks for `1`. Out of domain: moduli that are never trained."""

    name = "modular_product"
    domain = "math"
    levels = (1, 2, 3, 4)
    ood_levels = (5, 6)
    rungs = (
        ModularRung(factors=2, smallest=2, largest=19, moduli=(11, 13, 17, 19, 23, 29, 37)),
        ModularRung(factors=2, smallest=2, largest=49, moduli=(19, 23, 29, 37, 41, 43)),
        ModularRung(factors=2, smallest=11, largest=99, moduli=(37, 41, 43, 53, 59, 67)),
        ModularRung(factors=3, smallest=11, largest=99, moduli=(37, 41, 43, 53, 59, 67)),
        ModularRung(factors=3, smallest=11, largest=99, moduli=(31, 47, 61, 71, 73)),
        ModularRung(factors=4, smallest=11, largest=99, moduli=(101, 103, 107, 109, 113)),
    )

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (factors, modulus). No factor is a multiple of the modulus, or 0 would be a good guess."""
        rung = self.rungs[level - 1]
        modulus = rng.choice(rung.moduli)
        candidates = [n for n in range(rung.smallest, rung.largest + 1) if n % modulus]
        factors = tuple(rng.choices(candidates, k=rung.factors))
        steps, rest = [], factors[0]
        for factor in factors[1:]:
            product = rest * factor
            left = product % modulus
            steps.append(f"{rest}*{factor}={product};{product}-{product - left}={left}")
            rest = left
        return Draft(
            prompt=f"mod {modulus}: {'*'.join(map(str, factors))}=?",
            payload=(factors, modulus),
            witness=Witness(steps=";".join(steps), answer=str(rest)),
        )

    def score(self, payload: Any, answer: str) -> float:
        """1 for the remainder: in [0, modulus) and congruent to the product."""
        factors, modulus = payload
        number = parse_integer(answer)
        if number is None or not 0 <= number < modulus:
            return 0.0
        return float((prod(factors) - number) % modulus == 0)
