"""Verification in worker processes of our own that can be killed: a judge that no verifier can hang or crash.

Verifiers run generated text through other people's code (sympy, regular expressions, programs), so any of them
may loop in C, exhaust memory or exit. Threads and exceptions raised by signals cannot stop that; a kill can. The
parent holds a wall clock per item; whatever an item does to its worker costs that one item, never a neighbour.

A worker is handed many items at once, because a message costs more than a verdict, and reports each by itself,
so the parent always knows which one is running: the first that it has not heard of.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from typing import Any

from prorl.backends.local.judge_worker import Outcome, Verifier, serve
from prorl.errors import ProrlError
from prorl.types import Problem, Verdict

STARTUP_SECONDS = 120.0  # imports and data sets of the verifiers, on a busy machine
STARTUP_ATTEMPTS = 3
CLOSE_SECONDS = 1.0
MAX_ITEMS = 64  # per message to a worker
MAX_CHARS = 64_000  # per message: what fits a socket's buffer is sent without waiting for the reader

_Item = tuple[int, Problem, str]


class JudgeError(ProrlError):
    """No worker can be started, so nothing can be judged at all."""


class _Worker:
    """A child process, what it was given, and since when it has been silent."""

    def __init__(self, factory: bytes, deadline: float, memory: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection: Connection[Any, Any]
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=serve, args=(theirs, factory, deadline, memory), name="prorl-judge", daemon=True
        )
        self.process.start()
        theirs.close()
        self.ready = False
        self.running: deque[_Item] = deque()
        self.judged = 0
        self.since = time.monotonic()

    @property
    def idle(self) -> bool:
        return self.ready and not self.running

    def give(self, items: list[_Item]) -> bool:
        """Hand over a batch, only to an idle worker: it is reading, so this does not block. False if it has died."""
        try:
            self.connection.send([(problem, text) for _, problem, text in items])
        except OSError:
            return False
        self.running.extend(items)
        self.since = time.monotonic()
        return True

    def kill(self) -> None:
        """End the process and everything it started (it leads a process group of its own)."""
        assert self.process.pid is not None
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # it may not lead its group yet
        self.process.join(CLOSE_SECONDS)
        self.connection.close()


class LocalJudge:
    """`ports.Judge` on worker processes of this machine."""

    def __init__(
        self,
        make_verifier: Callable[[], Verifier],
        *,
        deadline: float = 8.0,
        workers: int = 1,
        memory: int = 4 << 30,
        items_per_worker: int = 200_000,
    ) -> None:
        """Start the workers; they import and build their verifiers while the caller goes on.

        `make_verifier` is called once in each worker, so it must be picklable: a module-level function, or a
        `functools.partial` of one. `deadline` is the wall-clock seconds that one item may take, `memory` the
        bytes. A worker makes room for a new one after `items_per_worker` items, as other people's code leaks.

        Raises:
            ValueError: not one worker, or no time.
        """
        if workers < 1 or deadline <= 0:
            raise ValueError(f"a judge needs a worker and time, not workers={workers}, deadline={deadline}")
        self._memory = memory
        self._items_per_worker = items_per_worker
        self._factory = pickle.dumps(make_verifier)
        self._deadline = deadline
        self._waiting: deque[_Item] = deque()
        self._judged: list[tuple[int, Verdict]] = []
        self._failed_starts = 0
        self._workers = [self._started() for _ in range(workers)]

    def submit(self, ticket: int, problem: Problem, text: str) -> None:
        """Queue one response; never waits. Work reaches busy workers from within `poll`.

        Raises:
            RuntimeError: the judge is closed.
        """
        if not self._workers:
            raise RuntimeError("this judge is closed")
        self._waiting.append((ticket, problem, text))
        self._feed()

    def ready(self) -> None:
        """Wait until every worker has built its verifier.

        Raises:
            JudgeError: as `poll`.
        """
        while not all(worker.ready for worker in self._workers):
            self._exchange(timeout=self._patience())

    def poll(self, *, wait: bool, within: float = math.inf) -> list[tuple[int, Verdict]]:
        """Verdicts that are ready, in no particular order; with `wait`, at least one unless none is outstanding.

        An item that hangs, kills its worker or raises gets a verdict with status "error". The wait ends after
        `within` seconds, with or without a verdict.

        Raises:
            JudgeError: workers die before they can judge anything; the message has the reason.
        """
        end = time.monotonic() + within
        self._exchange(timeout=0.0)
        while wait and not self._judged and self._outstanding() and (left := end - time.monotonic()) > 0:
            self._exchange(timeout=min(left, self._patience()))
        judged, self._judged = self._judged, []
        return judged

    def close(self) -> None:
        """End the workers, by force after a second; nothing may be submitted afterwards."""
        for worker in self._workers:
            worker.connection.close()  # an idle worker reads the end of its input and leaves
        patience = time.monotonic() + CLOSE_SECONDS
        for worker in self._workers:
            wait_for([worker.process.sentinel], max(0.0, patience - time.monotonic()))
            worker.kill()
        self._workers = []
        self._waiting.clear()

    def _outstanding(self) -> bool:
        return bool(self._waiting) or any(worker.running for worker in self._workers)

    def _limit(self, worker: _Worker) -> float:
        return self._deadline if worker.ready else STARTUP_SECONDS

    def _patience(self) -> float:
        """Seconds until the first deadline of a worker that owes something."""
        ends = [worker.since + self._limit(worker) for worker in self._workers if not worker.idle]
        return max(0.0, min(ends, default=0.0) - time.monotonic())

    def _exchange(self, timeout: float) -> None:
        """Read what workers report, replace the dead and the silent, hand out more work."""
        readable = wait_for([worker.connection for worker in self._workers], timeout)
        for index, worker in enumerate(self._workers):
            failure = self._read(worker) if worker.connection in readable else None
            if failure is None and not worker.idle and time.monotonic() > worker.since + self._limit(worker):
                worker.kill()
                failure = f"deadline of {self._limit(worker):g} s"
            if failure is not None:
                self._replace(index, failure)
        self._feed()

    def _read(self, worker: _Worker) -> str | None:
        """Take in all reports of one worker; the reason if it has ended."""
        try:
            while True:
                message: Outcome | str | None = worker.connection.recv()
                worker.since = time.monotonic()
                if isinstance(message, str):
                    worker.kill()
                    return message
                if message is None:
                    worker.ready = True
                    self._failed_starts = 0
                else:
                    self._settle(worker, message)
                if not worker.connection.poll():
                    return None
        except (EOFError, OSError):
            worker.kill()
            return f"verifier process died, exit code {worker.process.exitcode}"

    def _settle(self, worker: _Worker, outcome: Outcome) -> None:
        ticket, _, _ = worker.running.popleft()
        worker.judged += 1
        score, status, note, answered, seconds = outcome
        verdict = Verdict(score=score, status=status, note=note, answered=answered, seconds=seconds)
        self._judged.append((ticket, verdict))

    def _replace(self, index: int, failure: str) -> None:
        """Start another worker for one that has ended; its current item is an error, the rest go first again."""
        worker = self._workers.pop(index)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= STARTUP_ATTEMPTS:
                raise JudgeError(f"verifiers cannot be started ({self._failed_starts} attempts): {failure}")
        if worker.running:
            self._settle(worker, (0.0, "error", failure, True, time.monotonic() - worker.since))
        self._waiting.extendleft(reversed(worker.running))
        self._workers.insert(index, self._started())

    def _started(self) -> _Worker:
        return _Worker(self._factory, self._deadline, self._memory)

    def _feed(self) -> None:
        """Give every idle worker a batch, smaller towards the end so that the workers finish together."""
        for index, worker in enumerate(self._workers):
            if not self._waiting:
                return
            if worker.idle and worker.judged >= self._items_per_worker:
                worker.kill()
                self._workers[index] = self._started()
            elif worker.idle:
                share = -(-len(self._waiting) // (2 * len(self._workers)))
                items = self._take(min(MAX_ITEMS, share))
                if not worker.give(items):  # no item's fault; the next reading finds it dead and replaces it
                    self._waiting.extendleft(reversed(items))

    def _take(self, count: int) -> list[_Item]:
        items = [self._waiting.popleft()]
        chars = len(items[0][2])
        while self._waiting and len(items) < count and chars + len(self._waiting[0][2]) <= MAX_CHARS:
            items.append(self._waiting.popleft())
            chars += len(items[-1][2])
        return items
