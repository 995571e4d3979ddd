"""The root of every failure that is said to the user in one sentence with the way out."""

from collections.abc import Iterable
from difflib import get_close_matches


class ProrlError(Exception):
    """An expected failure; its text is all that the command line prints of it."""


class UsageError(ProrlError, ValueError):
    """A task, a function or an argument that cannot be used so."""


def nearest(word: str, known: Iterable[str], otherwise: str, *, cutoff: float = 0.6) -> str:
    """A hint where a word is not known: the nearest one that is, or else `otherwise`."""
    near = get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else otherwise
