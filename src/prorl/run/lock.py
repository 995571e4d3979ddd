"""One trainer per run: a lock that the kernel releases when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prorl.run.files import StorageError, explain_no_room


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock inside the block; the file says who holds it.

    Raises:
        StorageError: somebody else holds it; the message says which process.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            raise StorageError(
                f"{path.parent} is being trained by {holder or 'another process'}; stop that first"
            ) from error
        with explain_no_room(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
