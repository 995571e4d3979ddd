"""Processes that compute on the same weights, so that every core of a machine trains.

Items are dealt to worker processes as these become free. The weights lie in memory that all processes share; a worker
leaves the gradient of an item in memory of its own, and the trainer adds gradients in the order of the items. So what
is computed depends neither on the number of workers nor on which of them computed what. A worker that dies, or is
silent for too long, is replaced and its items are computed again.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import pickle
import signal
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from traceback import format_exception
from typing import Any

import torch
from rich.filesize import decimal
from torch import Tensor, nn

from prorl.envs.errors import ProrlError
from prorl.envs.sandbox.inside.confine import SET_PDEATHSIG, prctl
from prorl.learn.parallel import Function, Held, without_weights
from prorl.local.children import CLOSE_SECONDS, Child, end_all, fork_server, replacements
from prorl.run.process import machine_memory

ALIGNMENT = 64  # bytes
SLOTS = 2  # gradients of a worker that wait to be added, the one under way among them
STARTUP_SECONDS = 300.0  # imports, on a busy machine
FIRST_SILENCE = 3600.0  # seconds that an item may take before any of its function is done
LEAST_SILENCE = 60.0  # seconds, afterwards
FACTOR = 20.0  # times the longest that an item of its function took, if that is more
MOST_DEATHS = 3  # in a row, of one item or at the start
LOOK = 0.5  # seconds between two looks at the clocks of silent workers
# glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD: a process keeps what it frees, as the kernel would clear it each time
KEPT_MEMORY = {-1: 1 << 29, -3: 1 << 25}
QUEUED_BYTES = 64_000  # that fit a socket's buffer: a message to a worker that is busy must not wait for it


class WorkersError(ProrlError):
    """Worker processes cannot be kept running."""


class SharedMemory:
    """Memory of this process that others can map by `path`; the limits of /dev/shm do not apply to it."""

    def __init__(self, size: int) -> None:
        """Raises WorkersError where the system gives none, or not so much."""
        available = machine_memory()[1]
        if size > available:
            raise WorkersError(
                f"weights and gradients of the workers need {decimal(size)} of memory, and {decimal(available)} "
                "are free: set fewer workers, or workers=1"
            )
        try:
            self._file = os.memfd_create("prorl")
            os.posix_fallocate(self._file, 0, size)  # now, instead of a fatal signal at the first write
        except OSError as error:
            raise WorkersError(f"this machine gives no shared memory ({error}): set workers=1") from None
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"
        self.bytes = mmap.mmap(self._file, size)

    def close(self) -> None:
        """Give the memory back once nobody maps it any more."""
        os.close(self._file)


def views(memory: mmap.mmap, weights: Sequence[Tensor], begin: int = 0) -> list[Tensor]:
    """Tensors shaped as `weights` one after the other in the memory."""
    found = []
    for weight in weights:
        flat = torch.frombuffer(memory, dtype=weight.dtype, count=weight.numel(), offset=begin)
        found.append(flat.view(weight.shape))
        begin += room([weight])
    return found


def room(weights: Iterable[Tensor]) -> int:
    """Bytes that `views` of these need."""
    return sum(-(-weight.numel() * weight.element_size() // ALIGNMENT) * ALIGNMENT for weight in weights)


def gradient_slots(memory: mmap.mmap, modules: Sequence[nn.Module], index: int) -> list[list[Tensor]]:
    """Where a worker leaves gradients of the first module's parameters, behind the weights of all."""
    parameters = list(modules[0].parameters())
    begin = room(_weights(modules)) + index * SLOTS * room(parameters)
    return [views(memory, parameters, begin + slot * room(parameters)) for slot in range(SLOTS)]


@dataclass(slots=True, kw_only=True, eq=False)
class Item:
    """What a worker computes, and what came of it."""

    function: Function
    item: Any
    gradient: bool
    worker: int | None  # None: any
    values: list[Any] = field(default_factory=list)  # that it yielded and nobody has asked for
    done: bool = False
    left: tuple[int, int] = (-1, -1)  # worker and slot of its gradient, once it is given
    deaths: int = 0  # without a try that came further
    heard: int = 0  # messages of this try
    most: int = 0  # of the best one


class _Worker(Child):
    """A child, the items that it was given, and since when it has been silent."""

    def __init__(self, context: Any, index: int, *arguments: object) -> None:
        super().__init__(context, f"prorl-worker-{index}", serve, index, *arguments)
        self.index = index
        self.given: deque[Item] = deque()
        self.since = self.began = time.monotonic()  # its last message, its item


