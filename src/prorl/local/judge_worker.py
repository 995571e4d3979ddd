"""The child side of the local judge: build a verifier, then turn items into outcomes until the input ends.

The process is set up to be harmless: low priority, one thread, deaf to Ctrl-C, silent, and leader of a process
group so that its parent can kill it together with whatever a verifier started.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from prorl.envs.sandbox.inside.libc import SET_PDEATHSIG, prctl
from prorl.envs.types import Problem, Status, Verdict

MAX_NOTE = 200  # characters; a batch of reports must fit the pipe while the parent is busy elsewhere

Verifier = Callable[[Problem, str], Verdict]
Outcome = tuple[float, Status, str, bool, float]  # score, status, note, answered, seconds


def serve(connection: Connection[Any, Any], factory: bytes, memory: int) -> None:
    """Answer batches `[(problem, text), …]` by one `Outcome` per item, in order.

    First sends None when ready, or the reason as a string when the verifier cannot be built. `factory` is a
    pickled function without arguments: it stays pickled until the environment is set, since unpickling imports.
    `memory` is what the items may add to the address space of the finished verifier, bytes.
    """
    _settle_in()
    # The input ends when the parent closes its side; one that is killed or gives up early resets the line instead.
    with suppress(EOFError, ConnectionError):
        _answer(connection, factory, memory)


def _answer(connection: Connection[Any, Any], factory: bytes, memory: int) -> None:
    try:
        verifier: Verifier = pickle.loads(factory)()
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    _allow_memory(memory)
    connection.send(None)
    while True:
        batch: list[tuple[Problem, str]] = connection.recv()
        for problem, text in batch:
            connection.send(_outcome(verifier, problem, text))


def _outcome(verifier: Verifier, problem: Problem, text: str) -> Outcome:
    begin = time.perf_counter()
    try:
        verdict = verifier(problem, text)
    except BaseException as error:  # a verifier may well call sys.exit
        note = f"{type(error).__name__}: {error}"[:MAX_NOTE]
        return 0.0, "error", note, True, time.perf_counter() - begin
    seconds = time.perf_counter() - begin
    if not isinstance(verdict, Verdict):
        return 0.0, "error", f"the verifier returned {type(verdict).__name__}, not a Verdict", True, seconds
    if not 0.0 <= verdict.score <= 1.0:
        return 0.0, "error", f"score {verdict.score} is outside [0, 1]", True, seconds
    return float(verdict.score), verdict.status, verdict.note[:MAX_NOTE], verdict.answered, seconds


def _settle_in() -> None:
    # Should the parent die while an item hangs, nobody is left to kill us. A timer would run on while we are stopped.
    prctl(SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.nice(5)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    # Some verifiers print; the terminal belongs to the parent.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.close(silence)


def _allow_memory(extra: int) -> None:
    """An item that wants more gets MemoryError, before the system runs out and kills somebody else."""
    with suppress(OSError, ValueError):  # no /proc, or a lower limit holds already
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + extra
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
