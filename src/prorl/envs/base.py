"""What a procedural task is, and how its problems are split so that no held-out prompt is ever trained on.

Seed-based splits leak on small spaces (49 % of easy linear equations of one seed also occur under another),
so the split of a problem is a property of its canonical prompt: a hash puts every prompt in one of 20 buckets.
"""

import hashlib
import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from prorl.envs.errors import UsageError
from prorl.envs.extract import extract_answer
from prorl.envs.files import storable
from prorl.envs.sandbox.link import SandboxError
from prorl.envs.seeds import generator, purpose
from prorl.envs.types import Problem, Solution, Split, Verdict

BUCKETS = 20
# 10 %: validations, by which the run is steered; 10 %: the final measurement, which nothing in the run sees
HELD_OUT: Mapping[int, Split] = {0: "validation", 1: "validation", 2: "test", 3: "test"}
MAX_REDRAWS = 10_000

LevelWeights = tuple[tuple[int, float], ...]
"""Levels and how often each is drawn, relative to the others."""

NO_ANSWER = Verdict(score=0.0, status="wrong", note="no answer", answered=False)
OTHER_ROWS = Verdict(score=0.0, status="error", note="its rows are not those of the run: start anew")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A problem before it has an index: prompt, what the verifier needs, and a known solution if there is one."""

    prompt: str
    payload: Any
    solution: Solution | None


def draft(prompt: str, payload: Any, steps: str, answer: str) -> Draft:
    """A problem with a known solution."""
    return Draft(prompt=prompt, payload=payload, solution=Solution(steps=steps, answer=answer))


def verdict_of(found: Any, threshold: float = 1.0) -> Verdict:
    """What a scoring function returned, as a verdict; a list of one and a dict with `score` are opened."""
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    if isinstance(found, Mapping):
        found = found.get("score")
    if isinstance(found, Verdict):
        return found
    if found is None:
        return Verdict(score=0.0, status="error", note="the reward function could not tell")
    try:
        score = float(found)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if (whole := round(score, 9)) in (0.0, 1.0):  # the sum of parts 0.7 + 0.2 + 0.1 means 1
        score = whole
    if not 0.0 <= score <= 1.0:
        note = f"the reward function returned {found!r:.60}, not a score in [0, 1]"
        return Verdict(score=0.0, status="error", note=note)
    return Verdict(score=score, status="ok" if score >= threshold else "wrong")


def canonical(prompt: str) -> str:
    """The prompt with case and white space folded: two prompts that only differ there are the same problem."""
    return " ".join(prompt.lower().split())


def split_of(prompt: str) -> Split:
    """The split of a prompt; out-of-domain levels are apart by construction."""
    digest = hashlib.blake2b(canonical(prompt).encode(), digest_size=8).digest()
    return HELD_OUT.get(int.from_bytes(digest, "big") % BUCKETS, "train")


class ProceduralTask(ABC):
    """A family of generated problems at several difficulty levels.

    A subclass sets the class variables and implements `generate` and `score`. `levels` are trained and validated;
    `ood_levels` (larger sizes, held-out operators) appear only in the `ood` split.
    """

    name: str = ""  # one of the user's own gets that of the recipe
    domain: str
    levels: tuple[int, ...]
    ood_levels: tuple[int, ...] = ()
    pass_threshold: float = 1.0
    instruction: str = ""  # on the form of the answer, below every prompt; plays no part in its split

    def __init__(self, weights: Mapping[int, float] | None = None) -> None:
        """`weights` says how often each level is drawn; default: all of `levels` equally often.

        Raises ValueError: a level that the family does not train.
        """
        if wrong := [level for level in (*self.levels, *self.ood_levels) if type(level) is not int]:
            raise ValueError(f"levels are whole numbers, not {wrong[0]!r}")
        name = self.name or type(self).__name__
        if both := sorted({*self.levels} & {*self.ood_levels}):
            raise ValueError(
                f"task {name}: levels {both} are among levels and ood_levels: they are out of domain or not"
            )
        if unknown := sorted(set(weights or {}) - set(self.levels)):
            raise ValueError(f"task {name}: no level {unknown}; its trained levels are {[*self.levels]}")
        self.weights = dict(weights) if weights else dict.fromkeys(self.levels, 1.0)

    @property
    def splits(self) -> frozenset[Split]:
        """The splits that this task has problems for."""
        trained: tuple[Split, ...] = ("train", "validation", "test") if self.levels else ()
        return frozenset((*trained, "ood") if self.ood_levels else trained)

    @property
    def all_levels(self) -> tuple[int, ...]:
        """Every level from the easiest to the hardest, trained or not."""
        return tuple(sorted((*self.levels, *self.ood_levels)))

    @abstractmethod
    def generate(self, rng: Random, level: int) -> Draft:
        """Draw one problem of a difficulty level, using no other randomness than `rng`."""

    @abstractmethod
    def score(self, payload: Any, answer: str) -> float | Verdict:
        """Score an extracted answer in [0, 1], or judge it, by the problem's definition; never execute it here."""

    def problem(self, index: int, split: Split, weights: LevelWeights | None = None) -> Problem:
        """The problem at `index` of `split`: redraws until the prompt's hash says that it belongs there.

        `weights` says how often each level is drawn, instead of the task's own. Raises ValueError: the task has
        nothing in this split, or its space is too small to fill it.
        """
        if split not in self.splits:
            raise ValueError(f"task {self.name} has no {split} problems")
        rng = generator(self.name, purpose(split), index)
        if split == "ood":
            return self._drawn(rng, index, split, partial(rng.choice, self.ood_levels))
        levels, shares = zip(*(self.weights.items() if weights is None else weights), strict=True)
        return self._drawn(rng, index, split, lambda: rng.choices(levels, weights=shares)[0])

    def problem_at(self, index: int, level: int) -> Problem:
        """The problem at `index` of one level; held out like the `test` split, whatever is trained.

        Raises ValueError: the task has no such level, or its space is too small.
        """
        if level not in self.all_levels:
            raise ValueError(f"task {self.name} has no level {level}; its levels are {list(self.all_levels)}")
        rng = generator(self.name, purpose("levels"), level, index)
        return self._drawn(rng, index, "test", lambda: level)

    def _drawn(self, rng: Random, index: int, split: Split, draw_level: Callable[[], int]) -> Problem:
        for _ in range(MAX_REDRAWS):
            level = draw_level()
            found = self._generated(rng, level)
            if split in ("ood", split_of(found.prompt)):
                return Problem(
                    task=self.name,
                    domain=self.domain,
                    index=index,
                    split=split,
                    level=level,
                    prompt=f"{found.prompt}\n\n{self.instruction}" if self.instruction else found.prompt,
                    payload=found.payload,
                    solution=found.solution,
                )
        raise UsageError(
            f"task {self.name}: no {split} problem in {MAX_REDRAWS} draws; its space is too small: "
            "let generate draw from more prompts"
        )

    def _generated(self, rng: Random, level: int) -> Draft:
        try:
            found = self.generate(rng, level)
        except (Exception, SystemExit) as error:  # the same draw would raise again
            raise UsageError(
                f"task {self.name}: generate at level {level} raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(found, Draft):
            raise UsageError(f"task {self.name}: generate must return draft(…), not {type(found).__name__}")
        said = {"prompt": found.prompt}
        if found.solution is not None:
            said |= {"steps": found.solution.steps, "answer": found.solution.answer}
        is_text = {name: isinstance(text, str) and storable(text) == text for name, text in said.items()}
        if wrong := next((name for name, right in is_text.items() if not right), None):
            raise UsageError(f"task {self.name}: {wrong} must be a text, not {said[wrong]!r}")
        try:
            pickle.dumps(found.payload)
        except Exception as error:  # of any type, by what the payload holds
            raise UsageError(
                f"task {self.name}: the payload must be plain data, as it is sent to the judges: {error}"
            ) from error
        return found

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Extract the answer and score it; no answer is wrong, and a `score` that raises or is none is an error.

        Raises SandboxError: the answer is a program, and this machine has no sandbox.
        """
        if (answer := extract_answer(text)) is None:
            return NO_ANSWER
        try:
            return verdict_of(self.score(problem.payload, answer), self.pass_threshold)
        except SandboxError:
            raise
        except Exception as error:
            return Verdict(score=0.0, status="error", note=f"{type(error).__name__}: {error}")


class FixedTask(ABC):
    """Finitely many problems that somebody wrote, without levels, by keys that whoever judges must have, too."""

    pass_threshold = 1.0  # of code and instructions too: all tests passed, all instructions followed
    all_levels: tuple[int, ...] = ()

    def __init__(self, name: str, domain: str, keys: Mapping[Split, Sequence[Any]]) -> None:
        """`keys` are those of the problems of each split that has any."""
        self.name, self.domain, self._by_split = name, domain, keys
        self.splits = frozenset(keys)

    @abstractmethod
    def ask(self, key: Any) -> dict[str, Any]:
        """Prompt and payload of a problem, what is said before it, and a known solution, as `Problem` names them."""

    def row_count(self, split: Split) -> int:
        """How many problems a split has."""
        return len(self._by_split.get(split, ()))

    def problem(self, index: int, split: Split) -> Problem:
        """The problem at `index` modulo their number; `ValueError` where the split has none."""
        if split not in self.splits:
            raise ValueError(f"task {self.name} has no {split} problems")
        key = self._by_split[split][index % self.row_count(split)]
        return Problem(task=self.name, domain=self.domain, index=index, split=split, level=0, **self.ask(key))

    def problem_at(self, index: int, level: int) -> Problem:
        """There are no levels: always a `ValueError`."""
        raise ValueError(f"task {self.name} has no level {level}: its problems have no levels")


def by_split(asked: Iterable[tuple[str, str]]) -> dict[Split, list[str]]:
    """The keys of problems by their split, which follows from a hash of what is asked, given behind each key."""
    found: dict[Split, list[str]] = {}
    for key, prompt in asked:
        found.setdefault(split_of(prompt), []).append(key)
    return found
