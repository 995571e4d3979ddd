"""What passes between reading, converting and storing a data set: plain records, and how a row or a source fails.

Invariant: a source that cannot be used at all is a `DataError` for people; a single row that cannot is a `Drop`,
which is counted and never stops a preparation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from prorl.envs.errors import ProrlError
from prorl.envs.types import Witness

Kind = Literal["math", "choice", "quantity", "code", "instructions"]
"""How answers of a row are judged; also what a recipe says of a data set of its own."""

Layout = Literal[
    "short_answer",  # a mathematical question and its answer: text, number or list
    "quantity",  # a question whose answer is a number, with a unit or without
    "typed_answer",  # … and a column that says what the answer is
    "worked_solution",  # the answer has to be found in a solution
    "options",  # lettered options and the right letter
    "distractors",  # the right answer and wrong ones, each in a column
    "tests",  # inputs and outputs of a program, as APPS writes them
    "asserts",  # a program that tests another, as HumanEval writes it
    "contest",  # public and packed private tests, as LiveCodeBench writes them
    "instructions",  # instruction ids and their arguments, as IFEval writes them
    "ifeval",  # the same, graded by IFEval's own checkers
    "ifbench",  # … and by IFBench's
]
"""How a source writes its rows."""


class DataError(ProrlError):
    """Data that cannot be had or used; the message says what is wrong and what to do."""


class Drop(Exception):
    """A row that cannot be used; the message is the reason under which it is counted, `row` what was unreadable."""

    def __init__(self, reason: str, row: str = "") -> None:
        super().__init__(reason)
        self.row = row


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest:
    """What a recipe says of one data set. Only `name` is needed for those of the catalogue."""

    name: str  # the task's name
    kind: Kind | None = None  # of a data set that is not in the catalogue
    path: str | None = None  # a local file (Parquet, JSON, JSONL, CSV) or a folder laid out as on the hub
    columns: Mapping[str, str] = field(default_factory=dict)  # field → column, or column.key for a nested one
    limit: int | None = None  # rows to read at most
    revision: str | None = None  # of the hub's repository; default: its newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A row as it is stored: everything that asking and judging it needs."""

    question: str  # without instructions on the form of the answer; what duplicates and overlap are found by
    prompt: str  # what the model sees
    payload: Mapping[str, Any]  # JSON; `kind` says how the rest is read (`judging.py`)
    witness: Witness | None = None
