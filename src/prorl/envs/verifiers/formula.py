"""The value of a formula at a point, by our own reader: nothing is compiled, expanded or simplified.

Reading computes: every operation works on complex numbers of fixed precision and refuses magnitudes that it
cannot hold, so the time is linear in the length of the text, whatever it says.

Conventions: `e` and `i` are the constants and every other letter is a variable; `^\\circ` is a degree; odd roots
of negative numbers are real; the base of a bare `\\log` is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from prorl.envs.seeds import derive

PRECISION = 60  # decimal digits carried by default
SPARE_DIGITS = 20  # of these, those that no value may need: magnitudes stay below 10^(precision - spare)
MAX_TOKENS = 250
MAX_DEPTH = 30
MAX_FACTORIAL = 34
MAX_BINOMIAL = 130
LAST_POINT = 2

Number = Any  # a complex number of the context below: mpmath has no types

_TOKEN = re.compile(r"\s*(\\[A-Za-z]+|[0-9]+(?:\.[0-9]+)?|\.[0-9]+|[A-Za-z]+|[-+*/^_!|()\[\]{}])")
_THOUSANDS = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_CLOSING: Mapping[str, str] = MappingProxyType({"(": ")", "[": "]", "{": "}"})
_STOPS = frozenset(")]}+-*/^!_")
_TRIGONOMETRIC: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in ("sin", "cos", "tan", "sec", "csc", "cot", "sinh", "cosh", "tanh")},
        **{"arc" + name: "a" + name for name in ("sin", "cos", "tan")},
    }
)
_FUNCTIONS = frozenset((*_TRIGONOMETRIC, "exp", "ln", "log"))
_WORDS = _FUNCTIONS | {"sqrt", "pi"}  # also understood without a backslash
_GREEK = frozenset(
    re.findall(
        r"\w+",
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma "
        "tau phi varphi chi psi omega Gamma Delta Theta Lambda Sigma Phi Psi Omega hbar ell",
    )
)


class UnreadableError(ValueError):
    """The text is no formula of this grammar."""


class OutOfRangeError(UnreadableError):
    """A value on the way is too large for the digits carried."""


@cache
def numbers(precision: int = PRECISION) -> Any:
    """A private mpmath context, so that nobody else's precision changes; imported when first needed."""
    from mpmath import MPContext

    context = MPContext()
    context.dps = precision
    return context


