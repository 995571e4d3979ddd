"""What besides recipe and checkpoint the bits of a result depend on: recorded at every start, compared on resume.

What a run cannot go on without is refused if it changed: its problems and its tokenizer. What only rounds
differently, as another version of torch does, is said and journalled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from prorl.envs.files import StorageError

TOKENIZER, PROBLEMS = "tokenizer", "problems"

_ESSENTIAL = {
    TOKENIZER: "the files in tokenizer/ are not those it was started with: restore them",
    PROBLEMS: "its tasks no longer ask the problems it was started with: restore the code or data of the tasks",
}


def require_same(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check what a run cannot go on without.

    Raises:
        StorageError: it changed since the run was started; the message says what to do.
    """
    for name, remedy in _ESSENTIAL.items():
        if name in before and name in now and before[name] != now[name]:
            raise StorageError(
                f"the run cannot go on exactly, as {remedy}, or go on under what there is now as a new run with "
                "`prorl train --branch`"
            )


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """One sentence about everything that rounds differently now than when it was recorded."""
    for name in sorted((before.keys() & now.keys()) - _ESSENTIAL.keys()):
        if before[name] != now[name]:
            yield (
                f"{name} was {before[name]} and is now {now[name]}: from here on results may differ from those of "
                "an uninterrupted run in their last bits"
            )


def hash_files(folder: Path) -> str:
    """One hash over names and contents of the files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\n{path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
