"""How numbers of a study are said in sentences and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from prorl.rollout.validation import Part

PARTS: Mapping[Part, str] = MappingProxyType({"test": "held-out", "ood": "out of domain"})
"""The parts of a study that its averages are over, and what people call them; a ladder is a picture of its own."""


def percent(share: float) -> str:
    """`0.2345` → `23.5%`."""
    return f"{share:.1%}"


def points(gain: float) -> str:
    """A difference of shares in percentage points with its sign: `+3.2`."""
    return f"{100 * gain:+.1f}".replace("-", "−")


def count(number: int, noun: str) -> str:
    """`1 problem`, `3 problems`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listing(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
