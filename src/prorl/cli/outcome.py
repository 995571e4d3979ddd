"""How a command ends: every expected failure is one sentence on standard error and a non-zero exit status."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import typer
from rich.console import Console as RichConsole

from prorl.envs.errors import ProrlError

FAILED = 1
CRASHED = 70  # a bug, or the system refused something
INTERRUPTED = 130


def finish(work: Callable[[], int | None], *, refused: int = FAILED) -> None:
    """Run a command; `work` returns its exit status, None for 0.

    `refused` is the status where the system refused something, which may not happen again.
    """
    try:
        status = work()
    except KeyboardInterrupt:
        fail("interrupted; what was not in a checkpoint is lost", INTERRUPTED)
    except ProrlError as error:
        fail(str(error), FAILED)
    except MemoryError:
        fail("there is not enough memory on this machine: free some, or ask for less", refused)
    except OSError as error:
        fail(f"the system refused: {error}", refused)
    else:
        if status:
            raise typer.Exit(status)


def fail(sentence: str, status: int) -> NoReturn:
    """End the program with a sentence."""
    say(sentence)
    raise typer.Exit(status)


class _Output(io.TextIOWrapper):
    """Text output for as long as somebody reads it, and then to nobody without an error."""

    def write(self, text: str, /) -> int:
        self._outlive(super().write, text)
        return len(text)

    def flush(self) -> None:
        self._outlive(super().flush)

    def _outlive(self, act: Callable[..., object], *text: str) -> None:
        try:
            act(*text)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE):  # its terminal was closed, its reader has ended
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())


def outlive_readers() -> None:
    """Let no write to standard output or error fail for want of a reader: a run would end by it, unsaved."""
    for name in ("stdout", "stderr"):
        if old := getattr(sys, name):  # None where it was closed at the start
            new = _Output(old.buffer, old.encoding, old.errors, line_buffering=old.line_buffering)
            setattr(sys, name, new)


def say(sentence: str) -> None:
    """One sentence on standard error."""
    RichConsole(stderr=True, highlight=False, soft_wrap=True).print(f"prorl: {sentence}", markup=False)
