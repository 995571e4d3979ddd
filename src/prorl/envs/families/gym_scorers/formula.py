"""Propositional logic: does a formula that a model wrote follow from the premises?

The library evaluates over every name in the answer, so thirty invented names cost it 2^30 evaluations; here only
the question's own variables (at most four) are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

Entry = Mapping[str, Any]
World = Mapping[str, bool]
Formula = Callable[[World], bool]

MAX_FORMULA_CHARS = 200
_TOKEN = re.compile(r"\s*([A-Z]|[()¬∧∨→↔])")
_LOOSEST_FIRST = ("↔", "→", "∨", "∧")
_JOIN: Mapping[str, Callable[[bool, bool], bool]] = {
    "↔": lambda left, right: left == right,
    "→": lambda left, right: not left or right,
    "∨": lambda left, right: left or right,
    "∧": lambda left, right: left and right,
}


def conclusion(entry: Entry, answer: str) -> float:
    """Whether the answer follows from `metadata.premises` without being a tautology or a bare variable.

    The two exceptions are the library's; it calls them trivial and pays a quarter, here they earn nothing.
    """
    variables = entry["metadata"]["variables"]
    claim = parse(answer, variables)
    if claim is None or _is_atom(answer):
        return 0.0
    worlds = _worlds(variables)
    allowed = _models(entry)
    return float(all(map(claim, allowed)) and not all(map(claim, worlds)))


def consistent(entry: Entry) -> bool:
    """Whether the premises can all hold; from a contradiction everything follows."""
    return bool(_models(entry))


def parse(text: str, variables: list[str]) -> Formula | None:
    """The formula as a function of a world; None if it is malformed, too long or names other variables.

    `¬` binds tightest, then `∧`, `∨`, `→`, `↔`; equal operators group to the left, as in the library.
    """
    tokens = _tokens(text)
    if tokens is None or any(token.isalpha() and token not in variables for token in tokens):
        return None
    formula, end = _binary(tokens, 0, 0)
    return formula if end == len(tokens) else None


def _tokens(text: str) -> list[str] | None:
    text = text.strip()
    if len(text) > MAX_FORMULA_CHARS:
        return None
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return None
        tokens.append(match[1])
        position = match.end()
    return tokens


def _binary(tokens: list[str], start: int, rank: int) -> tuple[Formula | None, int]:
    """The formula that begins at `start`, of operators at least as tight as `rank`, and where it ends."""
    if rank == len(_LOOSEST_FIRST):
        return _unary(tokens, start)
    left, end = _binary(tokens, start, rank + 1)
    while left and end < len(tokens) and tokens[end] == _LOOSEST_FIRST[rank]:
        right, end = _binary(tokens, end + 1, rank + 1)
        left = _joined(_JOIN[_LOOSEST_FIRST[rank]], left, right) if right else None
    return left, end


def _unary(tokens: list[str], start: int) -> tuple[Formula | None, int]:
    if start >= len(tokens):
        return None, start
    token = tokens[start]
    if token.isalpha():
        return (lambda world: world[token]), start + 1
    if token == "¬":
        inner, end = _unary(tokens, start + 1)
        return (_negated(inner) if inner else None), end
    if token == "(":
        inner, end = _binary(tokens, start + 1, 0)
        closed = end < len(tokens) and tokens[end] == ")"
        return (inner if closed else None), end + 1
    return None, start


def _negated(inner: Formula) -> Formula:
    return lambda world: not inner(world)


def _joined(join: Callable[[bool, bool], bool], left: Formula, right: Formula) -> Formula:
    return lambda world: join(left(world), right(world))


def _is_atom(text: str) -> bool:
    return len(text.replace("(", "").replace(")", "").strip()) == 1


def _worlds(variables: list[str]) -> list[World]:
    return [
        dict(zip(variables, values, strict=True)) for values in product((False, True), repeat=len(variables))
    ]


def _models(entry: Entry) -> list[World]:
    variables = entry["metadata"]["variables"]
    premises = [parse(premise, variables) for premise in entry["metadata"]["premises"]]
    return [
        world
        for world in _worlds(variables)
        if all(premise is not None and premise(world) for premise in premises)
    ]
