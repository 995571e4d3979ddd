"""Exact values of small arithmetic expressions that a model wrote: a tokeniser and an evaluator, never `eval`.

Work is bounded on any input: at most 100 characters, numbers of at most four digits, no recursion.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

MAX_EXPRESSION_CHARS = 100
_TOKEN = re.compile(r"[1-9][0-9]{0,3}|[-+*/()]")


def tokenise(text: str) -> list[str] | None:
    """Numbers without leading zeros, operators and parentheses; None for anything else or too long."""
    if len(text) > MAX_EXPRESSION_CHARS:
        return None
    tokens: list[str] = []
    for chunk in text.split():
        position = 0
        while position < len(chunk):
            match = _TOKEN.match(chunk, position)
            if match is None:
                return None
            tokens.append(match[0])
            position = match.end()
    return tokens


def evaluate(tokens: Sequence[str]) -> Fraction | None:
    """The exact value of an infix expression; None if it is malformed or divides by zero.

    Operators of equal rank go from left to right; there is no sign before a number.
    """
    values: list[Fraction] = []
    pending: list[str] = []
    want_number = True
    for token in tokens:
        if want_number != (token.isdigit() or token == "("):
            return None
        if token.isdigit():
            values.append(Fraction(int(token)))
            want_number = False
        elif token == "(":
            pending.append(token)
        else:
            while pending and pending[-1] != "(" and _rank(pending[-1]) >= _rank(token):
                if not _reduce(values, pending.pop()):
                    return None
            if token != ")":
                pending.append(token)
                want_number = True
            elif not pending or pending.pop() != "(":
                return None
    if want_number:
        return None
    while pending:
        if pending[-1] == "(" or not _reduce(values, pending.pop()):
            return None
    return values[0]


def _rank(operator: str) -> int:
    return {")": 0, "+": 1, "-": 1, "*": 2, "/": 2}[operator]


def _reduce(values: list[Fraction], operator: str) -> bool:
    """Replace the two topmost values by their result; False when that would divide by zero."""
    right, left = values.pop(), values.pop()
    if operator == "/":
        if right == 0:
            return False
        values.append(left / right)
    else:
        values.append({"+": left + right, "-": left - right, "*": left * right}[operator])
    return True
