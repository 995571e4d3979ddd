"""The dashboard as people start it: a process of its own, asked over the network."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A dashboard that runs."""

    process: subprocess.Popen[str]
    printed: str  # its first line
    log: Path  # what it printed on standard error

    @property
    def address(self) -> str:
        """Where it is, without the token."""
        return re.search(r"http://[^#\s]*", self.printed)[0]

    @property
    def token(self) -> str:
        return self.printed.strip().partition("#token=")[2]


@contextmanager
def served(root: Path, log: Path, *options: str) -> Iterator[Served]:
    """A dashboard of the runs below `root`, on a free port; interrupted at the end."""
    command = [sys.executable, "-m", "prorl", "dashboard", str(root), *(options or ("--port", "0"))]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        yield Served(process=process, printed=process.stdout.readline(), log=log)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
