"""The program itself at a real terminal: suspended, stopped process by process, and left by closing the window."""

import os
import signal
import sys
import time
from contextlib import suppress

import pytest

from prorl.control.events import Stepped, Stopped
from prorl.run.layout import JOURNAL, holder
from prorl.session import resume_run
from support.processes import descendants, eventually, shell, state
from support.runs import assert_same, of_kind, quiet


def tell(processes: list[int], number: int) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):  # a program that has ended meanwhile
            os.kill(pid, number)
            time.sleep(0.02)


@pytest.mark.slow
def test_a_run_that_was_suspended_and_hung_up_is_saved_and_goes_on_exactly(recipe, uninterrupted, tmp_path):
    run = tmp_path / "run"
    with shell() as terminal:
        terminal.type(f"{sys.executable} -m prorl train {recipe} --run {run}\n")
        terminal.until(lambda: (run / JOURNAL).exists() and of_kind(run, Stepped))
        for _ in range(2):
            terminal.type("\x1a")
            terminal.until(lambda: sum(state(pid) == "T" for pid in descendants(terminal.pid)) >= 2)
            time.sleep(0.6)  # more than a tick
            terminal.type("fg\n")
            terminal.until(lambda: not any(state(pid) == "T" for pid in descendants(terminal.pid)))
        processes = sorted(descendants(terminal.pid))
        tell(processes, signal.SIGSTOP)  # or the run might be done before the terminal is closed
        terminal.close()
        tell(processes, signal.SIGCONT)
        eventually(lambda: holder(run) is None)
    assert of_kind(run, Stopped)[-1].reason == "interrupted"
    assert resume_run(run, quiet()).stopped == "done"
    assert_same(run, uninterrupted)
