"""Whether two formulas of LaTeX are the same, by their values at points."""

import re
from fractions import Fraction
from typing import Any

from prorl.envs.seeds import derive
from prorl.envs.verifiers.expressions import (
    PRECISION,
    UNDEFINED,
    OutOfRangeError,
    Reader,
    UnreadableError,
    context,
)

SPARE_DIGITS = 20  # of these, those that no value may need: magnitudes stay below 10^(precision - spare)
AGREEING_DIGITS = 45  # of the 60 carried
WIDE = 1000  # digits carried where a value such as 2^{2024} needs them
MAX_FACTORIAL = 34
MAX_BINOMIAL, MAX_TOP = 130, 10_000
LAST_POINT = 2

_THOUSANDS = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_STOPS = frozenset(")]}+-*/^!_")
_TRIGONOMETRIC = {name: name for name in ("sin", "cos", "tan", "sec", "csc", "cot", "sinh", "cosh", "tanh")}
_TRIGONOMETRIC |= {"arc" + name: "a" + name for name in ("sin", "cos", "tan")}
_FUNCTIONS = frozenset((*_TRIGONOMETRIC, "exp", "ln", "log"))
_WORDS = _FUNCTIONS | {"sqrt", "pi"}  # also understood without a backslash
_GREEK = re.compile(
    "alpha|beta|gamma|delta|(?:var)?epsilon|zeta|eta|(?:var)?theta|kappa|lambda|mu|nu|xi|rho|sigma|tau|(?:var)?phi|chi"
    "|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi|Psi|Omega|hbar|ell"
)


