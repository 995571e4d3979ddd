"""Written numbers, read exactly: integers, decimals, fractions, mixed numbers, powers of ten.

Only the digits 0-9 count as digits, and a value is a `Fraction`, never a float: `0.1` is one tenth. A decimal
remembers how precisely it was written, because that decides whether it may stand for a number it only rounds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

ENOUGH_DIGITS = 6  # from as many significant digits on, a rounded decimal may stand for the number it rounds
MAX_DIGITS = 300  # of one numeral; longer ones are not read
MAX_PLAIN_CHARS = 60

_PLAIN = re.compile(r"[+-]?(?:[0-9][0-9,]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?")
_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+)"
_SIGN = r"[+-]?\s*"
_POWER_OF_TEN = (
    r"(?:[eE](?P<short>[+-]?[0-9]{1,3})(?![0-9])"
    r"|\s*\*\s*10\s*\^\s*(?:\{\s*(?P<braced>[+-]?\s*[0-9]{1,3})\s*\}|(?P<bare>-?[0-9]{1,3}(?![0-9]))))"
)
_NUMERAL = re.compile(
    rf"(?P<sign>{_SIGN})(?:"
    rf"(?P<whole>{_WHOLE})(?:\s*\\frac\s*\{{\s*(?P<upper>[0-9]+)\s*\}}\s*\{{\s*(?P<lower>[0-9]+)\s*\}}"
    r"|\s+(?P<part>[0-9]+)\s*/\s*(?P<parts>[0-9]+))"
    rf"|(?P<left>{_DECIMAL})\s*/\s*(?P<right>{_DECIMAL})"
    rf"|\\frac\s*\{{\s*(?P<top>{_SIGN}{_DECIMAL})\s*\}}\s*\{{\s*(?P<bottom>{_SIGN}{_DECIMAL})\s*\}}"
    r"|(?P<once>[0-9]*\.[0-9]*)\\overline\s*\{\s*(?P<again>[0-9]+)\s*\}"
    rf"|(?P<number>{_DECIMAL}){_POWER_OF_TEN}?"
    r")"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeral:
    """A number and how it was written."""

    value: Fraction
    places: int | None = None  # of a decimal: its last digit counts 10**-places; None if written exactly
    digits: int = 0  # of a decimal: significant digits
    reduced: bool = True  # False for a fraction such as 6/3 or 2/4 that could still be worked out


def plain_number(text: str) -> Fraction | None:
    """A decimal number with an optional exponent and commas between digits; None for anything else.

    >>> plain_number("-1,000.50"), plain_number("nan") is None
    (Fraction(-2001, 2), True)
    """
    text = text.strip()
    return _plain(text) if len(text) <= MAX_PLAIN_CHARS and _PLAIN.fullmatch(text) else None


def read_numeral(text: str) -> Numeral | None:
    """The number that is the whole text; None if it is anything else.

    >>> read_numeral("-1,234.50").value
    Fraction(-2469, 2)
    >>> read_numeral("2*10^{-3}").value, read_numeral("3 1/2").value
    (Fraction(1, 500), Fraction(7, 2))
    >>> read_numeral("2+3") is None
    True
    """
    numeral, rest = leading_numeral(text.strip())
    return None if rest else numeral


def leading_numeral(text: str) -> tuple[Numeral | None, str]:
    """The longest number at the start of the text, and what follows it; (None, text) without one."""
    match = _NUMERAL.match(text)
    if match is None or match.end() > MAX_DIGITS:
        return None, text
    sign, rest = (-1 if match["sign"].startswith("-") else 1), text[match.end() :]
    if match["number"]:
        exponent = int((match["short"] or match["braced"] or match["bare"] or "0").replace(" ", ""))
        value = sign * _plain(match["number"]) * Fraction(10) ** exponent
        whole, point, decimals = match["number"].replace(",", "").partition(".")
        if not point:
            return Numeral(value=value), rest
        digits = len((whole + decimals).lstrip("0"))
        return Numeral(value=value, places=len(decimals) - exponent, digits=digits), rest
    if match["again"]:  # the repeated digits are that many nines of the last place before them
        last_place = 10 ** len(match["once"].partition(".")[2])
        repeated = Fraction(int(match["again"]), last_place * (10 ** len(match["again"]) - 1))
        return Numeral(value=sign * (_plain("0" + match["once"]) + repeated)), rest
    top = _plain(match["upper"] or match["part"] or match["left"] or match["top"])
    bottom = _plain(match["lower"] or match["parts"] or match["right"] or match["bottom"])
    if bottom == 0 or (match["whole"] and not 0 < top < bottom):  # `2\frac{3}{2}` is as likely a product
        return None, text
    value = top / bottom
    reduced = bottom > 1 and value.numerator == top and value.denominator == bottom
    return Numeral(value=sign * (_plain(match["whole"] or "0") + value), reduced=reduced), rest


def _plain(digits: str) -> Fraction:
    return Fraction(re.sub("[, ]", "", digits).removesuffix("."))


def agree(one: Numeral, other: Numeral) -> bool:
    """Equal in value, or one is the other rounded or cut to at least six significant decimal digits.

    1/3 agrees with 0.333333 but not with 0.333, and 1 with 1.000 but neither with 1.0000001 nor with 0.999999.
    """
    return one.value == other.value or _rounds(one, other) or _rounds(other, one)


def _rounds(short: Numeral, exact: Numeral) -> bool:
    if short.places is None or short.digits < ENOUGH_DIGITS:
        return False
    if exact.places is not None and exact.places <= short.places:
        return False
    scale = Fraction(10) ** short.places
    written, scaled = short.value * scale, exact.value * scale
    return written in (round(scaled), int(scaled))
