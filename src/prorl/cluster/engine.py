"""Data-parallel engines behind one `ports.Engine`: who serves what, and what happens when one dies or hangs.

Invariants: which engine serves a request follows from the order of `submit` alone, and every engine has all of its
work before it decodes the first token; so what is sampled does not depend on which engine is faster. No wait for an
engine is without end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray

from prorl.cluster.calls import LOST, OverdueError, ended, reason, result
from prorl.cluster.settings import EngineSettings, check_request
from prorl.cluster.turns import Take, apart
from prorl.cluster.weights import Published, Receivers
from prorl.local.backend import SyncError, allowed, require_agreement
from prorl.types import Completion, Request

MOST_RESTARTS = 3  # of one engine, between two syncs
MOST_FAILURES = (
    2  # of direct transfers in a row; then weights go through host memory until the run is resumed
)

TRANSFER_SECONDS = 5.0  # for an answer that is ready on another machine to get here

_LOG = logging.getLogger(__name__)
_Key = tuple[int, int]  # draw, sample


class EngineLostError(Exception):
    """Engines are lost faster than they are replaced. No `ProrlError`: whoever supervises starts the run again."""


@dataclass(slots=True, kw_only=True)
class _Slot:
    """An engine, what it owes, and the answer it was asked for last."""

    index: int
    actor: Any
    owed: dict[_Key, Request] = field(default_factory=dict)
    pending: Any = None
    due: float = 0.0  # monotonic time at which `pending` is overdue
    restarts: int = 0  # since the last sync
    disproved: bool = False  # likewise: one in this place did not serve what was published

    @property
    def load(self) -> int:
        return sum(request.sampling.limit for request in self.owed.values())


class RayEngine:
    """`ports.Engine` over several engine actors."""

    def __init__(
        self,
        start: Callable[[int], Any],
        engines: int,
        settings: EngineSettings,
        *,
        deadline: float,
        take: Take = apart,
    ) -> None:
        """`start(index)` gives a handle of a new `EngineActor`, in the place of the one before it.

        `deadline` is in seconds: an engine that takes longer to start, to take new weights or to finish another
        response is replaced as if it had died. `take` asks for the GPUs where they are shared.
        """
        self._start = start
        self._settings = settings
        self._deadline = deadline
        self._take_turn = take
        self._take_turn(self)
        self._slots = [_Slot(index=index, actor=start(index)) for index in range(engines)]
        self._queue: list[Request] = []
        self._published: Published | None = None
        self._served: Published | None = None  # None as well while they sleep
        self._failures = 0  # of direct transfers, in a row
        self._incidents: list[str] = []

    @property
    def version(self) -> int:
        """Version of the weights that serve requests now; -1 before the first."""
        return self._published.version if self._published else -1

    def publish(self, published: Published) -> None:
        """Let all engines serve other weights, and prove by the probe that they do.

        Raises:
            SyncError: an engine does not serve the learner's weights, and neither does the one that took its place.
            EngineLostError: an engine and all that took its place died or hung.
            RuntimeError: requests are in flight.
        """
        if self._queue or any(slot.owed for slot in self._slots):
            raise RuntimeError(
                "weights cannot change while requests are in flight: poll to the end or cancel"
            )
        self._published = published
        for slot in self._slots:
            slot.restarts, slot.disproved = 0, False
        self._serve()

    def leave(self) -> None:
        """Let all engines sleep: they forget weights and cache, and are given what was published when they wake.

        One that dies or hangs over it is killed, and replaced in their next turn.

        Raises:
            RuntimeError: requests are in flight.
        """
        if self._queue or any(slot.owed for slot in self._slots):
            raise RuntimeError("engines cannot sleep while requests are in flight: poll to the end or cancel")
        self._served = None
        for slot, asleep in self._ask("sleep"):
            try:
                asleep()
            except LOST as error:
                self._tell(
                    f"engine {slot.index} did not fall asleep and is replaced in its turn: {reason(error)}"
                )
                ray.kill(slot.actor)  # what hangs holds its memory

    def submit(self, request: Request) -> None:
        """Queue one prompt with its n samples.

        Raises:
            RequestError, ValueError: as `check_request`.
        """
        check_request(request, self._settings)
        self._queue.append(request)

    def poll(self) -> list[Completion]:
        """Wait until at least one response has finished; an empty list means that nothing is in flight.

        Engines decode on while what they answered is judged. One that has died or hangs is replaced, and what it owed
        is asked of the new one.

        Raises:
            EngineLostError: an engine and all that took its place died or hung.
        """
        self._hand_out()
        done: list[Completion] = []
        self._ask_on()
        while not done and (busy := [slot for slot in self._slots if slot.owed]):
            done = [completion for slot in _answered(busy) for completion in self._take(slot)]
            self._ask_on()
        return sorted(done, key=lambda completion: (completion.draw, completion.sample))

    def cancel(self) -> None:
        """Drop everything in flight."""
        self._queue.clear()
        cancelling = [(slot, slot.actor.cancel.remote()) for slot in self._slots if slot.owed]
        due = self._due()
        for slot, cancelled in cancelling:
            slot.owed.clear()
            slot.pending = None
            with self._replacing(slot):
                result(cancelled, within=_left(due))

    def incidents(self) -> list[str]:
        """Which engines were replaced, and why, since this was last asked: a sentence each."""
        told, self._incidents = self._incidents, []
        return told

    def _ask_on(self) -> None:
        """Have every engine that owes something and answers nothing now decode until something has finished."""
        for slot in self._slots:
            if slot.owed and slot.pending is None:
                slot.pending, slot.due = slot.actor.poll.remote(), self._due()

    def _hand_out(self) -> None:
        """Give every queued request, whole, to the engine that owes the fewest tokens."""
        if self._queue:
            self._serve()
        work: dict[int, list[tuple[Request, int]]] = {}
        for request in self._queue:
            index = min(range(len(self._slots)), key=lambda index: self._slots[index].load)
            samples = range(request.samples)
            self._slots[index].owed |= {(request.draw, sample): request for sample in samples}
            work.setdefault(index, []).extend((request, sample) for sample in samples)
        self._queue.clear()
        given = [(self._slots[index], self._slots[index].actor.add.remote(work[index])) for index in work]
        due = self._due()
        for slot, added in given:
            with self._replacing(slot):
                result(added, within=_left(due))

    def _serve(self) -> None:
        """Have the GPUs, and on every engine the weights that were published last."""
        self._take_turn(self)
        published = self._published
        if published is None or self._served is published:
            return
        direct = self._settings.transfer != "host" and self._failures < MOST_FAILURES
        if not (direct and self._sent(published)):
            self._proven("install", published.copy(), replaced=(SyncError,))
        self._served = published

    def _proven(self, method: str, argument: Any, *, replaced: tuple[type[Exception], ...] = ()) -> None:
        """Have all engines serve what was published, and prove that they do; one that ends so is replaced as well.

        Raises:
            SyncError: one does not; where that one is replaced, another in its place did not either.
        """
        for slot, served in self._ask(method, argument):
            with self._replacing(slot, *replaced):
                served()
                self._prove(slot)

    def _sent(self, published: Published) -> bool:
        """Have the weights sent straight to all engines; whether they have arrived and are served.

        Otherwise all engines are new and have none: what the old ones hold nobody knows, and some may wait for ever.
        """
        for slot, withdrawn in self._ask("withdraw"):
            with self._replacing(slot):
                withdrawn()
        way, actors = self._settings.transfer, [slot.actor for slot in self._slots]
        receivers = Receivers(actors=actors, gpus=self._settings.tensor_parallel, deadline=self._deadline)
        failure = published.send(receivers) or self._disproof(published.version)
        if failure is None:
            self._failures = 0
            return True
        self._failures += 1
        then = "the next sync tries again" if self._failures < MOST_FAILURES else "so it is from now on"
        self._tell(
            f"policy version {published.version} did not reach the engines over {way} ({failure}): they are started "
            f"anew and take it from host memory; {then}"
        )
        for slot in self._slots:
            ray.kill(slot.actor)
            slot.actor = self._start(slot.index)
        return False

    def _disproof(self, version: int) -> str | None:
        """Have all engines serve what was sent to them; returns what shows that one does not."""
        try:
            self._proven("serve", version)
        except SyncError as error:
            return str(error)
        return None

    def _take(self, slot: _Slot) -> list[Completion]:
        answer, slot.pending = slot.pending, None
        completions: list[Completion] = []
        with self._replacing(slot):
            completions = result(answer, within=_left(slot.due))
        for completion in completions:
            del slot.owed[completion.draw, completion.sample]
        return completions

    @contextmanager
    def _replacing(self, slot: _Slot, *also: type[Exception]) -> Iterator[None]:
        """Replace the engine if it turns out to be lost while inside, or this is raised; the rest is then skipped."""
        try:
            yield
        except (*LOST, *also) as error:
            lost: Exception | None = error
            while lost is not None:
                lost = self._replace(slot, lost)

    def _replace(self, slot: _Slot, lost: Exception) -> Exception | None:
        """Put a new engine in the place of a lost one: same weights, proven, asked for what the old one owed.

        Returns why the new one is lost too, if it is.

        Raises:
            SyncError: it was lost for not serving what was published, as another in its place was before.
            EngineLostError: it was one too many.
        """
        if isinstance(lost, SyncError):
            if slot.disproved:
                raise lost
            slot.disproved = True
        slot.restarts += 1
        silent = isinstance(lost, OverdueError)
        how = ended(lost) + (f" for {self._deadline:.0f} s" if silent else "")
        why = "" if silent else f": {reason(lost)}"
        if slot.restarts > MOST_RESTARTS:
            raise EngineLostError(
                f"engine {slot.index} {how}, the {slot.restarts}th since the last sync: see what its machine lacks; "
                f"where it only needs longer, raise cluster.engine_deadline{why}"
            ) from lost
        self._tell(
            f"engine {slot.index} {how} and is replaced, {len(slot.owed)} responses are asked again{why}"
        )
        assert self._published is not None, "an engine is asked for nothing before it has weights"
        ray.kill(slot.actor)  # what hangs holds its place
        slot.actor, slot.pending = self._start(slot.index), None
        weights, due = self._published.copy(), self._due()
        owed = [(request, sample) for (_, sample), request in slot.owed.items()]
        try:
            result(slot.actor.install.remote(weights), within=_left(due))
            self._prove(slot)
            result(slot.actor.add.remote(owed), within=_left(due))
        except (*LOST, SyncError) as error:
            return error
        return None

    def _prove(self, slot: _Slot) -> None:
        assert self._published is not None, "called once there are weights"
        told = self._published
        decoded = result(slot.actor.score.remote(told.prompt, told.tokens), within=self._deadline)
        tolerance = allowed(self._settings.dtype, told.logps)
        name = f"engine {slot.index}"
        require_agreement(told.version, decoded, told.logps, tolerance=tolerance, engine=name)

    def _tell(self, incident: str) -> None:
        """Now to the log, as a step may take long, and by `incidents` to the journal."""
        _LOG.warning(incident)
        self._incidents.append(incident)

    def _ask(self, method: str, *arguments: Any) -> list[tuple[_Slot, Callable[[], Any]]]:
        """Ask all engines at once; each with the wait for its answer."""
        due = self._due()

        def wait(answer: Any) -> Any:
            return result(answer, within=_left(due))

        asked = [(slot, getattr(slot.actor, method).remote(*arguments)) for slot in self._slots]
        return [(slot, partial(wait, answer)) for slot, answer in asked]

    def _due(self) -> float:
        return time.monotonic() + self._deadline


def _answered(busy: Sequence[_Slot]) -> list[_Slot]:
    """Wait for the first answer or the first deadline; all engines that have either behind them."""
    pending = [slot.pending for slot in busy]
    ray.wait(pending, timeout=_left(min(slot.due for slot in busy)))
    ready, _ = ray.wait(pending, num_returns=len(pending), timeout=0.0)
    return [slot for slot in busy if slot.pending in ready or slot.due <= time.monotonic()]


def _left(due: float) -> float:
    """Seconds until then; where it has passed, those in which a ready answer gets here."""
    return max(TRANSFER_SECONDS, due - time.monotonic())
