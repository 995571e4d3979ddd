"""A task of the reasoning-gym library (0.1.25), with its own questions and its own scorer.

Three things of the library are kept out:
- item i of a dataset is drawn from `Random(seed + i)`, so neighbouring seeds overlap: an item number is a hash here;
- credit for containing the answer pays for listing candidates, and consolation scores below 0.1 look like signal;
- metadata may hold today's date: a payload keeps only what the scorer reads.
The library takes seconds to import, so that happens at the first problem or verdict.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar

from prorl.tasks.base import Draft, ProceduralTask
from prorl.types import Problem, Verdict, Witness

PREFIX = "rg_"
MIN_PARTIAL, MAX_PARTIAL = 0.1, 0.9  # the library's sums of partial credit can round to more than 1

Entry = Mapping[str, Any]
Config = Mapping[str, Any]


class ReasoningGym(ProceduralTask):
    """A dataset of the library named by what follows `rg_` in `name`, with one configuration per level.

    A subclass must keep to datasets whose item i depends on `seed + i` and the configuration alone.
    """

    configs: ClassVar[Mapping[int, Config]]
    scored_fields: ClassVar[tuple[str, ...]] = ()  # metadata that the library's scorer reads
    partial_credit: ClassVar[bool] = False  # whether a score below 1 means partly right
    scorer_raises: ClassVar[tuple[type[Exception], ...]] = ()  # on malformed answers, which are then wrong

    def __init__(self, weights: Mapping[int, float] | None = None) -> None:
        super().__init__(weights)
        self._datasets: dict[int, Any] = {}

    @abstractmethod
    def steps(self, entry: Entry) -> str:
        """Short working for one entry of the library; empty where there is no natural one."""

    def usable(self, entry: Entry) -> bool:
        """Whether to keep this entry: false for the library's rare wrong or degenerate ones."""
        return True

    def generate(self, rng: Random, level: int) -> Draft:
        """One entry of the level's dataset, at a random 63-bit item number."""
        dataset = self._dataset(level)
        while True:
            entry = dataset[rng.getrandbits(63)]
            if self.usable(entry):
                break
        kept = {
            "answer": entry["answer"],
            "metadata": {field: entry["metadata"][field] for field in self.scored_fields},
        }
        return Draft(
            prompt=entry["question"].strip(),
            payload=(level, kept),
            witness=None
            if entry["answer"] is None
            else Witness(steps=self.steps(entry), answer=str(entry["answer"])),
        )

    def score(self, payload: Any, answer: str) -> float:
        """The library's score; partial credit counts only where the task says so, and then from 0.1 to 0.9.

        Raises:
            Exception: whatever the library's scorer raises on this text; `verify` turns it into a verdict.
        """
        level, entry = payload
        score = float(self._dataset(level).score_answer(answer, entry))
        if score == 1.0:
            return 1.0
        return min(score, MAX_PARTIAL) if self.partial_credit and score >= MIN_PARTIAL else 0.0

    def verify(self, problem: Problem, text: str) -> Verdict:
        """As for every task; a scorer that fails in an undocumented way is an error, never a wrong answer."""
        try:
            return super().verify(problem, text)
        except self.scorer_raises as error:
            return Verdict(score=0.0, status="wrong", note=f"malformed: {type(error).__name__}")
        except Exception as error:
            return Verdict(score=0.0, status="error", note=f"{type(error).__name__}: {error}"[:200])

    def _dataset(self, level: int) -> Any:
        if level not in self._datasets:
            import reasoning_gym

            source = self.name.removeprefix(PREFIX)
            self._datasets[level] = reasoning_gym.create_dataset(
                source, seed=0, size=sys.maxsize, **self.configs[level]
            )
        return self._datasets[level]
