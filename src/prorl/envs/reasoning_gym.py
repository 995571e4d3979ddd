"""A task of the reasoning-gym library (0.1.25), with its own questions and a scorer of the library's or of ours.

Four things of the library are kept out:
- item i of a dataset is drawn from `Random(seed + i)`, so neighbouring seeds overlap: an item number is a hash here;
- credit for containing the answer pays for listing candidates, and consolation scores below 0.1 look like signal;
- metadata may hold today's date: a payload keeps only what the scorer reads;
- some datasets draw from the global generators, change the decimal precision, warn or print
  (`careless`).
The library takes seconds to import, so that happens at the first problem or verdict.
"""

from __future__ import annotations

import decimal
import io
import random
import sys
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from random import Random
from typing import Any, ClassVar

from prorl.envs.base import Draft, ProceduralTask
from prorl.envs.extract import MAX_ANSWER_CHARS
from prorl.envs.types import Problem, Split, Verdict, Witness

PREFIX = "rg_"
DEFAULTS = 0  # the level of the library's default configuration
MIN_PARTIAL, MAX_PARTIAL = 0.1, 0.9  # the library's sums of partial credit can round to more than 1
MAX_UNUSABLE = 1000  # items in a row

Entry = Mapping[str, Any]
Config = Mapping[str, Any]


class ReasoningGym(ProceduralTask):
    """A dataset of the library named by what follows `rg_` in `name`, with one configuration per level.

    Level 0 is the library's default configuration. Where a task has a ladder of its own, from level 1, level 0 is
    drawn only when asked for. A subclass must see to it that item i depends on `seed + i` and the configuration
    alone.
    """

    configs: ClassVar[Mapping[int, Config]]
    scored_fields: ClassVar[tuple[str, ...]] = ()  # metadata that the scorer reads
    partial_credit: ClassVar[bool] = False  # whether a score below 1 means partly right
    scorer_raises: ClassVar[tuple[type[Exception], ...]] = ()  # on malformed answers, which are then wrong
    careless: ClassVar[bool] = False  # whether drawing an item has effects outside the dataset
    item_bits: ClassVar[int] = 63  # item numbers that the dataset can take
    size: ClassVar[int] = sys.maxsize  # what the dataset is created with

    def __init__(self, weights: Mapping[int, float] | None = None) -> None:
        ladder = [level for level in self.levels if level != DEFAULTS] or self.levels
        super().__init__(weights or dict.fromkeys(ladder, 1.0))
        self._datasets: dict[int, Any] = {}

    @property
    def splits(self) -> frozenset[Split]:
        """As for every task; but level 0 can draw what out-of-domain levels ask, so with it there are none."""
        return super().splits - ({"ood"} if self.weights.get(DEFAULTS) else set())

    @property
    def ladder(self) -> tuple[int, ...]:
        """As for every task; the library's default configuration is no rung of it."""
        return tuple(sorted(level for level in self.configs if level != DEFAULTS))

    @abstractmethod
    def steps(self, entry: Entry) -> str:
        """Short working for one entry of a level from 1 up; empty where there is no natural one."""

    def usable(self, entry: Entry) -> bool:
        """Whether to keep this entry: false for the library's rare wrong or degenerate ones."""
        return True

    def solution(self, entry: Entry) -> str | None:
        """An answer that scores 1; None where the library gives none."""
        return None if entry["answer"] is None else str(entry["answer"])

    def repair(self, dataset: Any) -> None:
        """Change a new dataset of the library in place, so that its items keep the promise of this class."""

    def generate(self, rng: Random, level: int) -> Draft:
        """One entry of the level's dataset, at a random item number.

        Raises:
            ValueError: the dataset yields no usable entry.
        """
        dataset = self._dataset(level)
        for _ in range(MAX_UNUSABLE):
            entry = self._item(dataset, rng.getrandbits(self.item_bits))
            solution = self.solution(entry)
            if self.usable(entry) and len(solution or "") <= MAX_ANSWER_CHARS:
                break
        else:
            raise ValueError(f"task {self.name}: {MAX_UNUSABLE} items in a row are unusable")
        steps = self.steps(entry) if level != DEFAULTS else ""
        return Draft(
            prompt=entry["question"].strip(),
            payload=(level, self.kept(entry)),
            witness=None if solution is None else Witness(steps=steps, answer=solution),
        )

    def kept(self, entry: Entry) -> dict[str, Any]:
        """What of an entry goes into the payload."""
        return {
            "answer": self.solution(entry),
            "metadata": {field: entry["metadata"][field] for field in self.scored_fields},
        }

    def score(self, payload: Any, answer: str) -> float:
        """The library's score; partial credit counts only where the task says so, and then from 0.1 to 0.9.

        Raises:
            Exception: whatever the library's scorer raises on this text; `verify` turns it into a verdict.
        """
        level, entry = payload
        scratch = {**entry, "metadata": dict(entry["metadata"])}  # some scorers write into their entry
        with redirect_stdout(None):  # some print what they think of an answer
            return self.counted(float(self._dataset(level).score_answer(answer, scratch)))

    def counted(self, score: float) -> float:
        """A scorer's value as this task counts it."""
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

    def _item(self, dataset: Any, item: int) -> Entry:
        with _fenced(item) if self.careless else nullcontext():
            entry: Entry = dataset[item]
        return entry

    def _dataset(self, level: int) -> Any:
        if level not in self._datasets:
            import reasoning_gym

            source = self.name.removeprefix(PREFIX)
            with warnings.catch_warnings(action="ignore"):  # it leaves files open
                dataset = reasoning_gym.create_dataset(source, seed=0, size=self.size, **self.configs[level])
            self.repair(dataset)
            self._datasets[level] = dataset
        return self._datasets[level]


@contextmanager
def _fenced(seed: int) -> Iterator[None]:
    """Run library code that prints, warns, changes the decimal context, or draws from the global generators."""
    import numpy

    states = random.getstate(), numpy.random.get_state()
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    try:
        with (
            redirect_stdout(io.StringIO()),
            decimal.localcontext(decimal.Context()),
            warnings.catch_warnings(action="ignore"),
        ):
            yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
