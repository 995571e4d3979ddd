"""Data sets: which are known (`catalogue.toml`), and the rows of one, read from the hub or from local files.

Invariant: a source that cannot be used at all is a `DataError`, one sentence that says what to download or write and
where; a row that cannot is a `Drop`, which is counted and never stops a preparation.
"""

import csv
import json
import re
import tomllib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from prorl.envs.errors import ProrlError
from prorl.envs.files import sha256

PEEK = 100  # rows in which a column must appear at least once
BATCH = 256  # rows decoded at a time
MAX_REASON = 160  # characters of somebody else's message that are passed on
MAX_CSV_CELL = 64 << 20  # characters; Python's own limit of 128 KiB is less than some lists of tests

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")

ABSENT = object()  # a cell that a row does not have, where None is a value

Kind = Literal["math", "choice", "quantity", "code", "instructions"]
"""How answers of a row are judged; also what a recipe says of a data set of its own."""

PROGRAMS = ("tests", "asserts", "contest")
"""Layouts of rows whose answers are programs, which a sandbox runs."""

Columns = Mapping[str, tuple[str, ...]]
Row = Mapping[str, Any]


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
    graded: bool = False  # likewise, judged by a reward function of the user's own
    # A file (Parquet, JSON, JSONL, CSV), a folder laid out as on the hub, or a hub id.
    path: str | None = None
    domain: str | None = None  # default: that of the kind
    columns: Mapping[str, str] = field(default_factory=dict)  # field → column, or column.key for a nested one
    # Its last match in the answer's column is the answer, or its first group.
    answer_pattern: str | None = None
    limit: int | None = None  # rows to read at most
    subset: str | None = None  # of the hub's data set; default: as the catalogue says, or its only one
    split: str | None = None  # default: as the catalogue says, or train
    # Of the hub's repository; default: its newest. Of local rows: a hash of their content.
    revision: str | None = None

    @property
    def own(self) -> bool:
        """Whether the recipe describes the rows, and not the catalogue."""
        return self.kind is not None or self.graded

    @property
    def local(self) -> Path | None:
        """The file or folder that the rows are read from; None for a hub id, `name/name` where nothing lies."""
        if self.path is None:
            return None
        path = Path(self.path)
        is_id = self.own and _HUB_ID.fullmatch(self.path) and path.suffix not in READERS and not path.exists()
        return None if is_id else path

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the rows are read from; empty for a hub id. Raises DataError: there are none."""
        return () if self.local is None else local_files(self.local)

    @property
    def content(self) -> list[str]:
        """Hashes of these files, as they are now."""
        return [sha256(file) for file in self.files]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One data set: where it lies, how it is written, what it is for."""

    name: str
    domain: str
    layout: str  # how it writes its rows; `catalogue.toml` describes each
    use: Literal["train", "evaluation"]
    hub: str | None = None  # None: only from a local path
    config: str | None = None
    split: str = "train"
    columns: Columns  # field → patterns of column names, the first that is there wins
    optional: Columns = field(default_factory=dict)
    where: Columns = field(default_factory=dict)  # optional field → values that are kept
    rows: int | None = None  # as published, after `where`
    licence: str = "unknown"
    gated: bool = False  # the hub asks for an accepted licence and a login
    note: str = ""

    @property
    def published(self) -> str:
        """Where it lies on the hub, in words."""
        config = f", config {self.config}" if self.config else ""
        return f"{self.hub}{config}, split {self.split}"


_FILE = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))

VERSION: int = _FILE["version"]
KINDS: Mapping[Kind, Mapping[str, Any]] = _FILE["kinds"]


def _source(name: str, facts: Mapping[str, Any]) -> Source:
    columns = _FILE["columns"][facts["layout"]]
    columns = _FILE["columns"][columns] if isinstance(columns, str) else columns
    return Source(name=name, **{"columns": columns, **facts})


SOURCES = MappingProxyType({name: _source(name, facts) for name, facts in _FILE["sources"].items()})
"""Every known data set by name."""


def resolve(request: SourceRequest) -> Source:
    """The source that a request means: of the catalogue by name, or the recipe's own, which says its path.

    Raises DataError: an own one of a known name.
    """
    name = request.name
    if not request.own:
        known = SOURCES[name]
        return replace(known, config=request.subset or known.config, split=request.split or known.split)
    if name in SOURCES:
        raise DataError(
            f"tasks.{name}: a known data set, whose kind is fixed: drop `kind` or `grade`, or choose another name"
        )
    if request.kind:
        facts = {fact: KINDS[request.kind][fact] for fact in ("domain", "layout")}
    else:
        optional = {"answer": _FILE["columns"]["short_answer"]["answer"]}
        facts = {"domain": "own", "layout": "own", "optional": optional}
    facts |= {"domain": request.domain} if request.domain else {}
    facts |= {} if request.local else {"hub": request.path}
    facts |= {"config": request.subset, "split": request.split or "train"}
    return _source(name, {"use": "train", "licence": "your own", **facts})


