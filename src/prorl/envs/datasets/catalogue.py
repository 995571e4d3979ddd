"""The data sets this project knows (`catalogue.toml`), and the records that pass between reading and storing one.

Invariant: a source that cannot be used at all is a `DataError` for people; a single row that cannot is a `Drop`,
which is counted and never stops a preparation.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from prorl.envs.errors import ProrlError
from prorl.envs.types import Solution

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

Columns = Mapping[str, tuple[str, ...]]


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
    payload: Mapping[str, Any]  # JSON; `kind` says how the rest is read (`grading.py`)
    solution: Solution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One data set: where it lies, how it is written, what it is for."""

    name: str
    domain: str
    layout: Layout
    use: Literal["train", "evaluation"]
    hub: str | None  # None: only from a local path
    config: str | None = None
    split: str = "train"
    columns: Columns  # field → patterns of column names, the first that is there wins
    optional: Columns = field(default_factory=dict)
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)  # optional field → values that are kept
    rows: int | None = None  # as published, after `where`
    licence: str = "unknown"
    gated: bool = False  # the hub asks for an accepted licence and a login
    note: str = ""


_FILE = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))

VERSION: int = _FILE["version"]

SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        name: Source(name=name, **{"columns": _FILE["columns"][facts["layout"]], **facts})
        for name, facts in _FILE["sources"].items()
    }
)
"""Every known data set by name."""

_KINDS: Mapping[Kind, tuple[str, Layout]] = {
    "math": ("math", "short_answer"),
    "quantity": ("stem", "quantity"),
    "choice": ("stem", "options"),
    "code": ("code", "tests"),
    "instructions": ("instruct", "instructions"),
}


def resolve(request: SourceRequest) -> Source:
    """The source that a request means: of the catalogue by name, or the recipe's own by `kind` and `path`.

    Raises:
        DataError: an unknown name without a kind, a kind without a path, or a kind for a known name.
    """
    known = SOURCES.get(request.name)
    where = f"tasks.{request.name}"
    if known is not None:
        if request.kind is not None:
            raise DataError(
                f"{where}: a known data set, whose kind is fixed: drop `kind`, or choose another name"
            )
        return known
    if request.kind is None:
        near = get_close_matches(request.name, SOURCES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SOURCES)};"
        raise DataError(
            f"no data set {request.name!r}; {hint} for one of your own say {where}.kind and .path"
        )
    if request.path is None:
        raise DataError(f"{where}: a data set of your own needs a file: say {where}.path=FILE")
    domain, layout = _KINDS[request.kind]
    return Source(
        name=request.name,
        domain=domain,
        layout=layout,
        use="train",
        hub=None,
        columns=_FILE["columns"][layout],
        licence="your own",
    )
