"""Checks on the number of words, sentences and paragraphs."""

from __future__ import annotations

import re

from prorl.envs.verifiers.instructions.arguments import Relation, holds
from prorl.envs.verifiers.instructions.text import DIVIDER, divided, paragraphs, sentences, words

_FIRST = re.compile(r"\w(?:[\w'’-]*\w)?")


def number_words(response: str, *, num_words: int, relation: Relation) -> bool:
    """The number of words."""
    return holds(len(words(response)), relation, num_words)


def word_range(response: str, *, min_words: int, max_words: int) -> bool:
    """The number of words lies in a range, both ends included."""
    return min_words <= len(words(response)) <= max_words


def number_sentences(response: str, *, num_sentences: int, relation: Relation) -> bool:
    """The number of sentences."""
    return holds(len(sentences(response)), relation, num_sentences)


def number_paragraphs(response: str, *, num_paragraphs: int) -> bool:
    """Exactly this many parts separated by `***`, none of them empty."""
    parts = divided(response, DIVIDER)
    return parts is not None and len(parts) == num_paragraphs


def two_divided(response: str) -> bool:
    """Two paragraphs separated by `***`."""
    return number_paragraphs(response, num_paragraphs=2)


def two_spaced(response: str) -> bool:
    """Two paragraphs separated by a blank line."""
    return len(paragraphs(response)) == 2


def nth_first_word(response: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly this many paragraphs between blank lines; the nth, counted from 1, begins with the word."""
    found = paragraphs(response)
    if len(found) != num_paragraphs:
        return False
    return begins_with(found[nth_paragraph - 1], first_word)


def begins_with(passage: str, word: str) -> bool:
    """Whether the first word is this one, whatever its case and the signs before it; "it" is not "it's"."""
    first = _FIRST.search(passage)
    return first is not None and first.group().casefold() == word.casefold()