class _Formula(Reader):
    """A normalised LaTeX formula at a point, in complex numbers.

    `e` and `i` are the constants and every other letter is a variable; `^\\circ` is a degree; odd roots of negative
    numbers are real; the base of a bare `\\log` is the caller's. After `value()`: `has_variables`, and `left_reals`
    if a root or a logarithm of a negative number was taken, so that the point is outside the formula's real domain.
    """

    token = re.compile(r"\s*(\\[A-Za-z]+|[0-9]+(?:\.[0-9]+)?|\.[0-9]+|[A-Za-z]+|[-+*/^_!|()\[\]{}])")
    words, max_tokens, max_depth = _WORDS, 250, 29

    def __init__(self, text: str, point: int, log_base: int | None = None, precision: int = PRECISION):
        """`point` 0 makes all variables positive, `LAST_POINT` all negative, those between mix."""
        super().__init__(_THOUSANDS.sub(lambda number: number[0].replace(",", ""), text))
        self.has_variables = self.left_reals = False
        self._in_bars = False  # whether the next bar closes an absolute value
        self._in_argument = False
        self._point = point
        self._log_base = log_base
        self._math = context(precision)
        self._largest = self._math.mpf(10) ** (precision - SPARE_DIGITS)

    def _checked(self, value: Any) -> Any:
        value = self._math.mpc(value)
        if not self._math.isfinite(value) or abs(value) > self._largest:
            raise OutOfRangeError
        return value

    def _rank(self) -> int:
        return super()._rank() or (2 if self._starts_factor() else 0)

    def _starts_factor(self) -> bool:
        token = self._peek()
        if not token or token in _STOPS or (token == "|" and self._in_bars):
            return False
        before, sign = self._tokens[self._position - 1], self._tokens[max(0, self._position - 2)]
        return not (token[0].isdigit() and before[0].isdigit() and sign != "^")  # `3 4` is no product

    def _operand(self) -> Any:
        sign = 1
        while self._peek() in ("+", "-"):
            sign = -sign if self._next() == "-" else sign
        return sign * self._power()

    def _power(self) -> Any:
        base = self._atom()
        while self._take("!"):
            if abs(base) > MAX_FACTORIAL:
                raise UnreadableError
            # The gamma function: (n+1)! = (n+1) n! for all n.
            base = self._checked(self._math.factorial(base))
        if not self._take("^"):
            return base
        if self._take(r"\circ"):
            return self._checked(base * self._math.pi / 180)
        return self._raise(base, self._argument())

    def _raise(self, base: Any, exponent: Any) -> Any:
        if base == 0:
            if exponent.imag != 0 or exponent.real < 0:
                raise UnreadableError
            return self._math.mpc(1 if exponent == 0 else 0)
        if abs(exponent * self._math.log(base)) > self._math.log(self._largest):
            raise OutOfRangeError
        if base.imag != 0 or base.real > 0 or exponent.imag != 0:
            return self._checked(self._math.power(base, exponent))
        nint = context().nint
        near = (q for q in (1, 3, 5, 7, 9) if abs(exponent.real * q - nint(exponent.real * q)) < 1e-25)
        root = next(near, None)  # the odd q for which the exponent is p/q
        if root is None:
            self.left_reals = True
            return self._checked(self._math.power(base, exponent))
        odd = int(self._math.nint(exponent.real * root)) % 2
        return self._checked((-1) ** odd * self._math.power(-base.real, exponent.real))

    def _argument(self) -> Any:
        """What a command or `^` applies to, with a sign of its own: `10^-3`. A letter has no index there."""
        sign, self._in_argument = -1 if self._take("-") else 1, True
        value = sign * self._atom()
        self._in_argument = False
        return value

    def _atom(self) -> Any:
        token = self._next()
        if token[0].isdigit() or token[0] == ".":
            return self._checked(self._math.mpf(token))
        if token in _CLOSING:
            return self._group(_CLOSING[token])
        if token == "|":
            return self._math.mpc(abs(self._group("|")))
        if token in _WORDS or token[0] == "\\":
            return self._command(token.removeprefix("\\"))
        if token in ("e", "i"):
            return self._math.mpc(self._math.e if token == "e" else 1j)
        if token.isalpha():
            return self._variable(token)
        raise UnreadableError

    def _group(self, closing: str) -> Any:
        outer, self._in_bars = self._in_bars, closing == "|"
        value = super()._group(closing)
        self._in_bars = outer
        return value

    def _variable(self, name: str) -> Any:
        """A number of size 0.3 to 2.3 that belongs to the name and its index."""
        # `x1` is `x_1` and `CO2` no `C2O`, but `n2^n` is a product
        power = self._tokens[self._position + 1 :][:1] == ["^"]
        if self._take("_") or (self._peek()[:1].isdigit() and not power and not self._in_argument):
            index = self._next()
            while index.startswith("{") and not index.endswith("}"):
                index += self._next()
            name += "_" + index.strip("{}")
        self.has_variables = True
        draw = derive("point", name, self._point)
        size = self._math.mpf("0.3") + 2 * self._math.mpf(draw) / 2**63
        negative = self._point == LAST_POINT or (self._point > 0 and draw % 2 == 1)
        return self._math.mpc(-size if negative else size)

    def _command(self, name: str) -> Any:
        if name == "pi":
            return self._math.mpc(self._math.pi)
        if name == "frac":
            return self._checked(self._argument() / self._argument())
        if name == "sqrt":
            degree = self._group("]") if self._take("[") else self._math.mpc(2)
            return self._raise(self._argument(), 1 / degree)
        if name == "binom":
            top, bottom = self._argument(), self._argument()
            if abs(top) > MAX_TOP or abs(bottom) > MAX_BINOMIAL:  # the gamma function's, for letters
                raise UnreadableError
            return self._checked(self._math.binomial(top, bottom))
        if name in _FUNCTIONS:
            return self._function(name)
        if _GREEK.fullmatch(name):
            return self._variable(name)
        raise UnreadableError

    def _function(self, name: str) -> Any:
        one = self._math.mpc(1)
        base = self._argument() if name == "log" and self._take("_") else None
        power = self._argument() if self._take("^") else one
        operand = self._function_operand()
        if name == "exp":
            return self._raise(self._raise(self._math.mpc(self._math.e), operand), power)
        if name in ("log", "ln"):
            base = self._log_base if base is None and name == "log" else base
            return self._raise(self._logarithm(operand, base), power)
        inverse = power == -1
        if inverse and name.startswith("arc"):
            raise UnreadableError
        value = getattr(self._math, ("a" if inverse else "") + _TRIGONOMETRIC[name])(operand)
        self.left_reals |= operand.imag == 0 and abs(value.imag) > self._math.mpf("1e-40")
        return self._raise(self._checked(value), one if inverse else power)

    def _function_operand(self) -> Any:
        """`(…)` with its power, or all factors up to a sign: `sin 2x + 1` is `sin(2x) + 1`."""
        if self._peek() in _CLOSING:
            return self._power()
        value = self._operand()
        while self._starts_factor() and self._peek() != "(" and self._peek().strip("\\") not in _FUNCTIONS:
            value = self._checked(value * self._power())
        return value

    def _logarithm(self, value: Any, base: Any) -> Any:
        if value == 0 or base in (0, 1):
            raise UnreadableError
        self.left_reals |= bool(value.imag == 0 and value.real < 0)
        natural = self._math.log(value)
        return self._checked(natural if base is None else natural / self._math.log(base))