class Workers:
    """Worker processes that hold the same modules as this one."""

    def __init__(self, modules: Sequence[nn.Module], *, count: int, threads: int = 1) -> None:
        """Move the weights of `modules` into shared memory and start `count` processes of `threads` threads each.

        Raises WorkersError where there is no memory to share. Processes import and build while the caller goes on.
        """
        self.count = count
        self.sent = self.received = 0  # bytes, for who measures them
        self._parameters = list(modules[0].parameters())
        weights = _weights(modules)
        self._memory = SharedMemory(room(weights) + count * SLOTS * room(self._parameters))
        for weight, view in zip(weights, views(self._memory.bytes, weights), strict=True):
            view.copy_(weight.detach())
            weight.data = view
        self._left = [gradient_slots(self._memory.bytes, modules, index) for index in range(count)]
        self._context = fork_server()
        self._arguments = (pickle.dumps(without_weights(*modules)), self._memory.path, threads)
        self._waiting: deque[Item] = deque()
        self._free = [list(range(SLOTS)) for _ in range(count)]
        self._longest: dict[Function, float] = {}  # seconds that one of its items took
        self._failed_starts = 0
        self._replaced: Counter[str] = Counter()
        self._workers = [self._started(index) for index in range(count)]

    def submit(
        self, function: Function, item: Any, *, gradient: bool = False, worker: int | None = None
    ) -> Item:
        """Queue `function(held, item)` for any worker or a certain one."""
        self._waiting.append(Item(function=function, item=item, gradient=gradient, worker=worker))
        return self._waiting[-1]

    def poll(self, items: Collection[Item]) -> list[Any]:
        """What these items have yielded since they were last asked for, at least one value; empty: they are done.

        Raises what a function raised, and ChildProcessError where workers die again and again: perhaps for want of
        memory, which may come back.
        """
        while True:
            values = [value for item in items for value in item.values]
            for item in items:
                item.values = []
            if values or all(item.done for item in items):
                return values
            self._advance()

    def run(self, function: Function, items: Sequence[Any], *, gradients: bool = False) -> Iterator[Any]:
        """As `Runner.run`; workers begin at once, values and gradients are taken as they are asked for."""
        # the last first where all gradients can wait to be added: the longest of a warm-up's, which would end alone
        way = -1 if gradients and len(items) <= SLOTS * self.count else 1
        submitted = [self.submit(function, item, gradient=gradients) for item in items[::way]]
        self._deal()
        return self._collect(submitted[::way])

    def _collect(self, items: Sequence[Item]) -> Iterator[Any]:
        for item in items:
            while not item.done:
                self._advance()
            if item.gradient:
                self._add_gradient(*item.left)
            yield item.values[0]

    def everywhere(self, function: Function, item: Any) -> Iterator[Any]:
        """The one value that `function` yields in each worker; all begin at once."""
        submitted = [self.submit(function, item, worker=index) for index in range(self.count)]
        self._deal()
        return self._collect(submitted)

    def incidents(self) -> list[str]:
        """How many workers were replaced and why, since this was last asked: at most one sentence."""
        told, self._replaced = self._replaced, Counter()
        return replacements(told, "worker processes replaced: {}; what they computed is computed again")

    def close(self) -> None:
        """End the processes; the weights stay where they are, for this process alone."""
        end_all(self._workers)
        self._workers = []
        self._waiting.clear()
        self._memory.close()

    def _advance(self) -> None:
        """Deal what waits, and take in what workers say within `LOOK` seconds."""
        self._deal()
        begin = time.monotonic()
        speaking = wait_for([worker.connection for worker in self._workers], LOOK)
        stopped = max(0.0, time.monotonic() - begin - LOOK)  # this process, and maybe all of them
        for worker in tuple(self._workers):
            worker.since += stopped
            reason = self._read(worker) if worker.connection in speaking else None
            if reason is None and self._silent(worker):
                reason = "silent for too long"
            if reason is not None:
                self._replace(worker, reason)

    def _deal(self) -> None:
        """Give every worker an item, and the next one so that it need not wait, in the order of the queue.

        The last items are given to no worker that has another: they wait for whichever is free first.
        """
        for depth in (1, 2):
            for worker in self._workers:
                plenty = depth == 1 or len(self._waiting) > self.count
                if plenty and worker.ready and len(worker.given) < depth:
                    self._give(worker)

    def _give(self, worker: _Worker) -> None:
        for index, item in enumerate(self._waiting):
            if item.worker not in (None, worker.index):
                continue
            if item.gradient and not self._free[worker.index]:
                continue
            item.left = (worker.index, self._free[worker.index][-1] if item.gradient else -1)
            message = pickle.dumps((item.function, item.item, item.left[1]))
            if worker.given and len(message) > QUEUED_BYTES:
                return
            if not worker.given:
                worker.since = worker.began = time.monotonic()
            if item.gradient:
                self._free[worker.index].pop()
            worker.given.append(item)
            del self._waiting[index]
            self.sent += len(message)
            try:
                worker.connection.send_bytes(message)
            except OSError:  # it is dead, or takes nothing; the next reading finds it dead
                worker.process.kill()
            return

    def _read(self, worker: _Worker) -> str | None:
        """Take in all that a worker has sent; the reason if it has ended."""
        more = True
        while more:
            try:
                message, more = worker.connection.recv_bytes(), worker.connection.poll()
            except (EOFError, OSError):
                worker.process.join(CLOSE_SECONDS)
                return f"exit code {worker.process.exitcode}"
            self.received += len(message)
            worker.since = time.monotonic()
            if not worker.ready:
                worker.ready, self._failed_starts = True, 0
            else:
                self._take(worker, message)
        return None

    def _take(self, worker: _Worker, message: bytes) -> None:
        item = worker.given[0]
        item.heard += 1
        is_new = item.heard > item.most  # else the worker whose place this one takes has said it
        if is_new:
            item.most, item.deaths = item.heard, 0
        if not message:  # the item is done
            worker.given.popleft()
            took, worker.began = worker.since - worker.began, worker.since
            self._longest[item.function] = max(took, self._longest.get(item.function, 0.0))
            item.done = True
            return
        value = pickle.loads(message)
        if isinstance(value, BaseException):
            raise value
        if is_new:
            item.values.append(value)

    def _silent(self, worker: _Worker) -> bool:
        if not worker.ready:
            limit = STARTUP_SECONDS
        elif worker.given:
            longest = self._longest.get(worker.given[0].function)
            limit = FIRST_SILENCE if longest is None else max(LEAST_SILENCE, FACTOR * longest)
        else:
            return False
        return time.monotonic() > worker.since + limit

    def _replace(self, worker: _Worker, reason: str) -> None:
        worker.kill()
        self._replaced[reason] += 1
        for item in reversed(worker.given):
            item.heard = 0
            self._waiting.appendleft(item)
            if item.gradient:
                self._free[worker.index].append(item.left[1])
        if worker.given:
            worker.given[0].deaths += 1
        self._failed_starts += not worker.ready
        deaths = max(self._failed_starts, worker.given[0].deaths if worker.given else 0)
        if deaths >= MOST_DEATHS:
            raise ChildProcessError(
                f"worker processes end again and again ({reason}): workers=1 computes in one process; if memory "
                "is short, fewer workers or a smaller learner.micro_batch_tokens may do"
            )
        self._workers[worker.index] = self._started(worker.index)

    def _started(self, index: int) -> _Worker:
        """A new worker; where the fork server is killed meanwhile, by another one."""
        for _ in range(MOST_DEATHS):
            try:
                return _Worker(self._context, index, *self._arguments)
            except (EOFError, OSError) as error:
                failure = error
                time.sleep(LOOK)  # it is not gone yet
        raise ChildProcessError(f"no worker process can be started ({failure}): set workers=1")

    def _add_gradient(self, index: int, slot: int) -> None:
        for weight, gradient in zip(self._parameters, self._left[index][slot], strict=True):
            if weight.grad is None:
                weight.grad = gradient.clone()
            else:
                weight.grad.add_(gradient)
        self._free[index].append(slot)


