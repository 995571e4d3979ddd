"""Files that are either whole and on disk, or not there at all.

Every durable write of a run goes through here: written aside, fsynced, renamed into place, folder fsynced.
A full disk leaves the old content untouched and becomes one `StorageError` that says what to do.
"""

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from prorl.envs.errors import ProrlError

TEMPORARY = ".tmp-"  # part of the name of everything unfinished; such names also begin with a dot

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk full, quota used up, size limit of the process
_NON_FINITE = ("NaN", "Infinity", "-Infinity")


class StorageError(ProrlError):
    """The run's files cannot be read or written; the message says what is wrong and what to do."""


class NoRoomError(StorageError):
    """There is no room for a write; nothing of it stays behind, and it can be tried again."""


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replace `path` by `data` (text as UTF-8), wholly or not at all, as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place, on disk, once the block has written it without an error.

    Raises StorageError: no room; the old content is untouched and no temporary file stays behind.
    """
    temporary = temporary_name(path)
    try:
        with explain_no_room(path):
            yield temporary
            fsync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync(path.parent)


@contextmanager
def making(folder: Path, replaced: Path | None = None) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its name, on disk, once the block has filled it without error.

    What was there moves to `replaced` first, and is then deleted. Raises StorageError: no room; OSError: there is
    such a folder, and no `replaced`. Then what was there is as it was, and nothing new stays behind.
    """
    temporary = temporary_name(folder)
    try:
        with explain_no_room(folder):
            temporary.mkdir(parents=True)
            yield temporary
            fsync_tree(temporary)
        if replaced is not None and folder.exists():
            folder.rename(replaced)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    fsync(folder.parent)
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)


def temporary_name(path: Path) -> Path:
    """A fresh name beside `path` for its unfinished content: same file system, so a rename is atomic."""
    return path.with_name(f".{path.name}{TEMPORARY}{secrets.token_hex(4)}")


def fsync(path: Path) -> None:
    """Force one file's content, or one folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Force every file and folder below `folder`, and `folder` itself, to disk; links are not followed."""
    for path in (*folder.rglob("*"), folder):
        if not path.is_symlink():
            fsync(path)


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_folder(folder: Path) -> str:
    """One hash over names, relative to it, and contents of all files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\n{path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)  # goes on with the same hash
    return digest.hexdigest()[:16]


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write to the disk that holds `path` (or its nearest existing parent)."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free


@contextmanager
def explain_no_room(target: Path) -> Iterator[None]:
    """Turn "no room" inside the block, however the writer says it, into a `NoRoomError` about `target`."""
    try:
        yield
    except Exception as error:
        reason = _no_room(error)
        if reason is None:
            raise
        raise NoRoomError(
            f"cannot write {target}: {reason} ({decimal(free_bytes(target))} free); "
            "free some space or move the run to a larger disk, then resume"
        ) from error


def _no_room(error: BaseException | None) -> str | None:
    """The system's words for "no room" if that is behind `error` or anything it was raised from."""
    while error is not None:
        for code in _NO_ROOM:
            # safetensors (Rust) does not raise OSError, but its message carries the system's words.
            if (isinstance(error, OSError) and error.errno == code) or os.strerror(code) in str(error):
                return os.strerror(code)
        error = error.__cause__ or error.__context__
    return None


def storable(text: str) -> str:
    """Text that UTF-8 can hold: half a surrogate pair, which a tokenizer may leave, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def encode_json(value: Any, *, indent: int | None = None) -> bytes:
    """Strict JSON in UTF-8 with a final newline.

    JSON has no non-finite numbers, so they become the strings "NaN", "Infinity" and "-Infinity", which `decode_json`,
    Python's `float()`, pydantic and JavaScript's `Number()` all turn back. Raises TypeError: a value that JSON cannot
    hold, or a key that is no string (it would come back as one).
    """
    style: dict[str, Any] = {"indent": indent} if indent is not None else {"separators": (",", ":")}
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=False, **style)
    # Half a surrogate pair, which a tokenizer may leave, has no UTF-8; as a JSON escape it survives exactly.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def decode_json(data: bytes) -> Any:
    """What `encode_json` wrote, as dicts and lists; not for texts, for one that is just "NaN" becomes a number.

    Raises ValueError: not JSON.
    """
    try:
        value = json.loads(data)
        return _revive(value) if b'NaN"' in data or b'Infinity"' in data else value
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _revive(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _revive(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_revive(inner) for inner in value]
    return float(value) if value in _NON_FINITE else value


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"JSON keys are strings, not {key!r}; convert the key before storing it")
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
