"""Antiderivatives: the derivative of what a model wrote equals the integrand at random points.

Both texts are parsed by a small grammar and evaluated in complex dual numbers, so that the derivative is exact to
rounding; nothing is executed and nothing is simplified, hence the work is bounded. An unevaluated `Integral(...)`
is not in the grammar: the library's scorer pays it in full.
"""

from __future__ import annotations

import cmath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

Entry = Mapping[str, Any]
Point = Mapping[str, "Dual"]
Expression = Callable[[Point], "Dual"]

MAX_EXPRESSION_CHARS = 1000
MAX_DEPTH = 50
POINTS = 5
_TOKEN = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?|[A-Za-z]+|\*\*|[-+*/()])")


@dataclass(frozen=True, slots=True)
class Dual:
    """A value and its derivative by the variable."""

    value: complex
    slope: complex = 0.0


_NAMED: Mapping[str, complex] = {"E": cmath.e, "pi": cmath.pi}
_FUNCTIONS: Mapping[str, tuple[Callable[[complex], complex], Callable[[complex], complex]]] = {
    "exp": (cmath.exp, cmath.exp),
    "log": (cmath.log, lambda z: 1 / z),
    "ln": (cmath.log, lambda z: 1 / z),
    "sqrt": (cmath.sqrt, lambda z: 0.5 / cmath.sqrt(z)),
    "sin": (cmath.sin, cmath.cos),
    "cos": (cmath.cos, lambda z: -cmath.sin(z)),
    "tan": (cmath.tan, lambda z: 1 / cmath.cos(z) ** 2),
    "asin": (cmath.asin, lambda z: 1 / cmath.sqrt(1 - z * z)),
    "acos": (cmath.acos, lambda z: -1 / cmath.sqrt(1 - z * z)),
    "atan": (cmath.atan, lambda z: 1 / (1 + z * z)),
    "sinh": (cmath.sinh, cmath.cosh),
    "cosh": (cmath.cosh, cmath.sinh),
}


class Malformed(ValueError):
    """A text that the grammar does not produce."""


def antiderivative(entry: Entry, answer: str) -> float:
    """Whether the answer is an antiderivative of `metadata.integrand` in `metadata.variable`; `C` is a constant.

    The points are drawn from the answer itself, so that no answer can be fitted to them.
    """
    variable = entry["metadata"]["variable"]
    rng = Random(answer.encode("utf-8", "surrogatepass"))
    try:
        integrand = parse(entry["metadata"]["integrand"], variable)
        claim = parse(answer, variable)
        for _ in range(POINTS):
            point = {variable: Dual(rng.uniform(0.2, 1.3), 1.0), "C": Dual(rng.uniform(1.0, 9.0))}
            if not cmath.isclose(claim(point).slope, integrand(point).value, rel_tol=1e-6, abs_tol=1e-9):
                return 0.0
    except (
        Malformed,
        ArithmeticError,
        ValueError,
        RecursionError,
    ):  # ValueError: outside a function's domain
        return 0.0
    return 1.0


def parse(text: str, variable: str) -> Expression:
    """The text as a function of a point.

    Raises:
        Malformed: anything outside the grammar, or too long or too deeply nested.
    """
    tokens = _tokens(text)
    expression, end = _sum(tokens, 0, variable, 0)
    if end != len(tokens):
        raise Malformed(text[:60])
    return expression


def _tokens(text: str) -> list[str]:
    text = text.strip()
    if len(text) > MAX_EXPRESSION_CHARS:
        raise Malformed("too long")
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Malformed(text[position : position + 20])
        tokens.append(match[1])
        position = match.end()
    return tokens


def _peek(tokens: list[str], at: int) -> str:
    return tokens[at] if at < len(tokens) else ""


def _sum(tokens: list[str], at: int, variable: str, depth: int) -> tuple[Expression, int]:
    left, at = _product(tokens, at, variable, depth)
    while (sign := _peek(tokens, at)) in ("+", "-"):
        right, at = _product(tokens, at + 1, variable, depth)
        left = _plus(left, right if sign == "+" else _negated(right))
    return left, at


def _product(tokens: list[str], at: int, variable: str, depth: int) -> tuple[Expression, int]:
    left, at = _signed(tokens, at, variable, depth)
    while (operator := _peek(tokens, at)) in ("*", "/"):
        right, at = _signed(tokens, at + 1, variable, depth)
        left = _times(left, right if operator == "*" else _power(right, _constant(-1)))
    return left, at


def _signed(tokens: list[str], at: int, variable: str, depth: int) -> tuple[Expression, int]:
    if depth > MAX_DEPTH:
        raise Malformed("nested too deeply")
    sign = _peek(tokens, at)
    if sign in ("+", "-"):
        inner, at = _signed(tokens, at + 1, variable, depth + 1)
        return (inner if sign == "+" else _negated(inner)), at
    base, at = _atom(tokens, at, variable, depth)
    if _peek(tokens, at) != "**":
        return base, at
    exponent, at = _signed(tokens, at + 1, variable, depth + 1)
    return _power(base, exponent), at


def _atom(tokens: list[str], at: int, variable: str, depth: int) -> tuple[Expression, int]:
    token = _peek(tokens, at)
    if token[:1].isdigit():
        return _constant(float(token)), at + 1
    if token in (variable, "C"):
        return (lambda point: point[token]), at + 1
    if token in _NAMED:
        return _constant(_NAMED[token]), at + 1
    called = token in _FUNCTIONS
    start = at + 1 if called else at
    if _peek(tokens, start) != "(":
        raise Malformed(token)
    inner, end = _sum(tokens, start + 1, variable, depth + 1)
    if _peek(tokens, end) != ")":
        raise Malformed("unbalanced parentheses")
    return (_applied(*_FUNCTIONS[token], inner) if called else inner), end + 1


def _constant(value: complex) -> Expression:
    return lambda point: Dual(value)


def _negated(inner: Expression) -> Expression:
    return _times(_constant(-1), inner)


def _plus(left: Expression, right: Expression) -> Expression:
    def value(point: Point) -> Dual:
        a, b = left(point), right(point)
        return Dual(a.value + b.value, a.slope + b.slope)

    return value


def _times(left: Expression, right: Expression) -> Expression:
    def value(point: Point) -> Dual:
        a, b = left(point), right(point)
        return Dual(a.value * b.value, a.slope * b.value + a.value * b.slope)

    return value


def _power(base: Expression, exponent: Expression) -> Expression:
    """`b^e`, whose slope is `e b^(e-1) b' + b^e log(b) e'`."""

    def value(point: Point) -> Dual:
        b, e = base(point), exponent(point)
        slope = e.value * b.value ** (e.value - 1) * b.slope if b.slope else 0.0
        if e.slope:
            slope += b.value**e.value * cmath.log(b.value) * e.slope
        return Dual(b.value**e.value, slope)

    return value


def _applied(
    function: Callable[[complex], complex], derivative: Callable[[complex], complex], inner: Expression
) -> Expression:
    def value(point: Point) -> Dual:
        z = inner(point)
        return Dual(function(z.value), derivative(z.value) * z.slope if z.slope else 0.0)

    return value
