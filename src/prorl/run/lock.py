"""One trainer per run, one measurer per study: locks that the kernel releases when a holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prorl.envs.files import StorageError, explain_no_room

TRIES, PAUSE = (
    5,
    0.02,
)  # seconds; who only asks whether it is held (`status.holder`) holds it for some microseconds


@contextmanager
def hold_lock(path: Path, *, used: str = "trained") -> Iterator[None]:
    """Hold the lock inside the block; the file says who holds it, and `used` what for.

    Raises:
        StorageError: somebody else holds it; the message says which process.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            _take(descriptor)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            raise StorageError(
                f"{path.parent} is being {used} by {holder or 'another process'}; stop that first"
            ) from error
        with explain_no_room(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> None:
    """Lock exclusively.

    Raises:
        BlockingIOError: somebody else holds the lock, and not only for a moment.
    """
    for left in reversed(range(TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(PAUSE)
