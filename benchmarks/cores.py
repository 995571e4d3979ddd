"""What worker processes gain over one core, against what whole runs side by side gain, and what is sent to them.

In turn, several times: one process; one process for each core, all at once and independent of each other; one run
with as many workers. All make the same steps. Runs side by side share memory and clock but never wait for each other,
so their gain is what this machine has to give.

    python benchmarks/cores.py --workers 2 --steps 40 --rounds 4
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from common import Stepper, add_arguments, load_config, make_base, markdown, write_json
from prorl import build
from prorl.control.plan import hparams_at, make_plan
from prorl.machine import cores

WARM = 3  # steps before the clock starts


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--workers", type=int, default=cores(), help="cores to use (default: all)")
    parser.add_argument("--steps", type=int, default=40, help="steps of a turn (default 40)")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each side (default 4)")
    parser.add_argument("--turn", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    arguments.threads = arguments.threads or 1
    return arguments


def turn(arguments: argparse.Namespace) -> None:
    """In a process of its own: wait for a line, make the steps, and print their seconds and the bytes sent."""
    config = load_config(arguments, f"workers={arguments.turn}")
    tasks = build.build_tasks(config)
    parts = build.build_session(config, make_base(config), tasks=tasks)
    with parts:
        stepper, hparams = Stepper(parts, tasks, config.seed), hparams_at(make_plan(config), 0)
        for _ in range(WARM):
            stepper.step(hparams)
        workers: Any = parts.backend.learner.runner
        before = getattr(workers, "sent", 0) + getattr(workers, "received", 0)
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.perf_counter()
        events = [stepper.step(hparams) for _ in range(arguments.steps)]
        seconds = time.perf_counter() - begin
        shared = sum(event.seconds["generate"] + event.seconds["learn"] for event in events) / seconds
        sent = getattr(workers, "sent", 0) + getattr(workers, "received", 0) - before
        print(seconds, shared, sent / arguments.steps, flush=True)


def together(argv: Sequence[str], count: int, workers: int) -> list[list[float]]:
    """What `count` processes of so many workers print, which make their steps at the same time."""
    command = [sys.executable, __file__, *argv, "--turn", str(workers)]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(count)]
    for process in started:
        while process.stdout.readline().strip() != "ready":  # type: ignore[union-attr]
            assert process.poll() is None, "a turn has failed"
    for process in started:
        process.stdin.write("\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    return [[float(value) for value in process.communicate()[0].split()] for process in started]


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    if arguments.turn:
        turn(arguments)
        return
    make_base(load_config(arguments))
    gains, ideals, rows = [], [], []
    for number in range(arguments.rounds):
        ((one, _, _),) = together(argv, 1, 1)
        apart = together(argv, arguments.workers, 1)
        ((several, shared, sent),) = together(argv, 1, arguments.workers)
        ideals.append(sum(one / seconds for seconds, _, _ in apart))
        gains.append(one / several)
        rows.append((one, several, ideals[-1], gains[-1], shared, sent))
        print(
            f"round {number + 1}/{arguments.rounds}: {gains[-1]:.2f}×, side by side {ideals[-1]:.2f}×",
            flush=True,
        )
    print(f"\n{arguments.workers} workers, {arguments.steps} steps a turn, medians\n")
    shares = [gain / ideal for gain, ideal in zip(gains, ideals, strict=True)]
    table = [
        ("gain over one process", f"{statistics.median(gains):.2f}×"),
        ("gain of as many runs side by side", f"{statistics.median(ideals):.2f}×"),
        ("share of that", f"{statistics.median(shares):.0%} ({min(shares):.0%}-{max(shares):.0%})"),
        ("all but generation and learning", f"{1 - statistics.median(row[4] for row in rows):.1%} of a step"),
        (
            "messages to and from workers",
            f"{statistics.median(row[5] for row in rows) / 2**20:.2f} MiB a step",
        ),
    ]
    print(markdown(("", ""), table))
    write_json(arguments.json, load_config(arguments), {"rounds": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