def read(request: SourceRequest) -> Iterator[tuple[int, Row | Drop]]:
    """The rows of the source that a request means as field → value with their numbers from 1, at most its limit.

    A row that cannot be read is a `Drop`. A field without its column in a row is missing there. Rows of the same file
    that belong to something else, which the source's `where` tells by their values, are passed over. Raises
    DataError: the data is out of reach or unreadable, or lacks a column.
    """
    source, local = resolve(request), request.local
    if local is not None and not local.is_dir() and (request.subset or request.split):
        raise DataError(f"{source.name}: {local} is one file, of which `subset` and `split` choose nothing")
    raw = _published_rows(source, request) if local is None or local.is_dir() else file_rows(local)
    head = list(islice(raw, PEEK))
    if not head:
        raise DataError(f"{source.name}: {local or source.hub} holds no rows")
    rows = [row for row in head if not isinstance(row, Drop)]
    found = {column for row in rows for column in _names(row)}
    found |= {
        said for said in request.columns.values() if any(_cell(row, said) is not ABSENT for row in rows)
    }
    columns = match_columns(source, request, found) if rows else {}  # all are drops, of which one is shown
    alpaca = columns.get("prompt") == "instruction" and "prompt" not in request.columns
    count = 0
    for number, row in enumerate(chain(head, raw), start=1):
        if not isinstance(row, Drop):
            cells = ((name, _cell(row, column)) for name, column in columns.items())
            whole, row = row, {name: cell for name, cell in cells if cell is not ABSENT}
            if any(name in row and row[name] not in kept for name, kept in source.where.items()):
                continue
            if alpaca and row.get("prompt") and whole.get("input"):
                row["prompt"] = f"{row['prompt']}\n\n{whole['input']}"
            if source.layout == "own":
                row["row"] = whole
            if request.answer_pattern is not None and "answer" in row:
                said = "" if isinstance(row["answer"], bool) else as_text(row["answer"])
                matched = [
                    match[min(1, match.re.groups)] for match in re.finditer(request.answer_pattern, said)
                ]
                if matched and matched[-1]:
                    row["answer"] = matched[-1]
                else:
                    row = Drop("no answer where answer_pattern looks for it", str(whole))
        yield number, row
        count += 1
        if count == request.limit:
            return


def match_columns(source: Source, request: SourceRequest, found: Collection[str]) -> dict[str, str]:
    """Field → column: what the request says, else the first pattern of the catalogue that a column found matches.

    Raises DataError: a column that is not there, or an override for a field that the source does not have.
    """
    known = {**source.columns, **source.optional}
    where = f"tasks.{source.name}.columns"
    if unknown := sorted(set(request.columns) - set(known)):
        raise DataError(f"{where}: no field {', '.join(unknown)}; the fields are {', '.join(known)}")
    matched: dict[str, str] = {}
    for name, patterns in known.items():
        matches = (one for pattern in patterns for one in sorted(found) if fnmatchcase(one, pattern))
        column = request.columns.get(name) or next(matches, None)
        if column is not None and column in found:
            matched[name] = column
        elif name in source.columns or name in request.columns:
            wanted = request.columns.get(name) or " or ".join(patterns)
            raise DataError(
                f"{source.name} has no column {wanted}, only {', '.join(sorted(found)) or 'empty rows'}: "
                f"say which one holds it, {where}.{name}=COLUMN"
            )
    return matched


def _cell(row: Row, column: str) -> Any:
    """What stands in a column, where dots lead into nested ones; ABSENT if nothing does."""
    if column in row:
        return row[column]
    first, _, rest = column.partition(".")
    nested = row.get(first)
    return _cell(nested, rest) if rest and isinstance(nested, Mapping) else ABSENT


def as_text(value: Any) -> str:
    """A cell as stripped text; None and what is no finite number are empty, and 142.0 is "142"."""
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _names(row: Row) -> Iterator[str]:
    """The columns of a row, and those nested in them."""
    for column, cell in row.items():
        yield column
        if isinstance(cell, Mapping):
            yield from (f"{column}.{key}" for key in cell)


