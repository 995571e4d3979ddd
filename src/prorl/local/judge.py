"""Verification in worker processes of our own that can be killed: a judge that no verifier can hang or crash.

Verifiers run generated text through other people's code (sympy, regular expressions, programs), so any of them may
loop in C, exhaust memory or exit, which only a kill can stop. The parent holds a clock per item, which counts only
while the parent looks: it stands still with a process tree that is stopped or a machine that sleeps. A worker is
handed many items at once, because a message costs more than a verdict, and reports each by itself, so the parent
always knows which one is running: the first that it has not heard of. Whatever an item does to its worker costs that
one item, never a neighbour.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import pickle
import resource
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from operator import attrgetter
from pathlib import Path
from typing import Any

from prorl.envs.errors import ProrlError
from prorl.envs.files import storable
from prorl.envs.sandbox.inside.confine import SET_PDEATHSIG, prctl
from prorl.envs.types import Problem, Verdict
from prorl.local.children import Child, end_all, replacements
from prorl.types import JudgeOutError

STARTUP_SECONDS = 120.0  # imports and data sets of the verifiers, on a busy machine
STARTUP_ATTEMPTS = 3  # until it is clear that no worker will ever start
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds after a start that failed; doubled from one to the other
LOOKS = 8  # within a deadline, at least; the time between two counts for no more
REPLACED = "judge workers replaced: {}; a response they were judging is judged once more"
MAX_ITEMS = 64  # per message to a worker
MAX_CHARS = 64_000  # per message: what fits a socket's buffer is sent without waiting for the reader
MAX_NOTE = 200  # characters; a batch of reports must fit the pipe while the parent is busy elsewhere

_FIELDS = tuple(field.name for field in fields(Verdict))
_values = attrgetter(*_FIELDS)  # as a tuple a verdict travels in a tenth of the time

Verifier = Callable[[Problem, str], Verdict]
_Item = tuple[int, Problem, str]


class JudgeError(ProrlError):
    """No worker has ever started, so nothing can be judged at all."""


class _Worker(Child):
    """A child, what it was given, and since when it has been silent, by its judge's clock."""

    def __init__(self, factory: bytes, memory: int, since: float) -> None:
        super().__init__(multiprocessing.get_context("spawn"), "prorl-judge", serve, factory, memory)
        self.running: deque[_Item] = deque()
        self.judged = 0
        self.since = since

    @property
    def idle(self) -> bool:
        return self.ready and not self.running


