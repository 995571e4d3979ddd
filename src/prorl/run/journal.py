"""The journal: one JSON object per line, only ever appended, on disk before `append` returns.

Each line carries a running hash of itself and all lines before it: damage anywhere is found and reported with its
place, and a checkpoint stores length and hash of the journal that led to it. Whatever is cut off (damage, or what
lies behind the checkpoint a run resumes from) is first kept in `journal.discarded.jsonl`.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from prorl.control.events import Event, to_record
from prorl.control.state import RunState, evolve
from prorl.envs.files import StorageError, decode_json, encode_json, explain_no_room, fsync, replacing
from prorl.run.process import Interrupt, retry_on_full_disk

Watcher = Callable[[Event, RunState], None]

_KEY = b',"chain":"'
_DIGITS = 16  # of the running hash: 64 bits find damage, and are not meant against forgery
_REST = len(_KEY) + _DIGITS + len('"}\n')


class DamagedLineError(StorageError):
    """A line that is not as it was written, or does not follow the line before it."""

    def __init__(self, text: str, start: int) -> None:
        super().__init__(text)
        self.start = start  # byte where the line begins


class Chain:
    """The running hash over the lines of a journal that have been taken in."""

    def __init__(self, name: object = "the journal") -> None:
        """`name` is what messages call the journal."""
        self.lines, self.size, self.hash = 0, 0, ""  # size in bytes
        self._name = name

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """The line of a record that follows here; TypeError if JSON cannot hold it."""
        return self._line(encode_json(record)[:-2])

    def take(self, line: bytes) -> dict[str, Any]:
        """Take in the next line and return its record; the next one may be taken in after a DamagedLineError too."""
        body, start = line[:-_REST], self.size
        whole = line == self._line(body)
        self.skip(line)
        if not whole:
            raise DamagedLineError(f"{self._name} is damaged at line {self.lines} (byte {start})", start)
        record: dict[str, Any] = decode_json(body + b"}")
        return record

    def skip(self, line: bytes) -> None:
        """Go on behind the next line, unchecked: the one after it follows from the hash that this one says."""
        self.hash = line[-_DIGITS - 3 : -3].decode("latin-1")
        self.lines, self.size = self.lines + 1, self.size + len(line)

    def _line(self, body: bytes) -> bytes:
        digest = blake2b(self.hash.encode("latin-1") + body, digest_size=_DIGITS // 2).hexdigest()
        return b'%s%s%s"}\n' % (body, _KEY, digest.encode())


def read_journal(path: Path, size: float = math.inf, chain: Chain | None = None) -> Iterator[dict[str, Any]]:
    """The records in order, all or those that begin before byte `size`; DamagedLineError if one is not whole.

    `chain` takes their lines in.
    """
    chain = chain or Chain(path)
    with path.open("rb") as file:
        for line in file:
            if chain.size < size:
                yield chain.take(line)


def verify_lines(path: Path, size: float = math.inf) -> Chain:
    """The chain of a journal's lines, all or those that begin before byte `size`; DamagedLineError as above."""
    chain = Chain(path)
    for _ in read_journal(path, size, chain):
        pass
    return chain