def same_formula(one: str, other: str) -> bool | None:
    """Whether two normalised formulas are equal, by their values; None if one is no formula that we can read.

    Formulas that agree at random points to 45 digits are the same (Schwartz and Zippel). Some points are negative, so
    that `x` is not `|x|`; a point at which one formula is not real says nothing, as long as there is another. A
    logarithm without a base is the natural one or that of base ten, whichever makes both sides equal.
    """
    bases = (None, 10) if "log" in one or "log" in other else (None,)
    for precision in (PRECISION, WIDE):
        try:
            return any(_same(one, other, base, precision) for base in bases)
        except OutOfRangeError:
            continue
        except UNDEFINED:
            break
    return None


def constant(formula: str) -> Fraction | None:
    """The real constant that the formula is, to 45 decimals; None if it is none."""
    exact = context()
    try:
        reader = _Formula(formula, 0)
        value = reader.value()
        if reader.has_variables or not _close(value, value.real):
            return None
        scaled = exact.nint(value.real * exact.mpf(10) ** AGREEING_DIGITS)
        return Fraction(int(scaled), 10**AGREEING_DIGITS)
    except UNDEFINED:
        return None


def ratio(one: tuple[str, str], other: tuple[str, str]) -> float | None:
    """The c with `left - right` of the first = c times that of the second: 0 without one, None if unreadable."""
    upper, lower = (f"({left})-({right})" for left, right in (one, other))
    try:
        ratios = [_Formula(upper, p).value() / _Formula(lower, p).value() for p in range(LAST_POINT + 1)]
        first = ratios[0].real
        return float(first) if all(_close(first, each) for each in ratios) else 0.0
    except UNDEFINED:
        return None


def _same(one: str, other: str, log_base: int | None, precision: int) -> bool:
    inside: list[bool] = []
    outside: list[bool] = []
    for point in range(LAST_POINT + 1):
        left, right = (_Formula(text, point, log_base, precision) for text in (one, other))
        values = left.value(), right.value()
        if precision == PRECISION and 0 < max(map(abs, values)) < 1e-20:
            raise OutOfRangeError  # what is left of these values may be noise
        equal = _close(*values, precision)
        if not left.has_variables and not right.has_variables:
            return equal
        (outside if left.left_reals or right.left_reals else inside).append(equal)
    return all(inside or outside)


def _close(one: Any, other: Any, precision: int = PRECISION) -> bool:
    scale = max(1, abs(one), abs(other))
    agreeing = precision - PRECISION + AGREEING_DIGITS
    return bool(abs(one - other) <= scale * context(precision).mpf(10) ** -agreeing)
