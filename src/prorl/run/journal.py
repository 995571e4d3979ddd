"""The journal: one JSON object per line, only ever appended, on disk before `append` returns.

It is the truth about a run, so nothing in it vanishes silently: whatever is cut off (a line torn by a crash,
or what lies behind the checkpoint a run resumes from) is first kept in `journal.discarded.jsonl`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prorl.files import StorageError, decode_json, encode_json, explain_no_room, fsync


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The records in order; needs no lock, so it may run beside a trainer.

    A last line that is not whole is left out: a crash tore it, or it is being written at this moment.

    Raises:
        StorageError: a line that is not whole has more lines behind it, which no crash can cause.
    """
    for record, _ in _scan(path):
        yield record


class Journal:
    """The one writer of a journal. Opening it creates the file, or cuts off a last line that a crash tore."""

    def __init__(self, path: Path) -> None:
        """Open for appending.

        Raises:
            StorageError: the journal is damaged before its last line.
        """
        self.path = path
        self.discarded_path = path.with_suffix(".discarded.jsonl")
        path.touch()
        whole = 0
        for _, end in _scan(path):
            whole = end
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        self._size = os.fstat(self._descriptor).st_size
        fsync(path.parent)
        self._cut(whole)

    @property
    def size(self) -> int:
        """Bytes written so far: a position that `truncate` can return to."""
        return self._size

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record and wait until it is on disk; `read` gives it back equal, non-finite numbers too.

        Raises:
            StorageError: no room; the journal is as it was before.
            TypeError: JSON cannot hold the record; nothing was written.
        """
        line = encode_json(record)
        try:
            with explain_no_room(self.path):
                _write(self._descriptor, line)
                os.fsync(self._descriptor)
        except BaseException:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(line)

    def read(self) -> Iterator[dict[str, Any]]:
        """All records in order."""
        return read_journal(self.path)

    def truncate(self, size: int) -> list[dict[str, Any]]:
        """Return to an earlier `size`; what lies behind it is moved to the file of discarded lines, and returned.

        Raises:
            StorageError: `size` is no position of this journal, so it does not belong to the checkpoint.
        """
        if not (0 <= size <= self._size and (size == 0 or os.pread(self._descriptor, 1, size - 1) == b"\n")):
            raise StorageError(
                f"{self.path} has no record that ends at byte {size}, so it does not belong to that checkpoint; "
                "restore the journal from a copy, or start a new run from the checkpoint's weights"
            )
        return self._cut(size)

    def close(self) -> None:
        """Release the file; the journal accepts nothing afterwards."""
        os.close(self._descriptor)

    def _cut(self, size: int) -> list[dict[str, Any]]:
        tail = os.pread(self._descriptor, self._size - size, size)
        if not tail:
            return []
        # Kept first, cut second: a crash in between keeps the lines twice rather than not at all.
        self._keep(tail if tail.endswith(b"\n") else tail + b"\n")
        os.ftruncate(self._descriptor, size)
        os.fsync(self._descriptor)
        self._size = size
        return [record for line in tail.splitlines(keepends=True) if (record := _parse(line)) is not None]

    def _keep(self, lines: bytes) -> None:
        with explain_no_room(self.discarded_path), self.discarded_path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        fsync(self.path.parent)


def _scan(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Each record with the byte position where its line ends; stops before a last line that is not whole."""
    torn: int | None = None
    end = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if torn is not None:
                raise StorageError(
                    f"{path}: line {torn} is damaged and more lines follow it; "
                    "restore the file from a copy, or delete that line and everything behind it"
                )
            record = _parse(line)
            if record is None:
                torn = number
                continue
            end += len(line)
            yield record, end


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = decode_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
