"""Compact families whose answer is a number, an expression or a quantity: sums, equations, countdown, physical laws.

An answer is checked by putting it into the problem, so whatever solves the problem scores 1 and everything else 0:
a working, a list of candidates or, where one number is asked, an unevaluated expression is wrong.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import accumulate, pairwise
from math import fmod
from random import Random
from typing import Any, NamedTuple

from prorl.envs.base import Draft, ProceduralTask, draft
from prorl.envs.verifiers.expressions import reaches
from prorl.envs.verifiers.latex import normalised
from prorl.envs.verifiers.quantity import unit_of

_INTEGER = re.compile(r"-?[0-9]{1,15}")
_TYPESET = re.compile(r"[\\$−–×·÷]")


def plain(answer: str) -> str:
    """An answer without LaTeX and without signs that look like others."""
    return normalised(answer).replace(" ^", "^") if _TYPESET.search(answer) else answer.strip()


def parse_integer(answer: str) -> int | None:
    """The integer that is the whole answer, up to surrounding white space and 15 digits; None otherwise."""
    text = plain(answer)
    return int(text) if _INTEGER.fullmatch(text) else None


class Arithmetic(ProceduralTask):
    """Sums and differences: `sum 16+67=?` asks for `83`. The working adds tens, then units: `16+60=76;76+7=83`."""

    name, domain, levels, ood_levels = "arithmetic", "math", (1, 2, 3, 4), (5, 6)
    sizes = ((2, 99), (3, 99), (4, 99), (4, 999), (5, 999), (6, 999))  # terms, the largest; by level

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: the signed terms."""
        count, largest = self.sizes[level - 1]
        first, *rest = (rng.randint(1, largest) for _ in range(count))
        rest = [rng.choice((1, -1)) * term for term in rest]
        units = [int(fmod(term, 10)) for term in rest]
        pairs = ((term - unit, unit) for term, unit in zip(rest, units, strict=True))
        parts = [part for pair in pairs for part in pair if part]
        added = zip(pairwise(accumulate(parts, initial=first)), parts, strict=True)
        steps = ";".join(f"{before}{part:+d}={after}" for (before, after), part in added)
        shown = str(first) + "".join(f"{term:+d}" for term in rest)
        return draft(f"sum {shown}=?", (first, *rest), steps, str(first + sum(rest)))

    def score(self, payload: Any, answer: str) -> float:
        """1 for the total."""
        return float(parse_integer(answer) == sum(payload))


class LinearEquation(ProceduralTask):
    """One unknown: `solve 2x+16=-8 x=?` asks for `-12`; from level 3 on `x` stands on both sides."""

    name, domain, levels, ood_levels = "linear_equation", "math", (1, 2, 3, 4), (5, 6)
    # largest absolute coefficient, root and constant, by level
    sizes = ((9, 9, 9), (9, 30, 60), (9, 12, 30), (20, 60, 99), (50, 120, 300), (99, 300, 999))

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (a, b, c, d) of ax+b=cx+d. Coefficients 0, 1 and -1 need no division: left out."""
        coefficient, root, constant = self.sizes[level - 1]
        two_sided = level >= 3
        x = rng.randint(-root, root)
        b = rng.choice((1, -1)) * rng.randint(1, constant)
        a, c = rng.randint(2, coefficient), 0
        while two_sided and (abs(c) < 2 or abs(a - c) < 2):
            c = rng.randint(-coefficient, coefficient)
        d = a * x + b - c * x
        if two_sided:
            right = f"{c}x{d:+d}" if d else f"{c}x"
            steps = f"{a}x{-c:+d}x={d}{-b:+d};{a - c}x={d - b};x={x}"
        else:
            right = str(d)
            steps = f"{a}x={d}{-b:+d}={d - b};x={x}"
        return draft(f"solve {a}x{b:+d}={right} x=?", (a, b, c, d), steps, str(x))

    def score(self, payload: Any, answer: str) -> float:
        """1 for a number that makes both sides equal."""
        a, b, c, d = payload
        x = parse_integer(answer)
        return float(x is not None and a * x + b == c * x + d)


class Countdown(ProceduralTask):
    """`make 26 from 4 6 8 3 once each` asks for an expression such as `(6-4)*(8+5)` with that value.

    Allowed are the four operations and parentheses, no sign before a number, and every number as often as given.
    """

    name, domain, levels, ood_levels = "countdown", "logic", (1, 2, 3, 4), (5, 6)
    largest_total = 999
    sizes = ((2, 30), (3, 12), (4, 12), (4, 30), (5, 30), (6, 30))  # numbers, the largest; by level

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (numbers, target). Solvable: the target is the end of a chain of exact operations."""
        count, largest = self.sizes[level - 1]
        numbers = [rng.randint(2, largest) for _ in range(count)]
        total, shown, last, steps = numbers[0], str(numbers[0]), "", []
        for number in numbers[1:]:
            results = self._results(total, number)
            operator = rng.choice(list(results))
            steps.append(f"{total}{operator}{number}={results[operator]}")
            group = operator in "*/" and last in ("+", "-")
            shown = f"({shown}){operator}{number}" if group else f"{shown}{operator}{number}"
            total, last = results[operator], operator
        numbers.sort()  # in one order: in another it would be the same problem, and maybe of another split
        asked = f"make {total} from {' '.join(map(str, numbers))} once each"
        return draft(asked, (tuple(numbers), total), ";".join(steps), shown)

    def _results(self, total: int, number: int) -> dict[str, int]:
        """By operator, where it is a positive whole number; only `+`, always possible, can pass the bound."""
        results = {"+": total + number}
        if total > number:
            results["-"] = total - number
        if total * number <= self.largest_total:
            results["*"] = total * number
        if total % number == 0:
            results["/"] = total // number
        return results

    def score(self, payload: Any, answer: str) -> float:
        """1 for an expression over exactly the given numbers whose exact value is the target."""
        numbers, target = payload
        return float(reaches(plain(answer), numbers, target))


