"""Rows of a source, from the hub or from local files, with the columns its layout needs; and loosely typed cells.

Invariant: whatever goes wrong here, out of reach, gated, unreadable or laid out otherwise, is one `DataError` that
says what to download or write and where.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path
from typing import Any

from prorl.envs.datasets.catalogue import DataError, Drop, Source, SourceRequest

PEEK = 100  # rows in which a column must appear at least once
BATCH = 256  # rows decoded at a time
MAX_REASON = 160  # characters of somebody else's message that are passed on
MAX_CSV_CELL = 64 << 20  # characters; Python's own limit of 128 KiB is less than some lists of tests

ABSENT = object()  # a cell that a row does not have, where None is a value

Row = Mapping[str, Any]


def read(source: Source, request: SourceRequest) -> Iterator[tuple[int, Row | Drop]]:
    """The rows of a source as field → value with their numbers from 1, at most as many as the request's limit.

    A row that cannot be read is a `Drop`. A field without its column in a row is missing there. Rows of the same
    file that belong to something else, which the source's `where` tells by their values, are passed over.

    Raises:
        DataError: the data is out of reach or unreadable, or lacks a column.
    """
    raw = hub_rows(source, request) if request.path is None else local_rows(Path(request.path), source)
    head = list(islice(raw, PEEK))
    found = {column for row in head if not isinstance(row, Drop) for column in row}
    columns = match_columns(source, request, found)
    return islice(_chosen(chain(head, raw), columns, source), request.limit)


def _chosen(
    rows: Iterator[Row | Drop], columns: Mapping[str, str], source: Source
) -> Iterator[tuple[int, Row | Drop]]:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Drop):
            cells = ((field, _cell(row, column)) for field, column in columns.items())
            row = {field: cell for field, cell in cells if cell is not ABSENT}
            if any(field in row and row[field] not in kept for field, kept in source.where.items()):
                continue
        yield number, row


def match_columns(source: Source, request: SourceRequest, found: Collection[str]) -> dict[str, str]:
    """Field → column: what the request says, else the first pattern of the catalogue that a column found matches.

    Raises:
        DataError: a column that is not there, or an override for a field that the source does not have.
    """
    known = {**source.columns, **source.optional}
    where = f"tasks.{source.name}.columns"
    unknown = sorted(set(request.columns) - set(known))
    if unknown:
        raise DataError(f"{where}: no field {', '.join(unknown)}; the fields are {', '.join(known)}")
    matched: dict[str, str] = {}
    for field, patterns in known.items():
        column = request.columns.get(field) or _first_match(patterns, found)
        if column is not None and (column in found or column.partition(".")[0] in found):
            matched[field] = column
        elif field in source.columns or field in request.columns:
            wanted = request.columns.get(field) or " or ".join(patterns)
            raise DataError(
                f"{source.name} has no column {wanted}, only {', '.join(sorted(found)) or 'no rows at all'}: "
                f"say which one holds it, {where}.{field}=COLUMN"
            )
    return matched


def local_files(path: Path) -> tuple[Path, ...]:
    """The files that a local path means, in a fixed order.

    Raises:
        DataError: there are none.
    """
    files = (path,) if path.is_file() else tuple(sorted(file for file in path.rglob("*") if file.is_file()))
    if not files:
        raise DataError(
            f"{path} is no file or is empty: say where the data lies, or drop `path` to use the hub"
        )
    return files


def local_rows(path: Path, source: Source) -> Iterator[Row | Drop]:
    """Rows of one Parquet, JSON, JSONL or CSV file, or of a folder laid out as the source is on the hub.

    Raises:
        DataError: no such file, an unknown kind of file, or one that cannot be read.
    """
    local_files(path)
    readers = {".parquet": _parquet_rows, ".jsonl": _json_rows, ".json": _json_rows, ".csv": _csv_rows}
    if path.is_file() and path.suffix not in readers:
        raise DataError(f"{path}: write rows as Parquet, JSON, JSONL or CSV, not as {path.suffix or 'this'}")
    rows = _folder_rows(path, source) if path.is_dir() else readers[path.suffix](path)
    try:
        yield from rows
    except (ValueError, OSError, RecursionError, csv.Error) as error:  # pyarrow's and json's are ValueErrors
        raise DataError(f"cannot read {path}: {_reason(error)}") from error


def hub_rows(source: Source, request: SourceRequest) -> Iterator[Row]:
    """Rows from the hub; with a limit they are streamed, so that only what is needed is downloaded.

    Raises:
        DataError: the hub cannot be reached or refuses.
    """
    from datasets import load_dataset

    try:
        yield from load_dataset(
            source.hub,
            source.config,
            split=source.split,
            revision=request.revision,
            streaming=request.limit is not None,
        )
    except Exception as error:  # a dozen kinds from three libraries, and all mean the same here
        login = " (accept its terms on the hub and run `hf auth login` first)" if source.gated else ""
        raise DataError(
            f"cannot get {source.name} from the hub ({published_at(source)}: {_reason(error)}): where there is a "
            f"network, `hf download {source.hub} --repo-type dataset --local-dir DIR`{login}, then say "
            f"tasks.{source.name}.path=DIR"
        ) from error


def published_at(source: Source) -> str:
    """Where a source lies on the hub, in words."""
    config = f", config {source.config}" if source.config else ""
    return f"{source.hub}{config}, split {source.split}"


def _cell(row: Row, column: str) -> Any:
    """What stands in a column, where dots lead into nested ones; ABSENT if nothing does."""
    if column in row:
        return row[column]
    first, _, rest = column.partition(".")
    nested = row.get(first)
    return _cell(nested, rest) if rest and isinstance(nested, Mapping) else ABSENT


def _first_match(patterns: Collection[str], found: Collection[str]) -> str | None:
    matches = (column for pattern in patterns for column in sorted(found) if fnmatchcase(column, pattern))
    return next(matches, None)


def _parquet_rows(path: Path) -> Iterator[Row]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=BATCH):
            yield from batch.to_pylist()


def _json_rows(path: Path) -> Iterator[Row | Drop]:
    """The objects of one JSON array, or of lines with one each."""
    with path.open("rb") as file:
        if path.suffix == ".json" and file.read(MAX_REASON).lstrip().startswith(b"["):
            file.seek(0)
            yield from (_object(row, str(row)) for row in json.load(file))
            return
        file.seek(0)
        for line in file:
            text = line.decode("utf-8", "backslashreplace")
            try:
                if line.strip():
                    yield _object(json.loads(line), text)
            except (ValueError, RecursionError):
                yield Drop("a line that is no JSON", text)


def _object(value: Any, text: str) -> Row | Drop:
    return value if isinstance(value, dict) else Drop("no JSON object", text)


def _csv_rows(path: Path) -> Iterator[Row | Drop]:
    """Rows by the header; bytes that are no UTF-8 become surrogates, by which the row is dropped later."""
    csv.field_size_limit(MAX_CSV_CELL)
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        for row in csv.DictReader(file):
            yield Drop("more cells than columns", str(row)) if None in row else row


def _folder_rows(path: Path, source: Source) -> Iterator[Row]:
    from datasets import load_dataset

    try:
        yield from load_dataset(str(path), source.config, split=source.split, streaming=True)
    except Exception as error:  # as above
        raise DataError(
            f"{path} does not hold {published_at(source) if source.hub else 'one data set'} ({_reason(error)}): "
            f"say the file itself, tasks.{source.name}.path=FILE"
        ) from error


def _reason(error: BaseException) -> str:
    """The first line of an error, short."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text if len(text) <= MAX_REASON else text[:MAX_REASON] + "…"


def as_text(value: Any) -> str:
    """A cell as stripped text; None is empty, and 142.0 is "142"."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def user_text(value: Any) -> str:
    """What the user says: a text, the last user message of a chat, or of the chat under `input`.

    System prompts are dropped on purpose: Eurus-2's names actions that nothing else here knows.

    Raises:
        Drop: nothing is said.
    """
    if isinstance(value, Mapping):
        value = value.get("input")
    if isinstance(value, list | tuple):
        spoken = [
            turn.get("content") for turn in value if isinstance(turn, Mapping) and turn.get("role") == "user"
        ]
        value = spoken[-1] if spoken else None
    if not isinstance(value, str) or not value.strip():
        raise Drop("no prompt")
    return value.strip()


def parsed(value: Any) -> Any:
    """Strict JSON where a cell holds it as text (else a `Drop`); anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Drop("a cell that is no JSON") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
