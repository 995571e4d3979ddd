"""The operator's commands: one JSON object per line, appended by anybody, read by the trainer between steps.

Nothing is ever taken out of the inbox. Which commands have been obeyed is known by the run's own state (how many
bytes were read), so one is obeyed exactly once in the journal that holds, however often the trainer dies.
A last line without its end is still being written, or its writer died; it counts once it is whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any

from prorl.envs.files import StorageError, encode_json
from prorl.run.journal import append_bytes

INBOX = "inbox.jsonl"
UNREADABLE = "unreadable"  # the name of a line that is no command
MAX_LINE = 16_384  # bytes
EXCERPT = 80  # characters of an unreadable line that are journalled
_ID = re.compile(r"[0-9a-f]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What an operator wants: `set` with recipe keys and values, `note` with a text, or just a word."""

    id: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    end: int = 0  # byte up to which an inbox has been read that it was found in


def new_command(name: str, *, settings: Mapping[str, Any] | None = None, text: str = "") -> Command:
    """A command under an id of its own."""
    return Command(id=secrets.token_hex(6), name=name, settings=settings or {}, text=text)


def send(path: Path, command: Command) -> None:
    """Append a command; it is on disk, whole, when this returns. StorageError if it has no room or is too long."""
    line = encode_json({name: value for name, value in asdict(command).items() if name != "end"})
    if len(line) > MAX_LINE:
        raise StorageError(f"a command may have {MAX_LINE:,} bytes, not {len(line):,}: say it shorter")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # against other senders; the trainer only reads
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        append_bytes(descriptor, b"\n" + line if torn else line, path)
    finally:
        os.close(descriptor)


def next_command(path: Path, position: int, last: str) -> Command | None:
    """The first command behind byte `position`, which is where the command `last` ended; None while there is none.

    A line that is no command comes as one that is `UNREADABLE`. So does, as a whole, an inbox that was changed by
    hand so that it no longer tells what has been obeyed: to obey a command twice would be worse than never.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if position > len(data) or (position and data[position - 1 : position] != b"\n"):
        found = _end_of(data, last)
        if found is None:
            whole = data.rfind(b"\n") + 1
            lost = "the inbox was changed by hand; what it holds is not obeyed, give the commands again"
            return Command(id="", name=UNREADABLE, text=lost, end=whole) if whole else None
        position = found
    while end := data.find(b"\n", position) + 1:
        line = data[position : end - 1]
        if line.strip():
            excerpt = line[:EXCERPT].decode(errors="replace")
            return replace(_parse(line) or Command(id="", name=UNREADABLE, text=excerpt), end=end)
        position = end
    return None


def _parse(line: bytes) -> Command | None:
    """The command that a line holds; None for everything else, whatever it is."""
    if len(line) > MAX_LINE:
        return None
    try:
        command = Command(**json.loads(line))
        texts = all(isinstance(text, str) for text in (command.id, command.name, command.text))
        plain = all(isinstance(value, (str, int, float, NoneType)) for value in command.settings.values())
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    if not (texts and plain and _ID.fullmatch(command.id)) or command.end:
        return None
    return replace(command, text=" ".join(command.text.split()))


def _end_of(data: bytes, last: str) -> int | None:
    """Where the line of the command `last` ends."""
    position = 0
    for line in data.split(b"\n")[:-1]:
        position += len(line) + 1
        command = _parse(line)
        if command is not None and command.id == last:
            return position
    return None
