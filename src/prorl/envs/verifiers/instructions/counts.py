"""Checks on how many letters, words of a kind, or numbers there are."""

from __future__ import annotations

import re
from collections import Counter

from prorl.envs.verifiers.instructions.arguments import Relation, holds
from prorl.envs.verifiers.instructions.text import DIVIDER, divided, sentences, tokens, words

CONJUNCTIONS = frozenset({"and", "but", "for", "nor", "or", "so", "yet"})
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def letter_frequency(response: str, *, letter: str, let_frequency: int, let_relation: Relation) -> bool:
    """A letter, upper or lower case, occurs less often than, or at least as often as, asked."""
    return holds(response.lower().count(letter.lower()), let_relation, let_frequency)


def letter_total(response: str, *, N: int, relation: Relation) -> bool:  # the data call it N
    """The number of letters, of any script."""
    return holds(sum(map(str.isalpha, response)), relation, N)


def lowercase_words(response: str, *, N: int) -> bool:
    """At most N words are written all in lower case."""
    return sum(map(str.islower, tokens(response))) <= N


def all_different(response: str) -> bool:
    """No word occurs twice, whatever its case."""
    found = words(response)
    return len(found) == len(set(found))


def distinct_words(response: str, *, N: int) -> bool:
    """At least N different words."""
    return len(set(words(response))) >= N


def numbers(response: str, *, N: int) -> bool:
    """Exactly N numbers; 1,000 and 3.14 are one each."""
    return len(_NUMBER.findall(response)) == N


def conjunctions(response: str, *, small_n: int) -> bool:
    """At least this many different coordinating conjunctions of English."""
    return len(CONJUNCTIONS.intersection(words(response))) >= small_n


def capital_words(response: str, *, capital_frequency: int, capital_relation: Relation) -> bool:
    """The number of words all in capitals; a hyphenated word is one, and so is "I", as in IFEval."""
    return holds(sum(map(str.isupper, tokens(response))), capital_relation, capital_frequency)


def composition(response: str, *, n_sent: int, n_words: int) -> bool:
    """Three parts between dividers (`***` or `* * *`), each of n_sent sentences, each of n_words words."""
    parts = divided(response.replace("* * *", DIVIDER), DIVIDER)
    if parts is None or len(parts) != 3:
        return False
    shape = [Counter(len(words(sentence)) for sentence in sentences(part)) for part in parts]
    return all(lengths == {n_words: n_sent} for lengths in shape)
