"""Multiple choice: which option an answer names, and a shuffle of the options that is the same in every run.

An answer names one existing option or none: by its letter, by its letter and its text, or by its exact text.
A letter with the text of another option contradicts itself and names none.
"""

import re
from collections.abc import Sequence
from string import ascii_uppercase

from prorl.envs.seeds import generator
from prorl.envs.verifiers.latex import compact, normalised

MAX_CHARS = 2000

_INTRODUCTION = re.compile(
    r"(?i)^(?:the\s+)?(?:(?:correct|final)\s+)?(?:answer|option|choice)(?:\s+is)?\s*:?\s*"
)
_LETTER = re.compile(r"[(\[]\s*([A-Za-z])\s*[)\]]|([A-Za-z])(?=[.):]|$)")
_EMPHASIS = re.compile(r"\*\*|__")
_OF_OTHERS = re.compile(
    r"(?i)\b(?:all|none|both|neither|any)\b.*\b(?:above|these|of them)\b|\b[A-D] and [A-D]\b"
)


def choice_of(answer: str, options: Sequence[str]) -> str | None:
    r"""The letter of the option that an extracted answer names; None if it names none, or several.

    >>> choice_of(r"\text{(B)}", ["2 m/s", "4 m/s"]), choice_of("B. 4 m/s", ["2 m/s", "4 m/s"])
    ('B', 'B')
    >>> choice_of("B. 2 m/s", ["2 m/s", "4 m/s"]), choice_of("A or B", ["2 m/s", "4 m/s"])
    (None, None)
    """
    if len(answer) > MAX_CHARS or len(options) > len(ascii_uppercase):
        return None
    said = normalised(_EMPHASIS.sub("", answer)).strip()
    text = _INTRODUCTION.sub("", said).strip()
    if text != said and (letter := _named(said, options)):  # an option that begins like an introduction
        return letter
    if match := _LETTER.match(text):
        letter, rest = (match[1] or match[2]).upper(), text[match.end() :].lstrip(" .):")
        position = ascii_uppercase.index(letter)
        if position < len(options) and (not rest or _folded(rest) == _folded(options[position])):
            return letter
    return _named(text, options) if text else None


def _named(said: str, options: Sequence[str]) -> str | None:
    """The letter of the one option that this text is, to the letter or whatever its case."""
    stated, *known = map(compact, map(normalised, (said, *options)))
    for fold in (str, str.casefold):
        found = [place for place, option in enumerate(known) if fold(option) == fold(stated)]
        if len(found) == 1:
            return ascii_uppercase[found[0]]
    return None


def shuffled(options: Sequence[str], key: str) -> tuple[int, ...]:
    """A permutation that depends on the row's key alone: position i shows `options[permutation[i]]`.

    Options that speak of the others ("none of the above", "both A and B") keep everything in place, because
    they would lose their meaning.
    """
    order = list(range(len(options)))
    if not any(_OF_OTHERS.search(option) for option in options):
        generator("options", key).shuffle(order)
    return tuple(order)


def _folded(text: str) -> str:
    return compact(normalised(text)).casefold()
