"""Child processes, which judge or compute: how they are started, ended, and told of where they were replaced."""

import multiprocessing
import os
import signal
import socket
import struct
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from typing import Any

from prorl.envs.seeds import HASHING

MAX_REASONS = 300  # characters, of why processes were replaced
CLOSE_SECONDS = 1.0
SEND_SECONDS = 60  # in which a process that is idle must take a message


@contextmanager
def without_main() -> Iterator[None]:
    """Processes that are started inside do not import the user's script, which would train once more in each.

    Whatever they need is in an importable module.
    """
    main = vars(sys.modules["__main__"])
    kept: dict[str, Any] = {name: main.pop(name) for name in ("__file__", "__spec__") if name in main}
    main["__spec__"] = None
    try:
        yield
    finally:
        del main["__spec__"]
        main |= kept


def fork_server() -> Any:
    """The context of worker processes: they are forked from one without threads, which begins to import at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["prorl.local.workers"])
    os.environ |= {**HASHING, **os.environ}
    with without_main(), suppress(OSError):  # of which whoever starts a process will tell
        forkserver.ensure_running()
    return context


class Child:
    """A process and our end of a pipe to it. A message of which it takes nothing for `SEND_SECONDS` raises OSError,
    and a part of it may be in the pipe."""

    def __init__(self, context: Any, name: str, target: Callable[..., None], *arguments: object) -> None:
        """Start it with the other end and the arguments."""
        self.connection, theirs = context.Pipe()
        os.environ |= {**HASHING, **os.environ}
        self.process = context.Process(target=target, args=(theirs, *arguments), name=name, daemon=True)
        with without_main():
            self.process.start()
        theirs.close()
        with socket.socket(fileno=os.dup(self.connection.fileno())) as pipe:
            pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
        self.ready = False

    def kill(self) -> None:
        """End the process and everything it started where it leads a process group of its own."""
        with suppress(OSError):  # it leads none, or not yet
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(CLOSE_SECONDS)
        self.connection.close()


def end_all(children: Sequence[Child]) -> None:
    """End processes, by force after a second."""
    for child in children:
        child.connection.close()  # an idle one reads the end of its input and leaves
    patience = time.monotonic() + CLOSE_SECONDS
    for child in children:
        child.process.join(max(0.0, patience - time.monotonic()))
        child.kill()


def replacements(reasons: Counter[str], sentence: str) -> list[str]:
    """How many were replaced and why, put into a sentence for the journal; nothing where none was."""
    why = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common())
    return [sentence.format(textwrap.shorten(why, MAX_REASONS, placeholder=" …"))] if reasons else []