class Reader:
    """Recursive descent over the tokens of one formula.

    After `value()`: `has_variables`, and `left_reals` if a root or a logarithm of a negative number was taken,
    so that the point is outside the real domain of the formula.
    """

    def __init__(
        self, text: str, *, point: int, log_base: int | None = None, precision: int = PRECISION
    ) -> None:
        """`point` 0 makes all variables positive, `LAST_POINT` all negative, those between mix."""
        self.has_variables = False
        self.left_reals = False
        self._tokens = _tokenise(text)
        self._position = 0
        self._depth = 0
        self._in_bars = False  # whether the next bar closes an absolute value
        self._point = point
        self._log_base = log_base
        self._math = numbers(precision)
        self._largest = self._math.mpf(10) ** (precision - SPARE_DIGITS)

    def value(self) -> Number:
        """The value of the whole text.

        Raises:
            UnreadableError: it is no formula.
            OutOfRangeError: it needs more digits.
            ArithmeticError: it is nowhere defined, as 1/0.
        """
        value = self._sum()
        if self._position < len(self._tokens):
            raise UnreadableError
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

    def _checked(self, value: Number) -> Number:
        value = self._math.mpc(value)
        if not self._math.isfinite(value) or abs(value) > self._largest:
            raise OutOfRangeError
        return value

    def _sum(self) -> Number:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnreadableError
        value = self._product()
        while self._peek() in ("+", "-"):
            minus = self._next() == "-"
            term = self._product()
            value = self._checked(value - term if minus else value + term)
        self._depth -= 1
        return value

    def _product(self) -> Number:
        value = self._signed()
        while True:
            if self._take("*"):
                value = self._checked(value * self._signed())
            elif self._take("/"):
                value = self._checked(value / self._signed())
            elif self._starts_factor():
                value = self._checked(value * self._power())
            else:
                return value

    def _starts_factor(self) -> bool:
        token = self._peek()
        return bool(token) and token not in _STOPS and not (token == "|" and self._in_bars)

    def _signed(self) -> Number:
        sign = 1
        while self._peek() in ("+", "-"):
            sign = -sign if self._next() == "-" else sign
        return sign * self._power()

    def _power(self) -> Number:
        base = self._atom()
        while self._take("!"):
            base = self._factorial(base)
        if not self._take("^"):
            return base
        if self._take(r"\circ"):
            return self._checked(base * self._math.pi / 180)
        return self._raise(base, self._argument())

    def _raise(self, base: Number, exponent: Number) -> Number:
        if base == 0:
            if exponent.imag != 0 or exponent.real < 0:
                raise UnreadableError
            return self._math.mpc(1 if exponent == 0 else 0)
        if abs(exponent * self._math.log(base)) > self._math.log(self._largest):
            raise OutOfRangeError
        if base.imag != 0 or base.real > 0 or exponent.imag != 0:
            return self._checked(self._math.power(base, exponent))
        root = _odd_root(exponent.real)
        if root is None:
            self.left_reals = True
            return self._checked(self._math.power(base, exponent))
        odd = int(self._math.nint(exponent.real * root)) % 2
        return self._checked((-1) ** odd * self._math.power(-base.real, exponent.real))

    def _factorial(self, value: Number) -> Number:
        """By the gamma function, so that `(n+1)! = (n+1) n!` also at points that are no whole numbers."""
        if abs(value) > MAX_FACTORIAL:
            raise UnreadableError
        return self._checked(self._math.factorial(value))

    def _argument(self) -> Number:
        """What a command or `^` applies to, with a sign of its own: `10^-3`."""
        return -self._atom() if self._take("-") else self._atom()

    def _atom(self) -> Number:
        token = self._next()
        if token[0].isdigit() or token[0] == ".":
            return self._checked(self._math.mpf(token))
        if token in _CLOSING:
            return self._group(_CLOSING[token])
        if token == "|":
            return self._math.mpc(abs(self._group("|")))
        name = token.removeprefix("\\")
        if token in _WORDS or len(name) < len(token):
            return self._command(name)
        if name.isalpha():
            return self._letter(name)
        raise UnreadableError

    def _group(self, closing: str) -> Number:
        outer, self._in_bars = self._in_bars, closing == "|"
        value = self._sum()
        self._in_bars = outer
        if not self._take(closing):
            raise UnreadableError
        return value

    def _letter(self, name: str) -> Number:
        if name == "e":
            return self._math.mpc(self._math.e)
        if name == "i":
            return self._math.mpc(0, 1)
        return self._variable(name)

    def _variable(self, name: str) -> Number:
        """A number of size 0.3 to 2.3 that belongs to the name and its index."""
        if self._take("_"):
            index = self._next()
            while index.startswith("{") and not index.endswith("}"):
                index += self._next()
            name += "_" + index.strip("{}")
        self.has_variables = True
        draw = derive("point", name, self._point)
        size = self._math.mpf("0.3") + 2 * self._math.mpf(draw) / 2**63
        negative = self._point == LAST_POINT or (self._point > 0 and draw % 2 == 1)
        return self._math.mpc(-size if negative else size)

    def _command(self, name: str) -> Number:
        if name == "pi":
            return self._math.mpc(self._math.pi)
        if name == "frac":
            return self._checked(self._argument() / self._argument())
        if name == "sqrt":
            degree = self._group("]") if self._take("[") else self._math.mpc(2)
            return self._raise(self._argument(), 1 / degree)
        if name == "binom":
            return self._binomial(self._argument(), self._argument())
        if name in _FUNCTIONS:
            return self._function(name)
        if name in _GREEK:
            return self._variable(name)
        raise UnreadableError

    def _binomial(self, top: Number, bottom: Number) -> Number:
        if top not in range(MAX_BINOMIAL + 1) or bottom not in range(MAX_BINOMIAL + 1):
            raise UnreadableError
        return self._checked(self._math.binomial(top, bottom))

    def _function(self, name: str) -> Number:
        one = self._math.mpc(1)
        base = self._argument() if name == "log" and self._take("_") else None
        power = self._argument() if self._take("^") else one
        operand = self._operand()
        if name == "exp":
            return self._raise(self._raise(self._math.mpc(self._math.e), operand), power)
        if name in ("log", "ln"):
            if base is None and name == "log" and self._log_base is not None:
                base = self._math.mpc(self._log_base)
            return self._raise(self._logarithm(operand, base), power)
        inverse = power == -1
        value = getattr(self._math, ("a" if inverse else "") + _TRIGONOMETRIC[name])(operand)
        self.left_reals |= operand.imag == 0 and abs(value.imag) > self._math.mpf("1e-40")
        return self._raise(self._checked(value), one if inverse else power)

    def _operand(self) -> Number:
        """Of a function: `(…)` with its power, or all factors up to a sign: `sin 2x + 1` is `sin(2x) + 1`."""
        if self._peek() in _CLOSING:
            return self._power()
        value = self._signed()
        while self._starts_factor() and self._peek() != "(" and self._peek().strip("\\") not in _FUNCTIONS:
            value = self._checked(value * self._power())
        return value

    def _logarithm(self, value: Number, base: Number | None) -> Number:
        if value == 0 or base in (0, 1):
            raise UnreadableError
        self.left_reals |= bool(value.imag == 0 and value.real < 0)
        natural = self._math.log(value)
        return self._checked(natural if base is None else natural / self._math.log(base))


def _tokenise(text: str) -> list[str]:
    text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text).rstrip()
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > MAX_TOKENS:
            raise UnreadableError
        word = match[1]
        tokens += list(word) if word.isalpha() and word not in _WORDS else [word]
        position = match.end()
    return tokens


def _odd_root(exponent: Number) -> int | None:
    """The odd q for which the exponent is p/q: such a power of a negative number is real."""
    near, nint = 1e-25, numbers().nint
    return next((q for q in (1, 3, 5, 7, 9) if abs(exponent * q - nint(exponent * q)) < near), None)
