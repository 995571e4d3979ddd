"""Verification in worker processes of our own that can be killed: a judge that no verifier can hang or crash.

Verifiers run generated text through other people's code (sympy, regular expressions, programs), so any of them
may loop in C, exhaust memory or exit. Threads and exceptions raised by signals cannot stop that; a kill can. The
parent holds a clock per item; whatever an item does to its worker costs that one item, never a neighbour. The clock
counts only while the parent looks, so it stands still with a process tree that is stopped or a machine that sleeps.

A worker is handed many items at once, because a message costs more than a verdict, and reports each by itself,
so the parent always knows which one is running: the first that it has not heard of.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import textwrap
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from typing import Any

from prorl.envs.errors import ProrlError
from prorl.envs.types import Problem, Verdict
from prorl.local.judge_worker import Outcome, Verifier, serve
from prorl.types import JudgeOutError

STARTUP_SECONDS = 120.0  # imports and data sets of the verifiers, on a busy machine
STARTUP_ATTEMPTS = 3  # until it is clear that no worker will ever start
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds after a start that failed; doubled from one to the other
LOOKS = 8  # within a deadline, at least; the time between two counts for no more
MAX_REASONS = 300  # characters, of why workers were replaced
CLOSE_SECONDS = 1.0
MAX_ITEMS = 64  # per message to a worker
MAX_CHARS = 64_000  # per message: what fits a socket's buffer is sent without waiting for the reader

_Item = tuple[int, Problem, str]


class JudgeError(ProrlError):
    """No worker has ever started, so nothing can be judged at all."""


class _Worker:
    """A child process, what it was given, and since when it has been silent, by its judge's clock."""

    def __init__(self, factory: bytes, memory: int, since: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection: Connection[Any, Any]
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=serve, args=(theirs, factory, memory), name="prorl-judge", daemon=True
        )
        self.process.start()
        theirs.close()
        self.ready = False
        self.running: deque[_Item] = deque()
        self.judged = 0
        self.since = since

    @property
    def idle(self) -> bool:
        return self.ready and not self.running

    def give(self, items: list[_Item], now: float) -> bool:
        """Hand over a batch, only to an idle worker: it is reading, so this does not block. False if it has died."""
        try:
            self.connection.send([(problem, text) for _, problem, text in items])
        except OSError:
            return False
        self.running.extend(items)
        self.since = now
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
    """`ports.Judge` on worker processes of this machine.

    Invariant: once a worker has started, or `proven` was set, a start that fails is waited for and never an error.
    """

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
        `functools.partial` of one. `deadline` is the seconds that one item may take, `memory` the bytes. A worker
        makes room for a new one after `items_per_worker` items, as other people's code leaks.

        Raises:
            ValueError: not one worker, or no time.
            JudgeError: this machine cannot start a process.
        """
        if workers < 1 or deadline <= 0:
            raise ValueError(f"a judge needs a worker and time, not workers={workers}, deadline={deadline}")
        self.proven = False
        self._memory = memory
        self._items_per_worker = items_per_worker
        self._factory = pickle.dumps(make_verifier)
        self._deadline = deadline
        self._waiting: deque[_Item] = deque()
        self._judged: list[tuple[int, Verdict]] = []
        self._clock, self._looked = 0.0, time.monotonic()
        self._failed_starts = 0  # in a row
        self._pause, self._paused_until, self._failure = 0.0, 0.0, ""
        self._replaced: Counter[str] = Counter()
        self._wanted = workers
        self._workers: list[_Worker] = []
        self._fill()

    def submit(self, ticket: int, problem: Problem, text: str) -> None:
        """Queue one response; never waits. Work reaches busy workers from within `poll`.

        Raises:
            RuntimeError: the judge is closed.
        """
        if not self._wanted:
            raise RuntimeError("this judge is closed")
        self._waiting.append((ticket, problem, text))
        self._feed()

    def ready(self) -> None:
        """Wait until every worker has built its verifier.

        Raises:
            JudgeError: as `poll`.
        """
        while sum(worker.ready for worker in self._workers) < self._wanted:
            self._exchange(timeout=self._deadline / LOOKS)

    def poll(self, *, wait: bool, within: float = math.inf) -> list[tuple[int, Verdict]]:
        """Verdicts that are ready, in no particular order; with `wait`, at least one unless none is outstanding.

        An item that hangs, kills its worker or raises gets a verdict with status "error". The wait ends after
        `within` seconds, with or without a verdict.

        Raises:
            JudgeError: no worker has ever started; the message has the reason.
            JudgeOutError: none can be started now.
        """
        end = time.monotonic() + within
        self._exchange(timeout=0.0)
        while wait and not self._judged and self._outstanding() and (left := end - time.monotonic()) > 0:
            if not self._workers:
                pause = max(0.0, self._paused_until - time.monotonic())
                raise JudgeOutError(f"no judge can be started ({self._failure})", pause)
            self._exchange(timeout=min(left, self._deadline / LOOKS))
        judged, self._judged = self._judged, []
        return judged

    def replaced(self) -> Counter[str]:
        """How many workers were replaced since this was last asked, by reason."""
        told, self._replaced = self._replaced, Counter()
        return told

    def incidents(self) -> list[str]:
        """The same as at most one sentence."""
        return replacements(self.replaced())

    def close(self) -> None:
        """End the workers, by force after a second; nothing may be submitted afterwards."""
        self._wanted = 0
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

    def _now(self) -> float:
        """Seconds on the judge's clock, for which a long time between two looks is a short one.

        Then this process was stopped, and its workers perhaps with it, or its caller was busy elsewhere.
        """
        now = time.monotonic()
        self._clock += min(now - self._looked, self._deadline / LOOKS)
        self._looked = now
        return self._clock

    def _exchange(self, timeout: float) -> None:
        """Read what workers report, replace the dead and the silent, hand out more work."""
        readable = wait_for([worker.connection for worker in self._workers], timeout)
        now = self._now()
        for worker in tuple(self._workers):
            failure = self._read(worker) if worker.connection in readable else None
            if failure is None and not worker.idle and now > worker.since + self._limit(worker):
                worker.kill()
                failure = f"deadline of {self._limit(worker):g} s"
            if failure is not None:
                self._lose(worker, failure)
        self._feed()

    def _read(self, worker: _Worker) -> str | None:
        """Take in all reports of one worker; the reason if it has ended."""
        try:
            while True:
                message: Outcome | str | None = worker.connection.recv()
                worker.since = self._now()
                if isinstance(message, str):
                    worker.kill()
                    return message
                if message is None:
                    worker.ready = self.proven = True
                    self._failed_starts, self._pause, self._paused_until = 0, 0.0, 0.0
                else:
                    self._settle(worker, message)
                if not worker.connection.poll():
                    return None
        except (EOFError, OSError):
            worker.kill()
            return f"verifier process died, exit code {worker.process.exitcode}"

    def _settle(self, worker: _Worker, outcome: Outcome) -> None:
        ticket, _, _ = worker.running.popleft()
        score, status, note, answered, seconds = outcome
        # What earlier items left may be what the memory was short of: the next batch is for another worker.
        worker.judged += self._items_per_worker if note.startswith("MemoryError") else 1
        verdict = Verdict(score=score, status=status, note=note, answered=answered, seconds=seconds)
        self._judged.append((ticket, verdict))

    def _lose(self, worker: _Worker, failure: str) -> None:
        """Forget a worker that has ended; its current item is an error, the rest go first again."""
        self._workers.remove(worker)
        if not worker.ready:
            self._start_failed(failure)
            return
        task = f" ({worker.running[0][1].task})" if worker.running else ""
        self._replaced[failure + task] += 1
        if worker.running:
            self._settle(worker, (0.0, "error", failure, True, self._now() - worker.since))
        self._waiting.extendleft(reversed(worker.running))

    def _start_failed(self, failure: str) -> None:
        self._replaced[f"start failed: {failure}"] += 1
        self._failed_starts += 1
        if not self.proven:
            if self._failed_starts >= STARTUP_ATTEMPTS:
                raise JudgeError(f"verifiers cannot be started ({self._failed_starts} attempts): {failure}")
        elif (now := time.monotonic()) >= self._paused_until:  # else one of several that failed together
            self._pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE)
            self._paused_until, self._failure = now + self._pause, failure

    def _fill(self) -> None:
        """Start the workers that are missing, unless a start that failed is to be waited for."""
        while len(self._workers) < self._wanted and time.monotonic() >= self._paused_until:
            try:
                self._workers.append(_Worker(self._factory, self._memory, self._now()))
            except OSError as error:  # no memory or no room for another process
                self._start_failed(str(error))

    def _feed(self) -> None:
        """Give every idle worker a batch, smaller towards the end so that the workers finish together."""
        for worker in tuple(self._workers):
            if self._waiting and worker.idle and worker.judged >= self._items_per_worker:
                worker.kill()
                self._workers.remove(worker)
        self._fill()
        for worker in self._workers:
            if self._waiting and worker.idle:
                share = -(-len(self._waiting) // (2 * self._wanted))
                items = self._take(min(MAX_ITEMS, share))
                if not worker.give(items, self._now()):  # no item's fault; the next reading finds it dead
                    self._waiting.extendleft(reversed(items))

    def _take(self, count: int) -> list[_Item]:
        items = [self._waiting.popleft()]
        chars = len(items[0][2])
        while self._waiting and len(items) < count and chars + len(self._waiting[0][2]) <= MAX_CHARS:
            items.append(self._waiting.popleft())
            chars += len(items[-1][2])
        return items


def replacements(reasons: Counter[str]) -> list[str]:
    """How many workers were replaced and why, in a sentence for the journal; nothing where none was."""
    why = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common())
    sentence = "judge workers replaced: {}; a response they were judging is judged once more"
    return [sentence.format(textwrap.shorten(why, MAX_REASONS, placeholder=" …"))] if reasons else []
