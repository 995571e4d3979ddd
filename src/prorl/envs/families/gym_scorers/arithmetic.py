"""Number games: an expression must use the given numbers, each once, and hit the target exactly."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from prorl.envs.families.numbers import evaluate, tokenise

Entry = Mapping[str, Any]


def countdown(entry: Entry, answer: str) -> float:
    """`metadata.target` from `metadata.numbers`."""
    return _hits(answer, entry["metadata"]["numbers"], entry["metadata"]["target"])


def twenty_four(entry: Entry, answer: str) -> float:
    """24 from `metadata.numbers`; the library accepts any four small numbers."""
    return _hits(answer, entry["metadata"]["numbers"], 24)


def _hits(answer: str, numbers: list[int], target: int) -> float:
    tokens = tokenise(answer)
    if tokens is None or sorted(int(t) for t in tokens if t.isdigit()) != sorted(numbers):
        return 0.0
    return float(evaluate(_without_signs(tokens)) == target)


def _without_signs(tokens: list[str]) -> list[str]:
    """A minus that has nothing on its left becomes a difference from 0: `-a*b` is `0-a*b`."""
    signed: list[str] = []
    for before, token in pairwise(["(", *tokens]):
        signed += ["0", "-"] if token == "-" and before == "(" else [token]
    return signed
