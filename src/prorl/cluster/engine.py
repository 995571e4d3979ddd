"""Data-parallel vLLM engines behind one `types.Engine`.

Invariants: which engine serves a request follows from the order of `submit` alone, and every engine has all of its
work before it decodes the first token; so what is sampled does not depend on which engine is faster. Where engines
share a queue it does, by rounding. Every wait for an engine has a deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray

from prorl.cluster.cluster import LOST, TRANSFER_SECONDS, OverdueError, Pool, Slot, reason, result
from prorl.cluster.settings import EngineSettings, GpuSharing, free_address, use_interface_of
from prorl.cluster.weights import Copies, Published
from prorl.local.backend import SyncError, require_agreement
from prorl.local.engine import require_room
from prorl.types import Completion, Request

MOST_FAILURES = 2  # direct transfers in a row; then weights go through host memory until the run is resumed


class EngineActor:
    """A `VLLMEngine` in a process of its own: vLLM is imported there alone, after its environment has been set."""

    def __init__(self, settings: EngineSettings) -> None:
        from prorl.cluster.vllm_engine import VLLMEngine

        use_interface_of(free_address()[0])
        self._engine = VLLMEngine(settings)

    def call(self, method: str, *arguments: Any) -> Any:
        """A method of the engine, which is given weights in place of their `Copies`."""
        node = ray.get_runtime_context().get_node_id()
        given = [ray.get(one.nearest(node)) if isinstance(one, Copies) else one for one in arguments]
        return getattr(self._engine, method)(*given)


class RayEngine(Pool):
    """`types.Engine` over several engine actors."""

    role, again, proven = "engine", "asked", "since the last sync"
    help = (
        "; where it only needs longer, raise cluster.engine_deadline, and where its node is gone, resume with fewer "
        "cluster.engines"
    )

    def __init__(
        self, start: Callable[[int], Any], settings: EngineSettings, *, sharing: GpuSharing | None = None
    ) -> None:
        """`start(index)` gives a handle of a new `EngineActor`; `sharing` where the learner uses the same GPUs.

        With a shared queue an engine is given requests as it has rows for them, not all of its work at once. One
        that takes longer than its deadline to start, to take new weights or to decode another token is replaced as if
        it had died, once if the next one is silent from its start.
        """
        self._settings, self._deadline, self._sharing = settings, settings.engine_deadline, sharing
        self._rows = settings.max_rows if settings.shared_queue else math.inf  # that an engine may owe
        if sharing is not None:
            sharing.acquire(self)
        self.silence = f" for {self._deadline:.0f} s"
        super().__init__(start, settings.engines)
        self._queue: list[Request] = []
        self._published: Published | None = None
        self._served: Published | None = None  # None while they sleep
        self._failures = 0  # of direct transfers, in a row

    @property
    def version(self) -> int:
        """Version of the weights that serve requests now; -1 before the first."""
        return self._published.version if self._published else -1

    def publish(self, published: Published) -> None:
        """Let all engines serve other weights, and prove by the probe that they do.

        Raises SyncError where an engine and the one that replaced it do not, LostError where an engine and all that
        replaced it died or hung, RuntimeError with requests in flight.
        """
        self._require_quiet("weights cannot change")
        self._published = published
        for slot in self._slots:
            slot.restarts, slot.disproved = 0, False
        self._serve()

    def leave(self) -> None:
        """Let all engines sleep: they drop weights and cache, and are given what was published when they wake.

        One that dies or hangs meanwhile is killed, and replaced when the engines use the GPUs again. Raises
        RuntimeError with requests in flight.
        """
        self._require_quiet("engines cannot sleep")
        self._served = None
        for slot, asleep in self._ask("sleep"):
            try:
                _wait(asleep, slot.due)
            except LOST as error:
                self._tell(
                    f"engine {slot.index} did not fall asleep and is replaced when it is needed: {reason(error)}"
                )
                ray.kill(slot.actor)  # one that hangs holds its memory

    def submit(self, request: Request) -> None:
        """Queue one prompt with its n samples. Raises UsageError: it does not fit into the model's context."""
        require_room(len(request.context), request.sampling.limit, self._settings.context)
        self._queue.append(request)

    def poll(self) -> list[Completion]:
        """Wait until at least one response has finished; an empty list means that nothing is in flight.

        Engines decode on while what they answered is judged. Raises LostError as `publish`.
        """
        self._hand_out()
        done: list[Completion] = []
        self._ask_on()
        while not done and any(slot.owed for slot in self._slots):
            done = [each for slot in self._answered() for each in self._take(slot)]
            self._ask_on()
        return sorted(done, key=lambda completion: (completion.draw, completion.sample))

    def cancel(self) -> list[Completion]:
        """Stop all that is in flight; an engine that is lost meanwhile is replaced, and what it wrote is gone."""
        done: list[Completion] = []
        for slot in self._slots:
            while slot.pending is not None:  # again where it was lost: what takes its place is asked the same
                done += self._take(slot)
        self._queue.clear()
        for slot in self._slots:
            slot.owed = {}
        for slot, cut in self._ask("cancel"):
            with self._replacing(slot):
                done += _wait(cut, slot.due)
        return done

    def _require_quiet(self, what: str) -> None:
        if self._queue or any(slot.owed for slot in self._slots):
            raise RuntimeError(f"{what} while requests are in flight: poll to the end first")

    def _ask_on(self) -> None:
        for slot in self._slots:
            if slot.owed and slot.pending is None:
                slot.pending, slot.due = slot.actor.call.remote("poll"), self._due()

    def _hand_out(self) -> None:
        """Give queued requests, whole, to the engine that owes the fewest tokens of those that may owe more."""
        if self._queue:
            self._serve()
        work: dict[int, list[tuple[Request, int]]] = {}
        loads = [sum(request.sampling.limit for request in slot.owed.values()) for slot in self._slots]
        given = 0
        for request in self._queue:
            most = self._rows - request.samples
            able = [slot.index for slot in self._slots if not slot.owed or len(slot.owed) <= most]
            if not able:
                break
            index = min(able, key=loads.__getitem__)
            given += 1
            loads[index] += request.samples * request.sampling.limit
            self._slots[index].owed |= {(request.draw, sample): request for sample in request.numbers}
            work.setdefault(index, []).extend((request, sample) for sample in request.numbers)
        del self._queue[:given]
        due = self._due()
        added = {index: self._slots[index].actor.call.remote("add", mine) for index, mine in work.items()}
        for index, answer in added.items():
            with self._replacing(self._slots[index]):
                _wait(answer, due)

    def _serve(self) -> None:
        """Acquire the GPUs, and have every engine serve the weights that were published last."""
        if self._sharing is not None:
            self._sharing.acquire(self)
        published = self._published
        if published is None or self._served is published:
            return
        direct = self._settings.transfer != "host" and self._failures < MOST_FAILURES
        if not (direct and self._sent(published)):
            self._serve_proven("install", published.copy(), replaced=(SyncError,))
        self._served = published

    def _serve_proven(
        self, method: str, argument: Any, *, replaced: tuple[type[Exception], ...] = ()
    ) -> None:
        """Have all engines serve what was published, and prove it; one that raises `replaced` is replaced as well."""
        for slot, given in [(slot, self._give(slot, method, argument)) for slot in self._slots]:
            with self._replacing(slot, *replaced):
                self._finish(slot, given)

    def _sent(self, published: Published) -> bool:
        """Send the weights straight to all engines; if that fails, all start anew: some may wait for ever."""
        for slot, prepared in self._ask("prepare"):
            with self._replacing(slot):
                _wait(prepared, slot.due)
        try:
            failure = published.send([slot.actor for slot in self._slots], self._settings)
            if failure is None:
                self._serve_proven("serve", published.version)
                self._failures = 0
                return True
        except SyncError as error:
            failure = str(error)
        self._failures += 1
        then = "the next sync tries again" if self._failures < MOST_FAILURES else "so it is from now on"
        self._tell(
            f"policy version {published.version} did not reach the engines over {self._settings.transfer} "
            f"({failure}): they are started anew and take it from host memory; {then}"
        )
        for slot in self._slots:
            ray.kill(slot.actor)
            slot.actor = self._start(slot.index)
        return False

    def _take(self, slot: Slot) -> list[Completion]:
        answer, slot.pending, begun, slot.begun = slot.pending, None, slot.begun, ()
        completions: list[Completion] = []
        try:
            if begun:
                self._finish(slot, begun)
            completions = _wait(answer, slot.due)
        except (*LOST, SyncError) as error:  # the others go on decoding while another one starts
            slot.begun = self._begin(slot, error)
            slot.pending = slot.actor.call.remote("poll")
        for completion in completions:
            del slot.owed[completion.draw, completion.sample]
        return completions

    @contextmanager
    def _replacing(self, slot: Slot, *also: type[Exception]) -> Iterator[None]:
        """If the engine is lost inside the block, or `also` is raised, start new ones until one has what it owed."""
        lost: Exception | None = None
        try:
            yield
        except (*LOST, *also) as error:
            lost = error
        while lost is not None:
            begun = self._begin(slot, lost)
            try:
                self._finish(slot, begun)
                return
            except (*LOST, SyncError) as error:
                lost = error

    def _begin(self, slot: Slot, lost: Exception) -> tuple[Any, ...]:
        """Start a new engine for a lost one, and ask it to take the weights, prove it, and take what that owed."""
        if isinstance(lost, SyncError) and slot.disproved:
            raise lost
        slot.disproved |= isinstance(lost, SyncError)
        # A node that is gone, or in trouble, is not waited for again and again.
        silent = isinstance(lost, OverdueError) and not slot.started
        self._restart(slot, lost, hopeless="as it started anew" if silent else "")
        return self._give(slot, "install", self._told.copy())

    def _give(self, slot: Slot, method: str, argument: Any) -> tuple[Any, ...]:
        """Ask an engine to serve what was published, to prove it, and to take what it owes."""
        owed = [(request, sample) for (_, sample), request in slot.owed.items()]
        slot.due, ask = self._due(), slot.actor.call.remote  # an actor does what it is asked in order
        return ask(method, argument), ask("score", self._told.prompt, self._told.tokens), ask("add", owed)

    def _finish(self, slot: Slot, begun: tuple[Any, ...]) -> None:
        """Wait for what `_give` asked for. Raises SyncError: the engine serves something else."""
        served, scored, added = begun
        _wait(served, slot.due)
        slot.started = True
        told, decoded = self._told, _wait(scored, slot.due)
        require_agreement(
            told.version, decoded, told.logps, self._settings.dtype, engine=f"engine {slot.index}"
        )
        _wait(added, slot.due)

    @property
    def _told(self) -> Published:
        assert self._published is not None, "an engine is asked for nothing before there are weights"
        return self._published

    def _ask(self, method: str) -> list[tuple[Slot, Any]]:
        """Ask all engines, which owe nothing else, at once; each with its answer to come."""
        for slot in self._slots:
            slot.due = self._due()
        return [(slot, slot.actor.call.remote(method)) for slot in self._slots]

    def _due(self) -> float:
        return time.monotonic() + self._deadline


def _wait(answer: Any, due: float) -> Any:
    """The answer of a call, until then and at least for the time in which one that is ready gets here."""
    return result(answer, within=max(TRANSFER_SECONDS, due - time.monotonic()))
