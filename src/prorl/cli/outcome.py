"""How a command ends: every expected failure is one sentence on standard error and a non-zero exit status."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import typer
from rich.console import Console as RichConsole

from prorl.director.decide import TOLD_TO_STOP
from prorl.errors import ProrlError

INTERRUPTED = 130  # exit status after Ctrl-C, saved
FAILED = 1


def finish(work: Callable[[], str | None]) -> None:
    """Run a command; `work` returns why a run stopped, or None where there was no run."""
    try:
        stopped = work()
    except KeyboardInterrupt:
        fail("interrupted; what was not in a checkpoint is lost", INTERRUPTED)
    except ProrlError as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(f"the system refused: {error}", FAILED)
    else:
        if stopped == "interrupted":
            raise typer.Exit(INTERRUPTED)
        if stopped not in (None, "done", TOLD_TO_STOP):
            fail(f"the run stopped: {stopped}", FAILED)


def fail(sentence: str, status: int) -> NoReturn:
    """End the program with a sentence."""
    RichConsole(stderr=True, highlight=False, soft_wrap=True).print(f"prorl: {sentence}", markup=False)
    raise typer.Exit(status)
