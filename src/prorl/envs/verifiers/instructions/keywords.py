"""Checks on which words occur, and how often.

As in IFEval a required keyword counts wherever its letters occur ("mother" in "mothers"), so that inflected forms
count; a forbidden one must stand as a word of its own. Keywords are literal text here, never patterns.
"""

from __future__ import annotations

import re
from itertools import pairwise

from prorl.envs.verifiers.instructions.arguments import Relation, holds
from prorl.envs.verifiers.instructions.text import words


def occurrences(response: str, keyword: str) -> int:
    """How often a keyword occurs, whatever the case and the white space inside it."""
    return len(re.findall(_literal(keyword), response, flags=re.IGNORECASE))


def existence(response: str, *, keywords: tuple[str, ...]) -> bool:
    """Every keyword occurs."""
    return all(occurrences(response, keyword) for keyword in keywords)


def frequency(response: str, *, keyword: str, frequency: int, relation: Relation) -> bool:
    """The keyword occurs less often than, or at least as often as, asked."""
    return holds(occurrences(response, keyword), relation, frequency)


def forbidden_words(response: str, *, forbidden_words: tuple[str, ...]) -> bool:
    """None of the words occurs as a word of its own."""
    return not any(_stands_alone(response, word) for word in forbidden_words)


def exclude_word(response: str, *, keyword: str) -> bool:
    """The word does not occur as a word of its own."""
    return not _stands_alone(response, keyword)


def word_once(response: str, *, keyword: str) -> bool:
    """The keyword occurs exactly once."""
    return occurrences(response, keyword) == 1


def once_and_twice(response: str, *, keyword1: str, keyword2: str) -> bool:
    """The first keyword occurs exactly once, the second exactly twice."""
    return occurrences(response, keyword1) == 1 and occurrences(response, keyword2) == 2


def five_keywords(
    response: str, *, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str
) -> bool:
    """IFBench's `count:keywords_multiple`: they occur 1, 2, 3, 5 and 7 times."""
    wanted = {keyword1: 1, keyword2: 2, keyword3: 3, keyword4: 5, keyword5: 7}
    return all(occurrences(response, keyword) == times for keyword, times in wanted.items())


def palindrome(response: str) -> bool:
    """There is a palindrome of at least three letters, two of them different: a lone "a" or "mmm" is none."""
    return any(len(word) >= 3 and len(set(word)) >= 2 and word == word[::-1] for word in words(response))


def no_adjacent_consecutive(response: str) -> bool:
    """No word begins with the letter of the alphabet that follows the first letter of the word before it."""
    initials = [ord(word[0]) if "a" <= word[0] <= "z" else 0 for word in words(response)]
    return not any(before and after == before + 1 for before, after in pairwise(initials))


def _stands_alone(response: str, word: str) -> bool:
    return re.search(rf"(?<!\w){_literal(word)}(?!\w)", response, flags=re.IGNORECASE) is not None


def _literal(phrase: str) -> str:
    return r"\s+".join(map(re.escape, phrase.split()))
