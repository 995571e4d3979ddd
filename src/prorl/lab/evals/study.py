"""What a study of one model leaves behind: how every problem went, kept in Parquet; every summary derives from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prorl.envs.files import StorageError, replacing

if TYPE_CHECKING:
    import pyarrow

Part = Literal["exam", "test", "ood", "ladder"]
"""Why a problem is asked: in the exams of a run, held out of it for good, out of domain, or as a rung of a ladder."""

HEADER = b"prorl.study"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One extracted answer of a problem and how many responses gave it. Equal answers may be judged apart."""

    answer: str
    count: int
    solved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A response that is kept for people to read, with its verdict."""

    sample: int
    text: str
    tokens: int
    finish: str
    score: float
    status: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult:
    """How one problem went: of `samples` judged responses `solved` passed and `unanswered` held no answer."""

    task: str
    domain: str
    part: Part
    level: int
    index: int
    prompt: str
    samples: int
    solved: int
    unanswered: int
    truncated: int
    errors: int  # responses that the verifier could not judge; not among `samples`
    length: float  # mean response length, tokens
    votes: tuple[Vote, ...] = ()  # the most frequent first
    kept: tuple[Kept, ...] = ()  # the first responses in sample order, and the first one that passed

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What names the problem among all of a study."""
        return self.task, self.part, self.level, self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One model's results. `model` is `base`, `step_000320`, or the name of a model from elsewhere."""

    model: str
    step: int | None  # of the run's checkpoint; None for a model from elsewhere
    samples: int  # responses asked for per problem
    seconds: float
    problems: tuple[ProblemResult, ...]
    weights: str = ""  # hash of what was measured, where it is known


def write_study(path: Path, study: Study) -> None:
    """Store a study, whole or not at all.

    Raises:
        StorageError: there is no room.
    """
    import pyarrow
    from pyarrow import parquet

    header = {key: getattr(study, key) for key in ("model", "step", "samples", "seconds", "weights")}
    schema = _schema().with_metadata({HEADER: json.dumps(header).encode()})
    table = pyarrow.Table.from_pylist([asdict(problem) for problem in study.problems], schema=schema)
    with replacing(path) as temporary:
        parquet.write_table(table, temporary, compression="zstd")


def read_study(path: Path, *, columns: Sequence[str] | None = None) -> Study:
    """The study that `write_study` stored; without the `votes` and `kept` columns where those are not asked for.

    Raises:
        StorageError: the file is missing, damaged or no study.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path, columns=None if columns is None else list(columns))
        header: dict[str, Any] = json.loads(table.schema.metadata[HEADER])
        problems = tuple(_problem(row) for row in table.to_pylist())
        return Study(**header, problems=problems)
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise StorageError(
            f"the study {path} cannot be read ({error}); delete it and measure again"
        ) from error


SLIM = tuple(field.name for field in fields(ProblemResult) if field.name not in ("votes", "kept"))
"""The columns of counts, without answers and responses."""


def _problem(row: Mapping[str, Any]) -> ProblemResult:
    nested = {
        "votes": tuple(Vote(**vote) for vote in row.get("votes") or ()),
        "kept": tuple(Kept(**kept) for kept in row.get("kept") or ()),
    }
    return ProblemResult(**{**row, **nested})


def _schema() -> pyarrow.Schema:
    import pyarrow

    text, whole, real = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    vote = pyarrow.struct([("answer", text), ("count", whole), ("solved", pyarrow.bool_())])
    kept = pyarrow.struct(
        [
            ("sample", whole),
            ("text", text),
            ("tokens", whole),
            ("finish", text),
            ("score", real),
            ("status", text),
            ("note", text),
        ]
    )
    columns = [
        *((name, text) for name in ("task", "domain", "part")),
        *((name, whole) for name in ("level", "index")),
        ("prompt", text),
        *((name, whole) for name in ("samples", "solved", "unanswered", "truncated", "errors")),
        ("length", real),
        ("votes", pyarrow.list_(vote)),
        ("kept", pyarrow.list_(kept)),
    ]
    return pyarrow.schema(columns)
