"""Rows of a source, from the hub or from local files, with the columns its layout needs.

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

from prorl.tasks.datasets.catalogue import Source
from prorl.tasks.datasets.records import DataError, SourceRequest

PEEK = 100  # rows in which a column must appear at least once
BATCH = 256  # rows decoded at a time
MAX_REASON = 160  # characters of somebody else's message that are passed on

Row = Mapping[str, Any]


def read(source: Source, request: SourceRequest) -> Iterator[Row]:
    """The rows of a source as field → value, at most as many as the request's limit.

    A field without its column in a row is missing there. Rows of the same file that belong to something else,
    which the source's `where` tells by their values, are passed over.

    Raises:
        DataError: the data is out of reach or unreadable, or lacks a column.
    """
    raw = hub_rows(source, request) if request.path is None else local_rows(Path(request.path), source)
    head = list(islice(raw, PEEK))
    columns = match_columns(source, request, {column for row in head for column in row})
    rows = (
        {field: row[column] for field, column in columns.items() if column in row} for row in chain(head, raw)
    )
    return islice((row for row in rows if _belongs(row, source)), request.limit)


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
        if column is not None and column in found:
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


def local_rows(path: Path, source: Source) -> Iterator[Row]:
    """Rows of one Parquet, JSONL or CSV file, or of a folder laid out as the source is on the hub.

    Raises:
        DataError: no such file, an unknown kind of file, or one that cannot be read.
    """
    local_files(path)
    readers = {".parquet": _parquet_rows, ".jsonl": _json_rows, ".json": _json_rows, ".csv": _csv_rows}
    if path.is_file() and path.suffix not in readers:
        raise DataError(f"{path}: write rows as Parquet, JSONL or CSV, not as {path.suffix or 'this'}")
    rows = _folder_rows(path, source) if path.is_dir() else readers[path.suffix](path)
    try:
        yield from rows
    except (ValueError, OSError) as error:  # pyarrow's and json's errors are ValueErrors
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


def _belongs(row: Row, source: Source) -> bool:
    return all(row[field] in kept for field, kept in source.where.items() if field in row)


def _first_match(patterns: Collection[str], found: Collection[str]) -> str | None:
    matches = (column for pattern in patterns for column in sorted(found) if fnmatchcase(column, pattern))
    return next(matches, None)


def _parquet_rows(path: Path) -> Iterator[Row]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=BATCH):
            yield from batch.to_pylist()


def _json_rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError(f"line {number} is no JSON object; write one per line")
                yield row


def _csv_rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


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
