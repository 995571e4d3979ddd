"""What all commands share: how runs and checkpoints are named, how tables are printed, and how a command ends.

A run is a directory, or a name below runs/; RUN@STEP is one of its checkpoints. Every expected failure is one
sentence on standard error and a non-zero exit status.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from typer import Argument, Exit, Option, echo
from typer.core import TyperGroup

from prorl.envs.errors import ProrlError
from prorl.lab.tables import Table, print_tables, terminal, to_json
from prorl.run.supervise import CRASHED, FAILED, INTERRUPTED

if TYPE_CHECKING:
    from prorl.lab.watch.console import Console

RunFolder = Annotated[Path, Argument(help="A run directory, or its name below runs/.")]
Overrides = Annotated[
    list[str] | None,
    Argument(metavar="KEY=VALUE", help="Changes to the recipe: optimizer.lr=1e-4 steps=500."),
]
Backend = Annotated[str | None, Option(help="Where to compute: auto, local or ray; the same as backend=….")]
Address = Annotated[str | None, Option(help="A Ray cluster, or auto; the same as cluster.address=….")]
AsJson = Annotated[bool, Option("--json", help="Print tables as JSON: shares as fractions, unknown as null.")]


class Program(TyperGroup):
    """All commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an expected failure is a sentence on standard error and an exit status."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            lost = "; what was not in a checkpoint is lost" if self._trains(ctx) else ""
            fail(f"interrupted{lost}", INTERRUPTED)
        except ProrlError as error:
            fail(str(error))
        except (MemoryError, OSError) as error:
            lacks = "there is not enough memory on this machine: free some, or ask for less"
            # What the system refused a trainer may not happen again.
            status = CRASHED if self._trains(ctx) else FAILED
            fail(f"the system refused: {error}" if isinstance(error, OSError) else lacks, status)

    def _trains(self, ctx: Any) -> bool:
        return ctx.invoked_subcommand in ("train", "resume")


def changes_to(overrides: Sequence[str] | None, backend: str | None, address: str | None) -> list[str]:
    """All changes to a recipe, the options among them."""
    options = {"backend": backend, "cluster.address": address}
    return [*(overrides or ()), *(f"{key}={value}" for key, value in options.items() if value is not None)]


def show(tables: Sequence[Table], as_json: bool, *, aligned: bool = False) -> None:
    """Print tables on standard output, for people or as JSON; fails where a full disk could not take them."""
    if as_json:
        echo(to_json(tables))
    else:
        print_tables(tables, terminal(), aligned=aligned)
    if missed := getattr(sys.stdout, "missed", None):  # of `_Output`
        fail(f"what was printed is not whole ({missed}): make room, then give the command again")


def progress_console(as_json: bool) -> Console:
    """Where progress is shown: on standard error where the tables on standard output are JSON."""
    from prorl.lab.watch.console import Console

    return Console(terminal(stderr=as_json))


def fail(sentence: str, status: int = FAILED) -> NoReturn:
    """End the program with a sentence."""
    say(sentence)
    raise Exit(status)


def say(sentence: str) -> None:
    """One sentence on standard error."""
    terminal(stderr=True).print(f"prorl: {sentence}", markup=False)


class _Output(io.TextIOWrapper):
    """Text output that goes to nobody, without an error, once its reader has ended; what a full disk cannot take is
    missed."""

    missed: OSError | None = None  # why something was

    def write(self, text: str, /) -> int:
        self._outlive(super().write, text)
        return len(text)

    def flush(self) -> None:
        self._outlive(super().flush)

    def _outlive(self, act: Callable[..., object], *text: str) -> None:
        try:
            act(*text)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                self.missed = error
                return
            if error.errno not in (errno.EIO, errno.EPIPE):  # its terminal was closed, its reader has ended
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())


def outlive_readers() -> None:
    """Let no write to standard output or error fail for want of a reader: a run would end by it, unsaved."""
    for name in ("stdout", "stderr"):
        if old := getattr(sys, name):  # None where it was closed at the start
            # No locale may end a command by what it cannot write.
            new = _Output(old.buffer, old.encoding, "replace", line_buffering=old.line_buffering)
            setattr(sys, name, new)
