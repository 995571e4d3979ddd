"""Words, sentences and paragraphs by regular expression: no models, no downloads, linear in the text.

A word is a run of letters and digits; an apostrophe inside joins ("don't" is one word), a hyphen does not. Scripts
that are written without spaces count one word per character.
"""

from __future__ import annotations

import re

DIVIDER = "***"
TWO_DIVIDERS = "******"

_SPACELESS = (  # Thai, Lao, Burmese, Khmer, kana, Han
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_MARKS = (  # signs that belong to the letter before them, which `\w` leaves out
    "\u0300-\u036f\u05b0-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u200c\u200d"
)
_RUN = rf"(?:(?![{_SPACELESS}])[\w{_MARKS}])+"
_WORD = re.compile(rf"[{_SPACELESS}]|{_RUN}(?:['’]{_RUN})*")
_TOKEN = re.compile(r"\w(?:\S*\w)?")

_BLANK_LINE = re.compile(r"\n\s*\n")
_BLOCK = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t])")
_STOP = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]*_]*+(?=\s|$)|[。！？।؟۔]+[”’」』)\]]*")
_ABBREVIATED = "mr mrs ms dr prof sr jr st vs fig approx dept e.g i.e p.s p.p.s a.m p.m u.s u.k"
_ABBREVIATIONS = frozenset(_ABBREVIATED.split())
_LOOK_BACK = 16  # characters before a full stop that say whether it ends a sentence
_INITIAL = re.compile(r"(?:^|\s)(?!I$)[A-Z]$")


def words(text: str) -> list[str]:
    """The words in order, case folded.

    >>> words("Don't stop: well-known _fact_!")
    ["don't", 'stop', 'well', 'known', 'fact']
    """
    found = (token.strip("_") for token in _WORD.findall(text.casefold()))
    return [token for token in found if any(map(str.isalnum, token))]


def has_words(text: str) -> bool:
    """Whether there is at least one letter or digit."""
    return any(map(str.isalnum, text))


def tokens(text: str) -> list[str]:
    """What stands between white space, case kept, without the signs around it: hyphenated words stay whole.

    >>> tokens("(COVID-19) is *BAD*.")
    ['COVID-19', 'is', 'BAD']
    """
    return _TOKEN.findall(text)


def sentences(text: str) -> list[str]:
    """The sentences in order; the end of a paragraph or of a list item ends a sentence, a line break does not.

    >>> sentences("Dr. No paid $3.50. Really?\\n\\nA heading\\n1. One item")
    ['Dr. No paid $3.50.', 'Really?', 'A heading', '1. One item']
    """
    found: list[str] = []
    for block in _BLOCK.split(text):
        start = 0
        for stop in _STOP.finditer(block):
            if not _abbreviates(block, start, stop):
                found.append(block[start : stop.end()])
                start = stop.end()
        found.append(block[start:])
    return [sentence.strip() for sentence in found if has_words(sentence)]


def paragraphs(text: str) -> list[str]:
    """What stands between blank lines, empty pieces left out."""
    return [piece.strip() for piece in _BLANK_LINE.split(text) if piece.strip()]


def divided(text: str, divider: str) -> list[str] | None:
    """The parts between dividers, one before the first or after the last being optional; None if one is empty."""
    parts = [part.strip() for part in text.split(divider)]
    if len(parts) > 1 and not parts[0]:
        parts = parts[1:]
    if len(parts) > 1 and not parts[-1]:
        parts = parts[:-1]
    return parts if all(map(has_words, parts)) else None


def folded(text: str) -> str:
    """The text with case and white space folded, for comparing copies."""
    return " ".join(text.casefold().split())


def _abbreviates(block: str, start: int, stop: re.Match[str]) -> bool:
    """Whether a full stop belongs to an abbreviation, an initial or the number of a list item."""
    if stop.group() != ".":
        return False
    before = block[max(start, stop.start() - _LOOK_BACK) : stop.start()]
    if before.strip().isdigit():
        return stop.start() - start < _LOOK_BACK
    last = before.split()[-1] if before.split() else ""
    return last.lstrip("(\"'“*_").casefold() in _ABBREVIATIONS or _INITIAL.search(before) is not None
