"""Programs per second in the sandbox, at each tier this machine reaches, against a bare interpreter per program.

Every side runs the same small programs in the same number of processes; one process holds one sandbox, as a judge's
worker does. The sides take turns several times, so that a busy machine slows all of them: the verdict is the
median of the per-turn ratios. `bare` is `subprocess.run([python, "-I", "-S", "-B", "-c", program])`, which
contains nothing.

    python benchmarks/sandbox.py --repeats 5 --workers 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Literal

from prorl.envs.sandbox.jobs import Job
from prorl.envs.sandbox.link import SandboxError, interpreter
from prorl.envs.sandbox.sandbox import Policy, Sandbox

BARE = "bare"
TIERS: tuple[Literal["A", "B", "C"], ...] = ("A", "B", "C")
TARGET = 200  # programs per second on two cores at tier A or B
CALL_INPUTS = tuple([n] for n in range(10))


def job_for(number: int, kind: str) -> Job:
    """A small program that differs every time: one script, or one function with ten inputs."""
    if kind == "call":
        return Job(source=f"def f(x): return x * {number}", entry="f", inputs=CALL_INPUTS)
    return Job(source=f"print(int(input()) + {number})", inputs=("1",))


def run_bare(number: int) -> None:
    command = [str(interpreter()), "-I", "-S", "-B", "-c", f"print(int(input()) + {number})"]
    done = subprocess.run(command, input="1", capture_output=True, text=True, check=True)
    assert done.stdout == f"{number + 1}\n"


def run_boxed(sandbox: Sandbox, number: int, kind: str) -> None:
    results = sandbox.run(job_for(number, kind))
    assert {result.status for result in results} == {"ok"}, results


def serve(connection: Connection[Any, Any], kind: str) -> None:
    """A worker: opens what it can, then runs programs on demand, (side, how many), and says how long it took."""
    sandboxes = {}
    for tier in TIERS:
        try:
            sandboxes[tier] = Sandbox.open(Policy(tier=tier, unsafe=True))
        except SandboxError as error:
            print(f"tier {tier} is out of reach: {error}", file=sys.stderr)
    connection.send([BARE, *sandboxes])
    while (order := connection.recv()) is not None:
        side, programs = order
        started = time.perf_counter()
        for number in range(programs):
            if side == BARE:
                run_bare(number)
            else:
                run_boxed(sandboxes[side], number, kind)
        connection.send(time.perf_counter() - started)


def turn(connections: Sequence[Connection[Any, Any]], side: str, programs: int) -> float:
    """Programs per second of all workers together on one side."""
    started = time.perf_counter()
    for connection in connections:
        connection.send((side, programs))
    for connection in connections:
        connection.recv()
    return len(connections) * programs / (time.perf_counter() - started)


def compare(
    connections: Sequence[Connection[Any, Any]], sides: list[str], arguments: argparse.Namespace
) -> None:
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for repeat in range(-1, arguments.repeats):  # the first turn warms up and is not counted
        now = {side: turn(connections, side, arguments.programs) for side in sides}
        label = "warm-up" if repeat < 0 else f"turn {repeat + 1}/{arguments.repeats}"
        print(f"{label:>9}: " + ", ".join(f"{side} {rate:.0f}/s" for side, rate in now.items()), flush=True)
        if repeat >= 0:
            for side, rate in now.items():
                rates[side].append(rate)
    for side in sides[1:]:
        ratio = statistics.median(ours / bare for ours, bare in zip(rates[side], rates[BARE], strict=True))
        speed = statistics.median(rates[side])
        each = 1000 * len(connections) / speed
        verdict = "" if side == "C" else f"; target {TARGET}: {'reached' if speed >= TARGET else 'missed'}"
        print(f"tier {side}: {speed:.0f} programs/s ({each:.1f} ms each), {ratio:.2f}× bare{verdict}")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=("script", "call"), default="script")
    parser.add_argument("--repeats", type=int, default=5, help="counted turns (default 5)")
    parser.add_argument("--programs", type=int, default=100, help="per worker, side and turn (default 100)")
    parser.add_argument("--workers", type=int, default=2, help="processes, one sandbox each (default 2)")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(arguments.workers)]
    workers = [context.Process(target=serve, args=(theirs, arguments.kind)) for _, theirs in pairs]
    for worker in workers:
        worker.start()
    connections = [ours for ours, _ in pairs]
    (sides, *_) = [connection.recv() for connection in connections]
    compare(connections, sides, arguments)
    for connection, worker in zip(connections, workers, strict=True):
        connection.send(None)
        worker.join()


if __name__ == "__main__":
    main(sys.argv[1:])
