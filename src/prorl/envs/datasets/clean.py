"""What makes a converted row unfit: a gold that fails its own verifier, a repetition, text of an evaluation set.

Invariant: questions are compared without the instructions on the form of the answer, which all rows share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from prorl.envs.base import canonical
from prorl.envs.datasets.judging import instructions_of
from prorl.envs.datasets.records import Drop
from prorl.envs.verifiers import published_checkers
from prorl.envs.verifiers.choice import choice_of
from prorl.envs.verifiers.instructions import UnknownInstructionError, validate
from prorl.envs.verifiers.math import gold_verifies
from prorl.envs.verifiers.quantity import quantity_equal

OVERLAP_WORDS = 13  # as GPT-3's and most later decontaminations; 0 switches it off
SHARED_BY = 4  # evaluation questions that may share a passage before it counts as boilerplate

_WORD = re.compile(r"\w+")


def check_gold(payload: Mapping[str, Any], prompt: str) -> None:
    """See that the known answer of a row would be accepted, or that its tests and instructions can be asked.

    Raises:
        Drop: it would not.
    """
    try:
        accepted = _verifies(payload, prompt)
    except UnknownInstructionError as error:
        raise Drop("an instruction that nobody can check") from error
    if not accepted:
        raise Drop("a gold that fails its own verifier")


def _verifies(payload: Mapping[str, Any], prompt: str) -> bool:
    match payload["kind"]:
        case "math":
            return gold_verifies(payload["gold"])
        case "choice":
            return bool(choice_of(payload["gold"], payload["options"]) == payload["gold"])
        case "quantity":
            return quantity_equal(payload["gold"], payload["gold"])
        case "instructions":
            for instruction in instructions_of(payload):
                if payload["checkers"] is None:
                    validate(instruction)
                else:
                    published_checkers.validate(payload["checkers"], instruction, prompt)
            return True
        case _:  # programs come without a solution to try; that there are tests is seen to when they are read
            return True


class Duplicates:
    """The questions of one source seen so far."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def check(self, question: str) -> None:
        """Take note of a question.

        Raises:
            Drop: it was there before, case and white space aside.
        """
        digest = _digest(canonical(question))
        if digest in self._seen:
            raise Drop("duplicate")
        self._seen.add(digest)


class Overlap:
    """The passages of the evaluation questions: every run of so many words."""

    def __init__(self, words: int) -> None:
        """`words` is the length of a passage; 0 finds no overlap at all."""
        self._words = words
        self._owners: Counter[bytes] = Counter()

    def add(self, question: str) -> None:
        """Take note of an evaluation question."""
        self._owners.update(set(self._passages(question)))

    def check(self, question: str) -> None:
        """Compare a training question with all evaluation questions.

        A passage that more than `SHARED_BY` of them share is boilerplate ("The first line contains an integer …")
        and proves nothing. Questions shorter than a passage must be the same as a whole.

        Raises:
            Drop: it shares a passage with one.
        """
        if any(1 <= self._owners[passage] <= SHARED_BY for passage in self._passages(question)):
            raise Drop("overlaps an evaluation set")

    def _passages(self, question: str) -> Iterator[bytes]:
        if not self._words:
            return
        words = _WORD.findall(question.lower())
        for start in range(max(1, len(words) - self._words + 1)):
            yield _digest(" ".join(words[start : start + self._words]))


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
