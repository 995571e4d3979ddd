"""Whether a response says anything at all: the floor under every instruction.

Most instructions forbid or shape something, and are met for free by saying next to nothing. So no instruction is
met by a response whose own words are too few or too monotonous. Its own are those that remain when the prompt it
echoes and the words that the instructions hand out (keywords, end phrases) are taken away. Instructions that limit
the length lower the floor; those that fix the whole response (copying, the three answers) replace it.
"""

from __future__ import annotations

from prorl.envs.verifiers.instructions.text import words

MAX_CHARS = 200_000  # nothing longer is judged: no model asked for a page writes this much
MIN_DISTINCT = 5  # words
# Distinct words over words: text of 1,000 words has about 0.4, a repeated sentence far less.
MIN_VARIETY = 0.08
ENOUGH_DISTINCT = 100  # from here on variety is no question: it falls with the length of any text
ECHO = 0.8  # of the prompt's words in one piece


def floor(room: int | None, given: frozenset[str]) -> int:
    """How many distinct words of its own a response must have.

    `room` is the largest number of words that the instructions allow, None without a limit; `given` are the words
    that they hand out. A limit halves the floor at the most and always leaves one word to write.
    """
    if room is None:
        return MIN_DISTINCT
    return max(1, min(MIN_DISTINCT, (room + 1) // 2, room - len(given)))


def says_something(response: str, prompt: str, *, given: frozenset[str], least: int) -> bool:
    """Whether the response has `least` distinct words of its own, and does not just repeat a few."""
    own = [word for word in _without_echo(words(response), words(prompt)) if word not in given]
    distinct = len(set(own))
    return distinct >= max(least, min(ENOUGH_DISTINCT, MIN_VARIETY * len(own)))


def _without_echo(response: list[str], prompt: list[str]) -> list[str]:
    """The response without copies of the whole prompt; nothing where it is itself most of the prompt."""
    said, asked = f" {' '.join(response)} ", f" {' '.join(prompt)} "
    if not prompt:
        return response
    if said in asked and len(response) >= ECHO * len(prompt):
        return []
    while asked in said:
        said = said.replace(asked, " ")
    return said.split()
