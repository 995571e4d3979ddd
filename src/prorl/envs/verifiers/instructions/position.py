"""Checks on what stands at the beginning, at the end, or at a given place."""

from __future__ import annotations

import re

from prorl.envs.verifiers.instructions.length import begins_with
from prorl.envs.verifiers.instructions.text import has_words, sentences, words

_QUOTES = {'"': '"', "“": "”"}
_LETTERS_WITH_DOTS = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?")


def end_checker(response: str, *, end_phrase: str) -> bool:
    """The response ends with this phrase; only quotation marks may follow."""
    phrase, ending = end_phrase.casefold(), response.rstrip().casefold()
    if not ending.endswith(phrase):
        ending = ending.rstrip('"”').rstrip()
    joined = phrase[0].isalnum() and ending[-len(phrase) - 1 : -len(phrase)].isalnum()
    return ending.endswith(phrase) and not joined


def quotation(response: str) -> bool:
    """The entire response stands between double quotation marks, straight or curly."""
    body = response.strip()
    return len(body) > 2 and _QUOTES.get(body[0]) == body[-1] and has_words(body)


def postscript(response: str, *, postscript_marker: str) -> bool:
    """The marker occurs with a text after it; white space between the letters of P.S. and P.P.S. is allowed."""
    marker = re.escape(postscript_marker)
    if _LETTERS_WITH_DOTS.fullmatch(postscript_marker):
        marker = r"\.\s?".join(postscript_marker.replace(".", "")) + r"\.?"
    found = re.search(rf"(?<![\w.]){marker}", response, flags=re.IGNORECASE)
    return found is not None and has_words(response[found.end() :])


def first_word(response: str, *, first_word: str) -> bool:
    """The response begins with the word."""
    return begins_with(response, first_word)


def first_words(response: str, *, first_word: str) -> bool:
    """Every sentence begins with the word."""
    found = sentences(response)
    return bool(found) and all(begins_with(sentence, first_word) for sentence in found)


def last_word(response: str, *, last_word: str) -> bool:
    """The response ends with the word, whatever signs follow it."""
    return words(response)[-1:] == words(last_word)[-1:]


def last_words(response: str, *, last_word: str) -> bool:
    """Every sentence ends with the word."""
    found = sentences(response)
    return bool(found) and all(words(sentence)[-1:] == words(last_word)[-1:] for sentence in found)


def same_first_and_last(response: str) -> bool:
    """Two words or more, the first and the last the same, and nothing after the last, not even punctuation."""
    found = words(response)
    return len(found) >= 2 and found[0] == found[-1] and response.rstrip()[-1].isalnum()


def word_at(response: str, *, keyword: str, n: int, m: int) -> bool:
    """The m-th word of the n-th sentence, both counted from 1, is the keyword."""
    found = sentences(response)
    return len(found) >= n and words(found[n - 1])[m - 1 : m] == words(keyword)[:1]
