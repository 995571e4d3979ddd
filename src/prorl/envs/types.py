"""Problems, verdicts, and what a task is."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Turn = tuple[str, str]
"""Who speaks in a chat (`system`, `user`, `assistant`), and what they say."""

Split = Literal["train", "validation", "test", "ood"]
Status = Literal["ok", "wrong", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A known solution: `steps` is the short working shown while thinking, `answer` scores 1 by itself."""

    steps: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One verifiable question, a pure function of (task, index, split)."""

    task: str
    domain: str
    index: int
    split: Split
    level: int  # difficulty; of the same meaning inside one task, 0 for tasks without levels
    prompt: str
    payload: Any  # what the verifier needs; any picklable plain data, never shown to the model
    solution: Solution | None = None  # None where the source keeps no solution
    history: tuple[Turn, ...] = ()  # what is said before the prompt: a system prompt, examples


def conversation(history: Iterable[Turn], prompt: str) -> str:
    """What problems are told apart by: all that is said before the answer but the system prompt, as one text."""
    return "\n".join([*(said for role, said in history if role != "system"), prompt])


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a verifier says: a score in [0, 1]. `error` means that it could not tell; such a score is no reward."""

    score: float
    status: Status
    note: str = ""  # why, in a few words: "no answer", "not a number", "deadline"
    answered: bool = True  # whether the response held an answer in the form asked for, right or wrong


class Task(Protocol):
    """A source of verifiable problems."""

    name: str  # unique among all tasks
    pass_threshold: float  # score from which a response counts as solved in pass@k

    @property
    def domain(self) -> str:
        """The domain it is averaged into."""

    @property
    def splits(self) -> frozenset[Split]:
        """The splits for which `problem` works."""

    @property
    def all_levels(self) -> tuple[int, ...]:
        """Difficulty levels from easy to hard, trained and beyond; empty for a task without."""

    def problem(self, index: int, split: Split) -> Problem:
        """The problem at `index` of `split`: pure, the same in every process."""

    def problem_at(self, index: int, level: int) -> Problem:
        """The problem at `index` of one level, held out whatever is trained; pure."""

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Judge a response text: by definition of the problem, not by comparison with the solution.

        Never raises for what the text says; a verifier that cannot tell answers with status "error".
        """
