"""The arguments of an instruction: what each may be, read from the loose JSON of the data sets.

A reader returns the clean value or raises a ValueError that says what the value should have been. A null counts as
absent, a zero does not; whole numbers may arrive as floats, because a column with nulls in it does that to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from prorl.envs.errors import ProrlError
from prorl.envs.verifiers.instructions.language import LANGUAGES

Relation = Literal["less than", "at least"]
Reader = Callable[[Any], Any]

MAX_COUNT = 1_000_000


class UnknownInstructionError(ProrlError):
    """An instruction that nobody could check: unknown id, or arguments that are missing or ask for nothing."""


def holds(count: int, relation: Relation, threshold: int) -> bool:
    """Whether a count stands in the relation to the threshold."""
    return count < threshold if relation == "less than" else count >= threshold


def whole(value: Any) -> int:
    """A count, zero included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value % 1:
        raise ValueError("must be a whole number")
    if not 0 <= value <= MAX_COUNT:
        raise ValueError(f"must lie between 0 and {MAX_COUNT}")
    return int(value)


def positive(value: Any) -> int:
    """A count of at least one."""
    count = whole(value)
    if count == 0:
        raise ValueError("must be at least 1")
    return count


def relation(value: Any) -> Relation:
    """One of IFEval's two relations; any other is refused rather than guessed."""
    if value == "less than":
        return "less than"
    if value == "at least":
        return "at least"
    raise ValueError("must be 'less than' or 'at least'")


def text(value: Any) -> str:
    """A phrase with something in it, stripped; some data sets put it into a list of one."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    return value.strip()


def verbatim(value: Any) -> str:
    """A text of which every character counts, positions included: not stripped."""
    text(value)
    return str(value)


def texts(value: Any) -> tuple[str, ...]:
    """One or more phrases."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("must be a list of texts that is not empty")
    return tuple(text(item) for item in value)


def letter(value: Any) -> str:
    """A single visible character; the data also ask for signs such as # and !."""
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("must be a single character")
    return value.strip()


def language(value: Any) -> str:
    """The ISO 639-1 code of a language that can be told apart."""
    if not isinstance(value, str) or value not in LANGUAGES:
        raise ValueError(f"must be one of {', '.join(sorted(LANGUAGES))}")
    return value
