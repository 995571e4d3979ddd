"""Checks on case, language and single signs of punctuation, over the entire response."""

from __future__ import annotations

from prorl.envs.verifiers.instructions.language import detect

COMMAS = ",，、،﹐"
DOTS = ".．…"
EXCLAMATIONS = "!！"


def response_language(response: str, *, language: str) -> bool:
    """The response is in this language; one that cannot be told apart is not."""
    return detect(response) == language


def english_capital(response: str) -> bool:
    """English without a lower-case letter."""
    return response.isupper() and detect(response) == "en"


def english_lowercase(response: str) -> bool:
    """English without a capital letter."""
    return response.islower() and detect(response) == "en"


def no_comma(response: str) -> bool:
    """No comma of any script."""
    return _without(response, COMMAS)


def no_dot(response: str) -> bool:
    """No full stop, not even inside a number, and no ellipsis."""
    return _without(response, DOTS)


def no_exclamation(response: str) -> bool:
    """No exclamation mark."""
    return _without(response, EXCLAMATIONS)


def _without(response: str, signs: str) -> bool:
    return not any(sign in response for sign in signs)