def local_files(path: Path) -> tuple[Path, ...]:
    """The files that a local path means, in a fixed order. Raises DataError: there are none."""
    files = (path,) if path.is_file() else tuple(sorted(file for file in path.rglob("*") if file.is_file()))
    if not files:
        raise DataError(
            f"{path} is no file or folder with rows: say where they lie, relative to the recipe or to {Path.cwd()}"
        )
    return files


def _published_rows(source: Source, request: SourceRequest) -> Iterator[Row]:
    """Rows of the hub, or of a folder laid out as there; streamed where not all of them may be needed."""
    from datasets import load_dataset
    from datasets.data_files import FILES_TO_IGNORE

    folder = request.local
    if folder is not None:
        files = [file.relative_to(folder) for file in local_files(folder) if file.name not in FILES_TO_IGNORE]
        seen = [file for file in files if not any(part.startswith((".", "__")) for part in file.parts)]
        kinds = {Path(file.name.removesuffix(".gz")).suffix for file in seen} & READERS.keys()
        if len(kinds) > 1 and kinds != {".json", ".jsonl"} and not source.hub:
            raise DataError(
                f"{folder} holds rows as {' and '.join(sorted(kinds))}, of which one kind would be read: keep one"
            )
    place, streaming = str(folder or source.hub), folder is not None or request.limit is not None
    revision = None if folder is not None else request.revision
    asked = {"split": source.split, "revision": revision, "streaming": streaming}
    try:
        yield from load_dataset(place, source.config, **asked)
    except Exception as error:  # a dozen kinds from three libraries, and all mean the same here
        reason, name = _reason(error), source.name
        if folder is not None:
            raise DataError(
                f"{folder} does not hold {source.published if source.hub else 'one data set'} ({reason}): "
                f"say the file itself, tasks.{name}.path=FILE"
            ) from error
        reason += f"; {place} is no file or folder here either" if request.own else ""
        login = " (accept its terms on the hub and run `hf auth login` first)" if source.gated else ""
        raise DataError(
            f"cannot get {name} from the hub ({source.published}: {reason}): where there is a network, "
            f"`hf download {source.hub} --repo-type dataset --local-dir DIR`{login}, then say tasks.{name}.path=DIR"
        ) from error


def file_rows(path: Path) -> Iterator[Row | Drop]:
    """The rows of a Parquet, JSON, JSONL or CSV file; a `DataError` where it cannot be read."""
    local_files(path)
    if path.suffix not in READERS:
        raise DataError(f"{path}: write rows as Parquet, JSON, JSONL or CSV, not as {path.suffix or 'this'}")
    try:
        yield from READERS[path.suffix](path)
    except Exception as error:  # of json, csv, pyarrow; and Python has no dates beyond the year 9999
        raise DataError(f"cannot read {path}: {_reason(error)}") from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=BATCH):
            yield from batch.to_pylist()


def _json_rows(path: Path) -> Iterator[Row | Drop]:
    """The objects of one JSON array, or of lines with one each."""
    with path.open("rb") as file:
        begins = file.read(MAX_REASON).removeprefix(BOM_UTF8).lstrip()
        file.seek(0)
        is_array = path.suffix == ".json" and begins.startswith(b"[")
        for item in json.load(file) if is_array else filter(bytes.strip, file):
            try:
                row = item if is_array else json.loads(item)
            except (ValueError, RecursionError):
                yield Drop("a line that is no JSON", item.decode("utf-8", "backslashreplace"))
            else:
                yield row if isinstance(row, dict) else Drop("no JSON object", str(row))


def _csv_rows(path: Path) -> Iterator[Row | Drop]:
    """Rows by the header; bytes that are no UTF-8 become surrogates, by which the row is dropped later."""
    csv.field_size_limit(MAX_CSV_CELL)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader, begin = csv.DictReader(file, strict=True), 2  # else an open quote takes later rows along
        try:
            if twice := [name for name, times in Counter(reader.fieldnames or ()).items() if times > 1]:
                raise ValueError(f"more than one column is called {twice[0]!r}")
            for row in reader:
                yield Drop("more cells than columns", str(row)) if None in row else row
                begin = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(f"row at line {begin}: {error}; double the quotes in a cell") from error


READERS = {".parquet": _parquet_rows, ".jsonl": _json_rows, ".json": _json_rows, ".csv": _csv_rows}
"""How a file is read, by its suffix."""


def _reason(error: BaseException) -> str:
    """The first line of an error, short."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text if len(text) <= MAX_REASON else text[:MAX_REASON] + "…"
