"""What one GPU does with a 1.5B model: its best rates, correctness, learning, vLLM beside it, a short run.

It needs no network; parts that need vLLM or Ray say that they are skipped where it is not installed. What must
hold are gates of its part: the exit status is 1 where one is missed. Every part runs in a process of its own with a
deadline, so one that fails, hangs or runs out of memory costs only itself, and its rows so far are kept. The file is
written after each part; parts that it holds from an earlier call stay.

    python benchmarks/gpu.py --out docs/results/gpu.json
    python benchmarks/gpu.py --shape tiny --device cpu --out tiny.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import gpu_load
import prorl
from gpu_load import LOADS
from gpu_parts import PARTS

DEADLINES = {  # seconds
    "machine": 60.0,
    "correctness": 120.0,
    "sharded": 240.0,
    "learn": 400.0,
    "engine_safe": 300.0,
    "engine_full": 400.0,
    "engine_off": 300.0,
    "ray": 400.0,
    "decode": 150.0,
    "nano": 300.0,
}


def measured(part: str, shape: str, device: str, deadline: float) -> dict[str, Any]:
    """One part in a process of its own: its results, or why there are none."""
    # Forked, for the imports are paid once; the parent never touches a device, so each child may.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(part, shape, device, sender))
    start = time.monotonic()
    child.start()
    sender.close()
    rows: list[dict[str, Any]] = []
    outcome: dict[str, Any] = {}
    while not outcome:
        if not receiver.poll(max(0.0, start + deadline - time.monotonic())):
            outcome = {"error": f"not done after {deadline:.0f} s"}
            break
        try:
            told = receiver.recv()
        except EOFError:
            child.join()
            told = {"error": f"the process ended with status {child.exitcode}"}
        if "row" in told:
            rows.append(told["row"])
        else:
            outcome = told
    if "error" in outcome:
        outcome["rows so far"] = rows
    child.join(5)
    with suppress(ProcessLookupError):
        os.killpg(child.pid or 0, signal.SIGKILL)  # with what it has started
    child.join()
    return {"seconds": round(time.monotonic() - start, 1), **outcome}


def _work(part: str, shape: str, device: str, sender: Connection) -> None:
    os.setsid()
    gpu_load.keep = lambda row: sender.send({"row": dict(row)})
    try:
        outcome: dict[str, Any] = {"results": PARTS[part](LOADS[shape], torch.device(device))}
    except Exception as error:  # whatever it is, the other parts go on
        traceback.print_exc()
        outcome = {"error": f"{type(error).__name__}: {error}"}
    sender.send(outcome)


def surroundings(device: str, argv: Sequence[str]) -> dict[str, Any]:
    """What the numbers depend on; the device is asked for by another program, as the parent may not touch it."""
    query = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,memory.total,clocks.max.sm",
        "--format=csv,noheader",
    ]
    return {
        "device": _said(query) if device.startswith("cuda") else platform.processor() or platform.machine(),
        "versions": {
            "python": platform.python_version(),
            "cuda": torch.version.cuda,
            "prorl": prorl.__version__,  # which need not be installed
            **{name: version(name) for name in ("torch", "transformers")},
        },
        "commit": _said(["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]),
        "command": " ".join(["python benchmarks/gpu.py", *argv]),
    }


def _said(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)} (default all)")
    parser.add_argument("--shape", choices=LOADS, default="1.5b", help="size of the model (default 1.5b)")
    parser.add_argument("--device", default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write everything as JSON")
    arguments = parser.parse_args(argv)
    arguments.parts = arguments.parts.split(",")
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: choose from {','.join(PARTS)}")
    return arguments


def main(argv: Sequence[str]) -> int:
    arguments = parse(argv)
    record: dict[str, Any] = {
        **surroundings(arguments.device, argv),
        "shape": arguments.shape,
        "parts": {},
    }
    if arguments.out is not None and arguments.out.exists():
        record["parts"] = json.loads(arguments.out.read_text())["parts"]
    for part in arguments.parts:
        print(f"{part}:", flush=True)
        outcome = measured(part, arguments.shape, arguments.device, DEADLINES[part])
        record["parts"][part] = outcome
        print(f"  {_end(outcome)} in {outcome['seconds']} s", flush=True)
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    return int(
        any("error" in outcome or _missed(outcome) for outcome in map(record["parts"].get, arguments.parts))
    )


def _missed(outcome: dict[str, Any]) -> list[str]:
    """Gates of a part that were not met."""
    gates = outcome.get("results", {}).get("gates", {})
    return [name for name, met in gates.items() if not met]


def _end(outcome: dict[str, Any]) -> str:
    missed = "; ".join(_missed(outcome))
    return str(outcome.get("error") or (f"MISSED: {missed}" if missed else "done"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
