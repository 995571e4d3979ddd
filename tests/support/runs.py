"""Whole runs in this process, and what they wrote."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console as RichConsole

from prorl.config.recipe import load_recipe
from prorl.config.schema import RunConfig
from prorl.control.events import Event, Stepped
from prorl.control.state import RunState
from prorl.lab.evals.evaluation_store import read_evaluation
from prorl.lab.watch.console import Console
from prorl.rollout.partial import IN_HAND
from prorl.run.process import ECHO
from prorl.session import start_run
from support import fake_runs
from support.fake_runs import events, of


def quiet() -> Console:
    return Console(RichConsole(file=StringIO()))


def finished(recipe: RunConfig | Path, run: Path, console: Console | None = None) -> Path:
    """The run of a recipe, or of that in a file, at its end."""
    config = load_recipe(str(recipe)) if isinstance(recipe, Path) else recipe
    assert start_run(config, run, console or quiet()).stopped == "done"
    return run


class CtrlC(Console):
    """A person at the terminal who presses Ctrl-C so many times as soon as a step is shown."""

    def __init__(self, step: int, times: int = 1) -> None:
        super().__init__(RichConsole(file=StringIO()))
        self._step = step
        self._times = times

    @contextmanager
    def live(self, steps: int) -> Iterator[Callable[[Event, RunState], None]]:
        def watch(event: Event, state: RunState) -> None:
            if isinstance(event, Stepped) and event.step == self._step:
                for _ in range(self._times):
                    signal.raise_signal(signal.SIGINT)
                    time.sleep(ECHO)

        yield watch


of_kind = of


def timeless(run: Path) -> list[Event]:
    """What happened, without how long it took and without the interruptions themselves."""
    return fake_runs.timeless(events(run))


def folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def contents(run: Path) -> dict[str, bytes]:
    """Every byte that must not depend on interruptions: the last tensors, driver state, samples, measurements."""
    last = max(folders(run / "checkpoints"))
    kept = (f"checkpoints/{last}", "references", "samples", "evals", "tokenizer")
    files = (path for part in kept for path in (run / part).rglob("*") if path.is_file())
    return {
        path.relative_to(run).as_posix(): content(path)
        for path in files
        # the length of the journal; a process; what happened to processes
        if path.name not in ("manifest.json", "lock", "incidents.jsonl")
    }


def assert_same(run: Path, other: Path) -> None:
    """Both did the same, whatever interrupted them."""
    assert contents(run) == contents(other)
    assert timeless(run) == timeless(other)


def content(path: Path) -> bytes:
    """The bytes of a file; of an evaluation, without how long it took."""
    if path.suffix != ".parquet" or path.name == IN_HAND:
        return path.read_bytes()
    return repr(replace(read_evaluation(path), seconds=0.0)).encode()
