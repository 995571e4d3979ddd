"""Checks on answers that repeat something, or come in several copies. Case and white space do not matter."""

from __future__ import annotations

from prorl.envs.verifiers.instructions.text import TWO_DIVIDERS, divided, folded, has_words, words


def two_responses(response: str) -> bool:
    """Two responses separated by six asterisks that differ in their words."""
    parts = divided(response, TWO_DIVIDERS)
    return parts is not None and len(parts) == 2 and words(parts[0]) != words(parts[1])


def repeat_prompt(response: str, *, prompt_to_repeat: str) -> bool:
    """The response begins with the request word for word, and an answer follows."""
    head, body = folded(prompt_to_repeat), folded(response)
    return body.startswith(head) and has_words(body[len(head) :])


def copy(response: str, *, prompt_to_repeat: str) -> bool:
    """The response is the request and nothing else."""
    return folded(response) == folded(prompt_to_repeat)


def copies(response: str, *, prompt_to_repeat: str, N: int) -> bool:  # the data call it N
    """The response is the request N times, separated by six asterisks."""
    parts = response.split(TWO_DIVIDERS)
    return len(parts) == N and all(copy(part, prompt_to_repeat=prompt_to_repeat) for part in parts)


def copy_span(response: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The response is this span of characters; the end may be included, as its wording says, or not, as its code."""
    spans = (prompt_to_repeat[n_start:n_end], prompt_to_repeat[n_start : n_end + 1])
    return folded(response) in map(folded, spans)


def repeat_phrase(response: str, *, phrase: str, small_n: int) -> bool:
    """The phrase occurs exactly so often with one of its inner words replaced, a word for a word."""
    wanted, found = words(phrase), words(response)
    starts = (at for at, word in enumerate(found) if word == wanted[0])
    windows = (found[at : at + len(wanted)] for at in starts)
    return sum(_differs_inside(window, wanted) for window in windows) == small_n


def _differs_inside(window: list[str], wanted: list[str]) -> bool:
    if len(window) != len(wanted) or window[-1] != wanted[-1]:
        return False
    return sum(word != other for word, other in zip(window, wanted, strict=True)) == 1