class LocalJudge:
    """`prorl.types.Judge` on worker processes of this machine.

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
        is replaced after `items_per_worker` items, as other people's code leaks. Raises JudgeError where this machine
        cannot start a process.
        """
        self.proven = False
        self._factory, self._memory = pickle.dumps(make_verifier), memory
        self._items_per_worker, self._deadline = items_per_worker, deadline
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
        """Queue one response, for the next `poll` to hand out. Raises RuntimeError where the judge is closed."""
        if not self._wanted:
            raise RuntimeError("this judge is closed")
        self._waiting.append((ticket, problem, text))

    def ready(self) -> None:
        """Wait until every worker has built its verifier. Raises JudgeError as `poll` does."""
        while sum(worker.ready for worker in self._workers) < self._wanted:
            self._exchange(timeout=self._deadline / LOOKS)

    def poll(self, *, wait: bool, within: float = math.inf) -> list[tuple[int, Verdict]]:
        """Verdicts that are ready, in no particular order; with `wait`, at least one unless none is outstanding.

        An item that hangs, kills its worker or raises gets the status "error". The wait ends after `within` seconds.
        Raises JudgeError where no worker has ever started, JudgeOutError where none can be started now.
        """
        end = time.monotonic() + within
        self._exchange(timeout=0.0)
        while wait and not self._judged and (left := end - time.monotonic()) > 0:
            if not self._waiting and not any(worker.running for worker in self._workers):
                break
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
        return replacements(self.replaced(), REPLACED)

    def close(self) -> None:
        """End the workers, by force after a second; nothing may be submitted afterwards."""
        self._wanted = 0
        end_all(self._workers)
        self._workers = []
        self._waiting.clear()

    def _now(self) -> float:
        """Seconds on the judge's clock; a long time between two looks counts as a short one, see `LOOKS`."""
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
            limit = self._deadline if worker.ready else STARTUP_SECONDS
            if failure is None and not worker.idle and now > worker.since + limit:
                worker.kill()
                failure = f"deadline of {limit:g} s"
            if failure is not None:
                self._lose(worker, failure)
        self._feed()

    def _read(self, worker: _Worker) -> str | None:
        """Take in all reports of one worker; the reason if it has ended."""
        try:
            while True:
                message: tuple[Any, ...] | str | None = worker.connection.recv()
                worker.since = self._now()
                if isinstance(message, str):
                    worker.kill()
                    return message
                if message is None:
                    worker.ready = self.proven = True
                    self._failed_starts, self._pause, self._paused_until = 0, 0.0, 0.0
                else:
                    self._settle(worker, Verdict(**dict(zip(_FIELDS, message, strict=True))))
                if not worker.connection.poll():
                    return None
        except (EOFError, OSError):
            worker.kill()
            return f"verifier process died, exit code {worker.process.exitcode}"

    def _settle(self, worker: _Worker, verdict: Verdict) -> None:
        ticket, _, _ = worker.running.popleft()
        # What earlier items left may be what the memory was short of: the next batch is for another worker.
        worker.judged += self._items_per_worker if verdict.note.startswith("MemoryError") else 1
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
            self._settle(worker, _error(failure))
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
        """Give every idle worker a batch; of several, smaller towards the end so that they finish together."""
        for worker in tuple(self._workers):
            if self._waiting and worker.idle and worker.judged >= self._items_per_worker:
                worker.kill()
                self._workers.remove(worker)
        self._fill()
        for worker in self._workers:
            if self._waiting and worker.idle:
                items = self._next_items(min(MAX_ITEMS, -(-len(self._waiting) // (2 * self._wanted - 1))))
                try:
                    worker.connection.send([(problem, text) for _, problem, text in items])
                except OSError:  # it is dead, or stopped; no item's fault; the next reading finds it dead
                    worker.process.kill()
                    self._waiting.extendleft(reversed(items))
                    continue
                worker.running.extend(items)
                worker.since = self._now()

    def _next_items(self, count: int) -> list[_Item]:
        """One item at least, and up to `count` that fit into a message."""
        items = [self._waiting.popleft()]
        room = MAX_CHARS - len(items[0][2])
        while self._waiting and len(items) < count and (room := room - len(self._waiting[0][2])) >= 0:
            items.append(self._waiting.popleft())
        return items


def serve(connection: Connection[Any, Any], factory: bytes, memory: int) -> None:
    """In a worker: build the verifier, then answer batches `[(problem, text), …]` by one verdict per item.

    First sends None when ready, or the reason as a string when the verifier cannot be built. `factory` stays pickled
    until the environment is set, since unpickling imports. `memory` is what the items may add to the address space of
    the finished verifier, bytes. The process gets a low priority and one thread, ignores Ctrl-C, is silent, and leads
    a process group, to be killed with whatever a verifier started.
    """
    _settle_in()
    # The input ends when the parent closes its side; one that is killed or gives up early resets the line instead.
    with suppress(EOFError, ConnectionError):
        try:
            verifier: Verifier = pickle.loads(factory)()
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}")
            return
        _allow_memory(memory)
        gc.freeze()  # or collections would look through all objects of the verifiers
        connection.send(None)
        while True:
            for problem, text in connection.recv():
                connection.send(_values(_verdict(verifier, problem, text)))


def _verdict(verifier: Verifier, problem: Problem, text: str) -> Verdict:
    try:
        verdict = verifier(problem, text)
        if not isinstance(verdict, Verdict):
            raise TypeError(f"the verifier returned {type(verdict).__name__}, not a Verdict")
        score, note = float(verdict.score), storable(verdict.note[:MAX_NOTE])
    except BaseException as error:  # a verifier may well call sys.exit
        return _error(f"{type(error).__name__}: {error}")
    if not 0.0 <= score <= 1.0:
        return _error(f"score {score} is outside [0, 1]")
    return replace(verdict, score=score, note=note)


def _error(failure: str) -> Verdict:
    return Verdict(score=0.0, status="error", note=storable(failure[:MAX_NOTE]))


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
