"""Expressions that a model wrote, read and computed by our own reader: nothing is compiled, expanded or simplified.

One reader has five grammars: number games in exact fractions, sympy's notation, propositional logic,
the LaTeX of `formula.py` and products of units. Reading computes: an expression is read once per point. Each grammar
bounds length, depth and values, so the time is linear in the length of the text.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from operator import add, and_, eq, mul, or_, sub, truediv
from random import Random
from typing import Any, ClassVar

MAX_POLYNOMIAL_CHARS = 2000
POINTS = 5  # at which an antiderivative is tried
PRECISION = 60  # decimal digits carried by default
LARGEST = 1e30  # of the values of an antiderivative


class UnreadableError(ValueError):
    """The text is no expression of this grammar."""


class OutOfRangeError(UnreadableError):
    """A value on the way is too large for the digits carried."""


# what a reader raises, also where nothing is defined
UNDEFINED = (ArithmeticError, ValueError)

_Operator = tuple[int, Callable[[Any, Any], Any]]  # of an infix operator: its rank and its meaning


class Reader(ABC):
    """Recursive descent over the tokens of one expression; operators of equal rank group to the left.

    A grammar is a subclass that reads operands (`_operand`); two factors side by side are a product.
    """

    token: ClassVar[re.Pattern[str]]  # group 1 is a token, white space before it allowed
    operators: ClassVar[Mapping[str, _Operator]] = {
        "+": (1, add), "-": (1, sub), "*": (2, mul), "/": (2, truediv),
    }  # fmt: skip
    words: ClassVar[frozenset[str] | None] = None  # where letters are names: those that are one token
    max_chars: ClassVar[int] = 10_000
    max_tokens: ClassVar[int] = 1000
    max_depth: ClassVar[int]  # of brackets, and of what else `_deeper` reads

    def __init__(self, text: str, names: Mapping[str, Any] = {}) -> None:
        text = text.strip()
        if len(text) > self.max_chars:
            raise UnreadableError
        self._names = names
        self._tokens: list[str] = []
        self._position = self._depth = end = 0
        while end < len(text):
            match = self.token.match(text, end)
            if match is None or len(self._tokens) > self.max_tokens:
                raise UnreadableError
            letters = match[1].isalpha() and self.words is not None and match[1] not in self.words
            self._tokens += match[1] if letters else [match[1]]
            end = match.end()

    def value(self) -> Any:
        """The value of the whole text.

        Raises UnreadableError: it is no expression, or (OutOfRangeError) needs more digits; ArithmeticError or
        ValueError: it is not defined, as 1/0.
        """
        value = self._infix(1)
        if self._peek():
            raise UnreadableError
        return value

    @abstractmethod
    def _operand(self) -> Any:
        """The value of what stands next: a number, a name, a group, or a sign before one of them."""

    def _checked(self, value: Any) -> Any:
        """A result, where it is in range."""
        return value

    def _rank(self) -> int:
        return self.operators.get(self._peek(), (0,))[0]

    def _infix(self, least: int) -> Any:
        """An operand and all operators behind it that bind at least as tightly as the rank `least`."""
        left = self._operand()
        while (rank := self._rank()) >= least:
            _, join = self.operators[self._next() if self._peek() in self.operators else "*"]
            left = self._checked(join(left, self._infix(rank + 1)))
        return left

    def _group(self, closing: str) -> Any:
        value = self._deeper(lambda: self._infix(1))
        if not self._take(closing):
            raise UnreadableError
        return value

    def _deeper(self, read: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > self.max_depth:
            raise UnreadableError
        value = read()
        self._depth -= 1
        return value

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise UnreadableError
        self._position += 1
        return token

    def _take(self, wanted: str) -> bool:
        found = self._peek() == wanted
        self._position += found
        return found


class _Arithmetic(Reader):
    """Whole numbers below 10000 without leading zeros, in exact fractions."""

    token = re.compile(r"\s*([1-9][0-9]{0,3}|[-+*/()])")
    max_chars, max_depth = 100, 50

    def __init__(self, text: str, *, signed: bool) -> None:
        super().__init__(text)
        self.numbers = [int(token) for token in self._tokens if token.isdigit()]
        self._signed = signed

    def _operand(self) -> Any:
        starts = self._position == 0 or self._tokens[self._position - 1] == "("
        if self._signed and starts and self._take("-"):
            return -self._infix(2)
        token = self._next()
        if token == "(":
            return self._group(")")
        if token.isdigit():
            return Fraction(int(token))
        raise UnreadableError


def reaches(text: str, numbers: Sequence[int], target: int, *, signed: bool = False) -> bool:
    """Whether an expression of `+ - * /` and brackets uses each of the numbers once and is exactly the target.

    `signed` also allows a minus that has nothing on its left.

    >>> reaches("(6-4)*(8+5)", [4, 5, 6, 8], 26), reaches("-2+4", [2, 4], 2)
    (True, False)
    """
    try:
        reader = _Arithmetic(text, signed=signed)
        return sorted(reader.numbers) == sorted(numbers) and bool(reader.value() == target)
    except (UnreadableError, ZeroDivisionError):
        return False


Monomial = tuple[tuple[str, int], ...]  # variables with their exponents, in alphabetical order

_FACTOR = r"(?:[0-9]{1,30}|[A-Za-z](?:\*\*[0-9]{1,3})?)"
_TERM = re.compile(rf"([+-])({_FACTOR}(?:\*{_FACTOR})*)")
_PART = re.compile(r"([0-9]+)|([A-Za-z])(?:\*\*([0-9]+))?")


def coefficients(text: str) -> dict[Monomial, int] | None:
    """The coefficient of each monomial of a sum of terms like `-3*x**2*y`; None for any other text.

    >>> coefficients("2*x - 3 + x")
    {(('x', 1),): 3, (): -3}
    """
    text = "".join(text.split())
    if not text or len(text) > MAX_POLYNOMIAL_CHARS:
        return None
    if text[0] not in "+-":
        text = "+" + text
    totals: Counter[Monomial] = Counter()
    for sign, term in (terms := _TERM.findall(text)):
        coefficient = -1 if sign == "-" else 1
        exponents: Counter[str] = Counter()
        for digits, variable, exponent in _PART.findall(term):
            coefficient *= int(digits or 1)
            exponents[variable] += int(exponent or 1)
        del exponents[""]
        totals[tuple(sorted((name, power) for name, power in exponents.items() if power))] += coefficient
    if "".join(map("".join, terms)) != text:
        return None
    return {monomial: total for monomial, total in totals.items() if total}


@cache
def context(precision: int = PRECISION) -> Any:
    """A private mpmath context, so that nobody else's precision changes; imported when first needed."""
    from mpmath import MPContext

    made = MPContext()
    made.dps = precision
    return made