# physical laws

_QUANTITY = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9}|/[1-9][0-9]{0,8})?)\s*([^\s0-9]\S{0,7})")
Units = Mapping[str, str]  # by symbol, as values
Values = Mapping[str, int]
Steps = Callable[[str, Values], str]


def convert(answer: str, unit: str) -> Fraction | None:
    """The value of an answer such as `12 mV` in `unit`; None if it is no quantity of that kind."""
    match = _QUANTITY.fullmatch(plain(answer))
    written, wanted = (unit_of(match[2]) if match else None), unit_of(unit)
    if match is None or written is None or wanted is None or written.dimension != wanted.dimension:
        return None
    return Fraction(match[1]) * written.factor / wanted.factor


class Law(NamedTuple):
    """A relation between named quantities."""

    formula: str  # as the prompt shows it
    units: Units  # of each symbol, in the order in which problems are drawn
    draw: Callable[[Random, int], tuple[int, ...]]  # values that satisfy it; the free ones are 2..largest
    holds: Callable[..., bool]  # whether the values of the symbols, in their order, satisfy it exactly
    steps: Steps | None = None  # the working that finds a symbol, ending with its number; of trained laws


def _explicit(formula: str, units: Units, first: Callable[..., int], steps: Steps | None = None) -> Law:
    """A law that gives the first symbol as a function of the others, which are drawn freely."""

    def draw(rng: Random, largest: int) -> tuple[int, ...]:
        free = [rng.randint(2, largest) for _ in range(len(units) - 1)]
        return first(*free), *free

    return Law(formula, units, draw, lambda value, *others: value == first(*others), steps)


def _product(formula: str, **units: str) -> Law:
    """whole = left * right, whichever way round the formula is written; `units` in this order."""
    whole, *_ = units

    def steps(unknown: str, values: Values) -> str:
        """`V=I*R=3*4=12` or `I=V/R=12/4=3`."""
        one, other = [symbol for symbol in units if symbol != unknown]
        sign = "*" if unknown == whole else "/"
        return f"{unknown}={one}{sign}{other}={values[one]}{sign}{values[other]}={values[unknown]}"

    return _explicit(formula, units, lambda left, right: left * right, steps)


def _motion_steps(unknown: str, values: Values) -> str:
    v, u, a, t = values.values()
    ends = {
        "v": f"u+a*t={u}+{a * t}={v}",
        "u": f"v-a*t={v}-{a * t}={u}",
        "a": f"(v-u)/t={v - u}/{t}={a}",
        "t": f"(v-u)/a={v - u}/{a}={t}",
    }
    return f"{unknown}={ends[unknown]}"


def _draw_decay(rng: Random, largest: int) -> tuple[int, ...]:
    """One to four half-lives of 2..largest hours, which leave 2..largest grams."""
    halvings, half_life, rest = rng.randint(1, 4), rng.randint(2, largest), rng.randint(2, largest)
    return rest, rest << halvings, half_life * halvings, half_life


