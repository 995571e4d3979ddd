"""Whether two formulas are the same, by their values at points.

Formulas that agree at random points to 45 digits are the same (Schwartz and Zippel), and two that differ at one
point are not. Unlike the simplification of a difference, this has a bounded time and no memory to blow up. The
points include negative ones, so that `x` is not `|x|`; a point at which one of the formulas is not real says
nothing, as long as there is another.
"""

from __future__ import annotations

from fractions import Fraction

from prorl.envs.verifiers.formula import (
    LAST_POINT,
    PRECISION,
    Number,
    OutOfRangeError,
    Reader,
    UnreadableError,
    numbers,
)
from prorl.envs.verifiers.numerals import Numeral, agree

AGREEING_DIGITS = 45  # of the 60 carried
WIDE = 1000  # digits carried where a value such as 2^{2024} needs them

_UNDEFINED = (UnreadableError, ArithmeticError, ValueError)  # what mpmath raises where nothing is defined


def same_formula(one: str, other: str) -> bool | None:
    """Whether two normalised formulas are equal; None if one of them is no formula that we can read.

    A logarithm without a base is the natural one or that of base ten, whichever makes both sides equal.
    """
    bases = (None, 10) if "log" in one or "log" in other else (None,)
    try:
        return any(_same_at_any_size(one, other, base) for base in bases)
    except _UNDEFINED:
        return None


def agrees_with(formula: str, decimal: Numeral) -> bool | None:
    """Whether the decimal rounds the real constant that the formula is; None if it is no such constant."""
    value = constant(formula)
    return None if value is None else agree(decimal, Numeral(value=value))


def constant(formula: str) -> Fraction | None:
    """The real constant that the formula is, to 45 decimals; None if it is none."""
    context = numbers()
    try:
        scaled = int(context.nint(_real_constant(formula) * context.mpf(10) ** AGREEING_DIGITS))
    except _UNDEFINED:
        return None
    return Fraction(scaled, 10**AGREEING_DIGITS)


def ratio(one: tuple[str, str], other: tuple[str, str]) -> float | None:
    """The c with `left - right` of the first = c times that of the second: 0 without one, None if unreadable."""
    try:
        return _ratio(one, other)
    except _UNDEFINED:
        return None


def _same_at_any_size(one: str, other: str, log_base: int | None) -> bool:
    try:
        return _same(one, other, log_base, PRECISION)
    except OutOfRangeError:
        return _same(one, other, log_base, WIDE)


def _same(one: str, other: str, log_base: int | None, precision: int) -> bool:
    inside: list[bool] = []
    outside: list[bool] = []
    for point in range(LAST_POINT + 1):
        left, right = (
            Reader(text, point=point, log_base=log_base, precision=precision) for text in (one, other)
        )
        equal = _close(left.value(), right.value(), precision)
        if not left.has_variables and not right.has_variables:
            return equal
        (outside if left.left_reals or right.left_reals else inside).append(equal)
    return all(inside or outside)


def _real_constant(formula: str) -> Number:
    reader = Reader(formula, point=0)
    value = reader.value()
    if reader.has_variables or not _close(value, value.real):
        raise UnreadableError
    return value.real


def _ratio(one: tuple[str, str], other: tuple[str, str]) -> float:
    differences = [
        [Reader(f"({left})-({right})", point=point).value() for left, right in (one, other)]
        for point in range(LAST_POINT + 1)
    ]
    ratios = [upper / lower for upper, lower in differences]
    first = ratios[0]
    if not all(_close(first.real, each) for each in ratios):
        return 0.0
    return float(first.real)


def _close(one: Number, other: Number, precision: int = PRECISION) -> bool:
    scale = max(1, abs(one), abs(other))
    agreeing = precision - PRECISION + AGREEING_DIGITS
    return bool(abs(one - other) <= scale * numbers(precision).mpf(10) ** -agreeing)
