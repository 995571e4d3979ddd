"""Processes of this machine as an operator sees them: their states, their children, and a shell at a terminal."""

import os
import pty
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 120.0  # seconds, on a busy machine


def eventually(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def state(pid: int) -> str:
    """A process's state as /proc has it (R, S, D, T, Z …); empty if there is no such process."""
    fields = _fields(pid)
    return fields[0] if fields else ""


def parent(pid: int) -> int:
    """The process that a process belongs to; 0 if there is no such process."""
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def descendants(pid: int) -> set[int]:
    """All descendants of a process that still run, found in one look."""
    parents = {int(path.name): _fields(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found, size = {pid}, 0
    while size < len(found):
        size = len(found)
        found |= {child for child, fields in parents.items() if fields and int(fields[1]) in found}
    return {one for one in found - {pid} if parents[one][0] not in "ZX"}


def command(pid: int) -> str:
    """A process's command line."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _fields(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


class Terminal:
    """A shell with job control at a terminal of its own, and its person."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self.screen = ""
        self.jobs: dict[int, str] = {}  # what ran when the window was closed, and its commands
        self._descriptor = descriptor

    def type(self, keys: str) -> None:
        """Press keys."""
        self.read()
        os.write(self._descriptor, keys.encode())

    def read(self, seconds: float = 0.0) -> bool:
        """Take in what the screen shows; whether there was anything within the seconds."""
        with suppress(OSError):
            if select.select([self._descriptor], [], [], seconds)[0]:
                self.screen += os.read(self._descriptor, 1 << 16).decode(errors="replace")
                return True
        return False

    def until(self, true: Callable[[], bool]) -> None:
        """Wait until something holds, while the screen is read."""
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, self.screen
            if not self.read(0.05):
                time.sleep(0.02)

    def expect(self, text: str) -> None:
        """Wait until a text is on the screen."""
        self.until(lambda: text in self.screen)

    def close(self) -> None:
        """Close the window: the shell and its jobs hear SIGHUP."""
        if self._descriptor >= 0:
            self.jobs = {pid: command(pid) for pid in descendants(self.pid)}
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def shell() -> Iterator[Terminal]:
    """An interactive bash at a terminal; nothing of it is left afterwards."""
    pid, descriptor = pty.fork()
    if pid == 0:
        try:
            os.chdir("/")
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "TERM": "dumb"})
        finally:
            os._exit(127)
    terminal = Terminal(pid, descriptor)
    try:
        yield terminal
    finally:
        terminal.close()
        left = [job for job, said in terminal.jobs.items() if said and command(job) == said]
        for process in (*left, pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        os.waitpid(pid, 0)