class Journal:
    """The one writer of a journal. Opening it creates the file; what is damaged in it is no part of it.

    `size` is that of the whole lines so far, which `truncate` can return to.
    """

    def __init__(self, path: Path) -> None:
        """Open for appending. Nothing is cut off before something is written."""
        self.path = path
        self.discarded_path = path.with_suffix(".discarded.jsonl")
        self.damage: DamagedLineError | None = None  # the first, behind the last of the lines that count
        path.touch()
        try:
            self._chain = verify_lines(path)
        except DamagedLineError as error:
            self._chain, self.damage = verify_lines(path, error.start), error
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        fsync(path.parent)

    @property
    def size(self) -> int:
        """Bytes of the whole lines so far."""
        return self._chain.size

    @property
    def position(self) -> dict[str, Any]:
        """Size and running hash, as a checkpoint or reference remembers them."""
        return {"journal_size": self._chain.size, "journal_hash": self._chain.hash}

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record and wait until it is on disk; `read_journal` gives it back equal, non-finite numbers too.

        A file that somebody has deleted or replaced meanwhile is put back. The journal is as it was if there is no
        room (NoRoomError) or JSON cannot hold the record (TypeError).
        """
        line = self._chain.encode(record)
        if self.damage is not None or not os.fstat(self._descriptor).st_nlink:
            self._cut(self._chain)
        append_bytes(self._descriptor, line, self.path)
        self._chain.take(line)

    def behind(self, size: int) -> list[dict[str, Any]]:
        """The whole records behind an earlier `size`, damaged ones left out; StorageError if no record ends there."""
        chain, found = self._at(size), []
        for line in self._tail(chain).splitlines(keepends=True):
            with suppress(DamagedLineError):
                found.append(chain.take(line))
        return found

    def truncate(self, size: int, following: Sequence[Mapping[str, Any]] = ()) -> None:
        """Return to an earlier `size` and go on with `following`, both at once or neither.

        What lay behind it is moved to the file of discarded lines. StorageError if no record ends there.
        """
        self._cut(self._at(size), following)

    def close(self) -> None:
        """Release the file; the journal accepts nothing afterwards."""
        os.close(self._descriptor)

    def _at(self, size: int) -> Chain:
        chain = verify_lines(self.path, min(size, self.size))
        if chain.size != size:
            raise StorageError(
                f"{self.path} has no record that ends at byte {size}, so it does not belong to that checkpoint; "
                "restore the journal from a copy, or start a new run from the checkpoint's weights"
            )
        return chain

    def _tail(self, chain: Chain) -> bytes:
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size - chain.size, chain.size)

    def _cut(self, chain: Chain, following: Sequence[Mapping[str, Any]] = ()) -> None:
        """Keep only the lines that `chain` has taken in, and go on with others."""
        tail, kept = self._tail(chain), os.pread(self._descriptor, chain.size, 0)
        with replacing(self.path) as temporary:
            for record in following:
                line = chain.encode(record)
                chain.take(line)
                kept += line
            temporary.write_bytes(kept)
            # Kept first, cut second: a crash in between keeps the lines twice rather than not at all.
            if tail:
                with self.discarded_path.open("ab") as file:
                    append_bytes(file.fileno(), tail.removesuffix(b"\n") + b"\n", self.discarded_path)
        os.close(self._descriptor)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND)
        self._chain, self.damage = chain, None


class EventLog:
    """Owns the journal and the current state, which changes only here: an event is journalled, folded in, shown.

    Watchers (console, TensorBoard, heartbeat) see each event with the state after it, and change nothing. With
    `interrupt`, an event for which the disk has no room waits until there is some.
    """

    def __init__(
        self,
        journal: Journal,
        state: RunState,
        watchers: Sequence[Watcher] = (),
        interrupt: Interrupt | None = None,
    ) -> None:
        self._journal, self._watchers, self._interrupt = journal, tuple(watchers), interrupt
        self.state = state

    def record(self, event: Event) -> RunState:
        """Journal an event (it is on disk when this returns), fold it into the state and show it.

        If the disk is full and nobody waits (NoRoomError), nothing has happened.
        """
        retry_on_full_disk(lambda: self._journal.append(to_record(event)), self._interrupt)
        return self.take_in(event)

    def take_in(self, event: Event) -> RunState:
        """Fold in and show an event that the journal has."""
        self.state = evolve(self.state, event)
        for watch in self._watchers:
            watch(event, self.state)
        return self.state


def append_bytes(descriptor: int, data: bytes, path: Path) -> None:
    """Append to a file and wait until it is on disk; if that fails (NoRoomError), the file is as it was."""
    size = os.fstat(descriptor).st_size
    try:
        with explain_no_room(path):
            _write(descriptor, data)
            os.fsync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, size)
        raise


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