_FUNCTIONS = ("exp", "log", "ln", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")


class _Calculus(Reader):
    """sympy's notation, in complex numbers."""

    token = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?|[A-Za-z]+|\*\*|[-+*/()])")
    max_chars, max_depth = 1000, 50

    def _checked(self, value: Any) -> Any:
        if not abs(value) < LARGEST:
            raise OutOfRangeError
        return value

    def _operand(self) -> Any:
        if self._peek() in ("+", "-"):
            minus = self._next() == "-"
            inner = self._deeper(self._operand)
            return -inner if minus else inner
        base = self._atom()
        return self._checked(base ** self._deeper(self._operand)) if self._take("**") else base

    def _atom(self) -> Any:
        token = self._next()
        if token[0].isdigit():
            return context().mpc(token)
        if token in self._names:
            return self._names[token]
        if token == "(":
            return self._group(")")
        if token not in _FUNCTIONS or not self._take("("):
            raise UnreadableError
        return self._checked(getattr(context(), token)(self._group(")")))


def is_antiderivative(text: str, integrand: str, variable: str) -> bool:
    """Whether the derivative of the text equals the integrand at random points; `C` is a constant.

    The derivative is a difference quotient, exact to 1e-10. The points are drawn from the text itself, so that no
    text can be fitted to them.
    """
    rng = Random(text.encode("utf-8", "surrogatepass"))
    exact = context()
    step = exact.mpf("1e-20")
    names = {"E": exact.mpc(exact.e), "pi": exact.mpc(exact.pi)}
    try:
        for _ in range(POINTS):
            point, names["C"] = rng.uniform(0.2, 1.3), exact.mpc(rng.uniform(1.0, 9.0))
            before, at, after = (names | {variable: exact.mpc(point + move)} for move in (-step, 0, step))
            slope = (_Calculus(text, after).value() - _Calculus(text, before).value()) / (2 * step)
            if not exact.almosteq(slope, _Calculus(integrand, at).value(), rel_eps=1e-6, abs_eps=1e-9):
                return False
    except UNDEFINED:
        return False
    return True


class _Logic(Reader):
    """`¬` binds tightest, then `∧`, `∨`, `→`, `↔`, as in reasoning-gym."""

    token = re.compile(r"\s*([A-Z]|[()¬∧∨→↔])")
    operators: ClassVar[Mapping[str, _Operator]] = {
        "↔": (1, eq), "→": (2, lambda left, right: not left or right), "∨": (3, or_), "∧": (4, and_),
    }  # fmt: skip
    max_chars, max_depth = 200, 100

    def _operand(self) -> bool:
        negated = False
        while self._take("¬"):
            negated = not negated
        token = self._next()
        if token == "(":
            return self._group(")") is not negated
        if token not in self._names:
            raise UnreadableError
        return self._names[token] is not negated


def truth(text: str, world: Mapping[str, bool]) -> bool | None:
    """Whether a formula of propositional logic holds in a world; None if it is malformed or names other variables."""
    try:
        return bool(_Logic(text, world).value())
    except UnreadableError:
        return None