def serve(connection: Connection[Any, Any], index: int, skeletons: bytes, weights: str, threads: int) -> None:
    """In a worker: compute `(function, item, slot)` one after the other until the input ends.

    `skeletons` are the modules, pickled without weights; these lie in the memory of the path `weights`, and behind
    them what `gradient_slots` gives.
    """
    prctl(SET_PDEATHSIG, signal.SIGKILL)
    # The trainer decides when to stop, and may need its workers until it has saved.
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(kind, signal.SIG_IGN)
    with suppress(OSError):  # where a container forbids it; one that wakes must not push the trainer aside
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with suppress(AttributeError, OSError):  # another C library
        for parameter, size in KEPT_MEMORY.items():
            ctypes.CDLL(None).mallopt(parameter, size)
    torch.set_num_threads(threads)
    with suppress(EOFError, ConnectionError):
        with Path(weights).open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        held = Held(_with_weights(pickle.loads(skeletons), memory))
        parameters, slots = list(held.modules[0].parameters()), gradient_slots(memory, held.modules, index)
        gc.freeze()  # or collections would look through all of torch's objects
        connection.send_bytes(b"ready")
        while True:
            function, item, slot = pickle.loads(connection.recv_bytes())
            for value in _values(function, held, item):
                connection.send_bytes(pickle.dumps(value))
            if slot >= 0:
                for weight, view in zip(parameters, slots[slot], strict=True):
                    view.zero_() if weight.grad is None else view.copy_(weight.grad)
                    weight.grad = None
            connection.send_bytes(b"")


def _values(function: Function, held: Held, item: Any) -> Iterator[Any]:
    """What the function yields; at last what it raised, with where, and in words where it cannot be sent."""
    try:
        yield from function(held, item)
    except Exception as error:
        where = "".join(format_exception(error))
        error.add_note(f"in a worker process:\n{where}")
        try:
            yield pickle.loads(pickle.dumps(error))
        except Exception:
            yield RuntimeError(f"in a worker process:\n{where}")


def _weights(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    """The parameters of all modules, those that are shared between them once."""
    return list({id(weight): weight for module in modules for weight in module.parameters()}.values())


def _with_weights(modules: Sequence[nn.Module], memory: mmap.mmap) -> Sequence[nn.Module]:
    """Modules that came `without_weights`, with theirs in the memory."""
    weights = _weights(modules)
    placed = {
        id(weight): nn.Parameter(view, requires_grad=weight.requires_grad)
        for weight, view in zip(weights, views(memory, weights), strict=True)
    }
    for module in (inner for outer in modules for inner in outer.modules()):
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = placed[id(weight)]
    return modules