def _decay_holds(n: Fraction, n0: Fraction, t: Fraction, half_life: Fraction) -> bool:
    """N 2^(t/T) = N0. The masses differ by 2^4 at most: a huge exponent is not computed."""
    halvings = t / half_life if half_life else Fraction(-1)
    return halvings.denominator == 1 and 0 <= halvings <= 64 and n * (1 << halvings.numerator) == n0


def _decay_steps(unknown: str, values: Values) -> str:
    n, n0, t, half_life = values.values()
    halvings, ratio = t // half_life, n0 // n
    ends = {
        "N": f"t/T={halvings};2^{halvings}={ratio};N={n0}/{ratio}={n}",
        "N0": f"t/T={halvings};2^{halvings}={ratio};N0={n}*{ratio}={n0}",
        "t": f"N0/N={ratio}=2^{halvings};t={halvings}*{half_life}={t}",
        "T": f"N0/N={ratio}=2^{halvings};T={t}/{halvings}={half_life}",
    }
    return ends[unknown]


def _draw_dilution(rng: Random, largest: int) -> tuple[int, ...]:
    """A solution of 2..largest molar is diluted two- to ninefold from 2..largest millilitres."""
    factor, concentration, volume = rng.randint(2, 9), rng.randint(2, largest), rng.randint(2, largest)
    return concentration * factor, volume, concentration, volume * factor


_MOTION = {"v": "m/s", "u": "m/s", "a": "m/s2", "t": "s"}
_DECAY = {"N": "g", "N0": "g", "t": "h", "T": "h"}
_DILUTION = {"C1": "M", "V1": "mL", "C2": "M", "V2": "mL"}
TRAINED_LAWS = (
    _product("V=I*R", V="V", I="A", R="ohm"),
    _product("rho=m/V", m="g", rho="g/cm3", V="cm3"),
    _product("n=m/M", m="g", n="mol", M="g/mol"),
    _product("W=F*d", W="J", F="N", d="m"),
    _explicit("v=u+a*t", _MOTION, lambda u, a, t: u + a * t, _motion_steps),
    Law("N=N0/2^(t/T)", _DECAY, _draw_decay, _decay_holds, _decay_steps),
)
HELD_OUT_LAWS = (
    Law("C1*V1=C2*V2", _DILUTION, _draw_dilution, lambda c1, v1, c2, v2: c1 * v1 == c2 * v2),
    _explicit("R=R1+R2+R3", dict.fromkeys(("R", "R1", "R2", "R3"), "ohm"), lambda *parts: sum(parts)),
)
_BY_FORMULA = {law.formula: law for law in (*TRAINED_LAWS, *HELD_OUT_LAWS)}


class PhysicalLaw(ProceduralTask):
    """`law V=I*R: I=3A R=4ohm V=?` asks for `12V`. Levels 5 and 6 ask about laws that are never trained.

    An answer is a number and a unit; either alone is wrong. It is converted exactly to the unit of the problem and
    put into the law, so `0.5kg` is as good as `500g`.
    """

    name, domain, levels, ood_levels = "physical_law", "stem", (1, 2, 3, 4), (5, 6)
    largest = (12, 24, 50, 99, 24, 99)  # of the values chosen freely, by level

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (formula, unknown, known values), each value in the unit of its symbol."""
        law = rng.choice(TRAINED_LAWS if level in self.levels else HELD_OUT_LAWS)
        units = law.units
        values = dict(zip(units, law.draw(rng, self.largest[level - 1]), strict=True))
        unknown = rng.choice(list(units))
        known = [(symbol, value) for symbol, value in values.items() if symbol != unknown]
        shown = " ".join(f"{symbol}={value}{units[symbol]}" for symbol, value in known)
        steps = law.steps(unknown, values) + units[unknown] if law.steps else ""
        asked, answer = f"law {law.formula}: {shown} {unknown}=?", f"{values[unknown]}{units[unknown]}"
        return draft(asked, (law.formula, unknown, tuple(known)), steps, answer)

    def score(self, payload: Any, answer: str) -> float:
        """1 for a number with a unit of the right kind that satisfies the law."""
        formula, unknown, known = payload
        law = _BY_FORMULA[formula]
        value = convert(answer, law.units[unknown])
        if value is None:
            return 0.0
        values = {symbol: Fraction(number) for symbol, number in known} | {unknown: value}
        return float(law.holds(*(values[symbol] for symbol in law.units)))
