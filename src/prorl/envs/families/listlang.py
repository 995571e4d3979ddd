"""A tiny language of list programs: operators over lists of small integers, applied from left to right.

Programs come from a model, so the interpreter is bounded in operators, steps, list length and integer size.
Whatever the text, it ends quickly and raises nothing but `ListLangError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

MAX_OPS = 16
MAX_LENGTH = 64
MAX_VALUE = 10**6
MAX_STEPS = 1_000  # one per operator and one per list item that it reads

_NUMBER = re.compile(r"-?[0-9]{1,7}")


class ListLangError(ValueError):
    """A program or a list that is not of this language, or a run that leaves its bounds."""


def _only(value: int | None) -> tuple[int, ...]:
    return () if value is None else (value,)


OPS: Mapping[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = MappingProxyType(
    {
        "neg": lambda xs: tuple(-x for x in xs),
        "inc": lambda xs: tuple(x + 1 for x in xs),
        "dbl": lambda xs: tuple(2 * x for x in xs),
        "rev": lambda xs: xs[::-1],
        "sort": lambda xs: tuple(sorted(xs)),
        "uniq": lambda xs: tuple(dict.fromkeys(xs)),
        "tail": lambda xs: xs[1:],
        "init": lambda xs: xs[:-1],
        "even": lambda xs: tuple(x for x in xs if x % 2 == 0),
        "odd": lambda xs: tuple(x for x in xs if x % 2 == 1),
        "head": lambda xs: xs[:1],
        "max": lambda xs: _only(max(xs, default=None)),
        "min": lambda xs: _only(min(xs, default=None)),
        "sum": lambda xs: (sum(xs),),
    }
)


def parse_program(text: str) -> tuple[str, ...]:
    """Operator names separated by white space.

    Raises:
        ListLangError: no operator, too many, or an unknown one.
    """
    program = tuple(text.split())
    if not 1 <= len(program) <= MAX_OPS:
        raise ListLangError(f"a program has 1 to {MAX_OPS} operators, not {len(program)}")
    unknown = next((name for name in program if name not in OPS), None)
    if unknown is not None:
        raise ListLangError(f"no operator {unknown[:20]!r}; there are {' '.join(OPS)}")
    return program


def parse_values(text: str) -> tuple[int, ...]:
    """Integers separated by white space or commas, with or without brackets around: `2 7`, `[2, 7]`.

    Raises:
        ListLangError: something that is no integer of at most seven digits, or more than `MAX_LENGTH` of them.
    """
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        inner = inner[1:-1]
    parts = inner.replace(",", " ").split()
    if len(parts) > MAX_LENGTH or not all(_NUMBER.fullmatch(part) for part in parts):
        raise ListLangError(f"a list is at most {MAX_LENGTH} small integers separated by spaces")
    return tuple(int(part) for part in parts)


def show(values: Sequence[int]) -> str:
    """The text that `parse_values` reads back."""
    return " ".join(map(str, values))


def trace(program: Sequence[str], values: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The list after each operator; the last one is the result.

    Raises:
        ListLangError: the run leaves a bound.
    """
    state = tuple(values)
    _check(state)
    steps = 0
    states = []
    for name in program:
        steps += 1 + len(state)
        if steps > MAX_STEPS:
            raise ListLangError(f"the program takes more than {MAX_STEPS} steps")
        state = OPS[name](state)
        _check(state)
        states.append(state)
    return tuple(states)


def run(program: Sequence[str], values: Sequence[int]) -> tuple[int, ...]:
    """The result of a parsed, non-empty program; raises as `trace` does."""
    return trace(program, values)[-1]


def _check(state: tuple[int, ...]) -> None:
    if len(state) > MAX_LENGTH or any(abs(value) > MAX_VALUE for value in state):
        raise ListLangError(f"a list may hold {MAX_LENGTH} integers of magnitude {MAX_VALUE} at most")
