"""What it costs to be safe: how long training waits for a checkpoint, and how long a resume takes to its first step.

    python benchmarks/operations.py [--steps 40] [--every 4] [--recipe nano] [section.key=value ...]

Both are shares of steps of the same run, so a busy machine changes them little. Checkpoints are written beside the
training; what they cost is the wait between two steps (for the copy of the tensors) and what the step after it takes
longer while the writer works.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from common import add_arguments, load_config, markdown, write_json
from prorl.config.recipe import config_hash
from prorl.config.schema import RunConfig
from prorl.control.events import Stepped, from_record
from prorl.control.state import RunState
from prorl.lab.watch.console import Console
from prorl.run.checkpoint import Checkpointer
from prorl.run.journal import read_journal
from prorl.session import start_run

FEW = (
    "evaluation={per_domain: 1, ood_per_domain: 0, samples: 2}",
    "validation.every=0",
    "reset.stalled_validations=0",
    "sample_every=0",
)


class Timed:
    """Adds up what a run takes between its steps, by whether they saved."""

    def __init__(self, every: int) -> None:
        self._every = every
        self.saving: list[float] = []
        self.others: list[float] = []

    def watch(self) -> None:
        """From now on the time between steps is taken."""
        keep, timed = Checkpointer.keep, self

        def timing(checkpointer: Checkpointer, state: RunState, *, due: bool, **rest: Any) -> None:
            begin = time.perf_counter()
            keep(checkpointer, state, due=due, **rest)
            if state.step and state.stopped is None:
                (timed.saving if due else timed.others).append(time.perf_counter() - begin)

        Checkpointer.keep = timing


def steps_of(run: Path) -> list[float]:
    """Seconds of every step of a run."""
    events = (from_record(record) for record in read_journal(run / "journal.jsonl"))
    return [event.seconds["total"] for event in events if isinstance(event, Stepped)]


def checkpoint_cost(config: RunConfig, run: Path, every: int) -> dict[str, float]:
    """Train, and say what a checkpoint costs in steps."""
    timed = Timed(every)
    timed.watch()
    start_run(config, run, Console())
    steps = steps_of(run)
    behind = [seconds for number, seconds in enumerate(steps) if number and number % every == 0]
    rest = [seconds for number, seconds in enumerate(steps) if number % every]
    step = median(rest)
    return {
        "step_seconds": step,
        "wait": median(timed.saving) / step,
        "longest_wait": max(timed.saving) / step,
        "between_steps": median(timed.others) / step,
        "behind": median(behind) / step - 1,
    }


def resume_seconds(run: Path) -> dict[str, float]:
    """Seconds from the command to the run's going on, and to the end of its first step."""
    shutil.rmtree(
        max((run / "checkpoints").iterdir())
    )  # the finished one; the journal behind the rest is cut off
    begin = time.perf_counter()
    command = [sys.executable, "-m", "prorl", "resume", str(run)]
    found: dict[str, float] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            for name, start in (("resumed", "resumed from"), ("first_step", "step ")):
                if line.startswith(start):
                    found.setdefault(name, time.perf_counter() - begin)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what checkpoints and resumes cost")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=4, help="steps between checkpoints (default 4)")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    config = load_config(options, f"steps={options.steps}", f"save.every={options.every}", *FEW)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / config_hash(config)
        cost = checkpoint_cost(config, run, options.every)
        size = sum(path.stat().st_size for path in max((run / "checkpoints").iterdir()).iterdir())
        resumed = resume_seconds(run)
    rows = [
        ["a step", f"{cost['step_seconds']:.2f} s"],
        ["a checkpoint", f"{size / 1e6:.1f} MB"],
        ["training waits for a checkpoint (median)", f"{cost['wait']:.1%} of a step"],
        ["training waits for a checkpoint (longest)", f"{cost['longest_wait']:.1%} of a step"],
        ["the time between steps without one", f"{cost['between_steps']:.2%} of a step"],
        ["the step beside the writer, longer by", f"{cost['behind']:.1%}"],
        ["`prorl resume` to going on", f"{resumed['resumed']:.1f} s"],
        ["`prorl resume` to the end of its first step", f"{resumed['first_step']:.1f} s"],
    ]
    print(markdown(["what", "costs"], rows))
    write_json(options.json, config, {"cost": cost, "resume": resumed, "checkpoint_bytes": size})


if __name__ == "__main__":
    main()
