"""Judges on a cluster's nodes behind one `types.Judge`: which judges what, and what happens when one dies or hangs.

Each is an actor around a `LocalJudge` with its worker processes, deadlines and memory limits. Items travel many at a
time, as a call costs more than a verdict. Invariants: verdicts are those of a `LocalJudge`, whichever actor judges;
an item is owed until its verdict is here; every wait has a deadline.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import ray

from prorl.cluster.cluster import LOST, TRANSFER_SECONDS, LostError, Pool, Slot, reason, result, results
from prorl.envs.errors import ProrlError
from prorl.envs.types import Problem, Verdict
from prorl.local.children import replacements
from prorl.local.judge import REPLACED, STARTUP_ATTEMPTS, STARTUP_SECONDS, JudgeError, LocalJudge
from prorl.types import JudgeOutError

LINGER_SECONDS = 0.1  # for which an actor gathers verdicts before it answers
ANSWER_SECONDS = 30.0  # beyond an item's deadline until an actor counts as silent: its node may be busy
START_SECONDS = 120.0  # for a new actor to come up, on a busy node or on one that comes back
CLOSE_SECONDS = 5.0

# number or ticket, what was asked (its payload pickled while it travels), what was answered
_Item = tuple[int, Problem, str]
# verdicts, workers replaced by reason, and why no worker can be started now
_Answer = tuple[list[tuple[int, Verdict]], Counter[str], JudgeOutError | None]


class _Pickled:
    """A pickled payload, which opens on its way to a worker: only that may know the class, of the user's own."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._pickled,)


class JudgeActor:
    """A `LocalJudge` on its node. The kernel ends its workers with it."""

    def __init__(self, make: Callable[[], LocalJudge]) -> None:
        self._judge = make()

    def start(self, check: Callable[[], str]) -> str:
        """Wait until the verifiers are built; what `check` says of this node. Raises JudgeError: it cannot judge."""
        try:
            warning = check()
            self._judge.ready()
        except ProrlError as error:
            raise JudgeError(
                f"node {ray.util.get_node_ip_address()} cannot judge: {error}; give it what the driver has, or set "
                "cluster.judges=0 to judge beside the driver"
            ) from None
        return warning

    def exchange(self, items: Sequence[_Item]) -> _Answer:
        """Queue items; verdicts of these and earlier ones that are ready within a tenth of a second."""
        end = time.monotonic() + LINGER_SECONDS
        self._judge.proven = True  # this node can judge: `start` was asked of this actor or of one before it
        for number, problem, text in items:
            self._judge.submit(number, replace(problem, payload=_Pickled(problem.payload)), text)
        judged: list[tuple[int, Verdict]] = []
        out = None
        try:
            while (left := end - time.monotonic()) > 0 and (more := self._judge.poll(wait=True, within=left)):
                judged += more
        except JudgeOutError as error:
            out = JudgeOutError(f"node {ray.util.get_node_ip_address()}: {error}", error.seconds)
            time.sleep(max(0.0, end - time.monotonic()))
        return judged, self._judge.replaced(), out

    def close(self) -> None:
        """End the workers."""
        self._judge.close()


class RayJudge(Pool):
    """`types.Judge` over several judge actors."""

    role, again, proven = "judge", "judged", "without a verdict between them"

    def __init__(
        self, start: Callable[[int], Any], judges: int, *, deadline: float, check: Callable[[], str]
    ) -> None:
        """Start the judges, and wait until each has built its verifiers.

        `start(index)` gives a handle of a new `JudgeActor`. `deadline` is the seconds that one item may take. `check`
        is called on every node: it raises a ProrlError where responses cannot be judged there, which becomes a
        JudgeError that names the node, and may return a warning. Raises LostError where a judge is lost.
        """
        super().__init__(start, judges)
        self._deadline = deadline
        self._numbers = count()
        self._replaced: Counter[str] = Counter()  # workers of judges
        seconds = START_SECONDS + STARTUP_ATTEMPTS * STARTUP_SECONDS
        try:
            warnings = results([slot.actor.start.remote(check) for slot in self._slots], within=seconds)
        except LOST as error:
            raise LostError(
                f"a judge has died or was silent as it started: check memory and logs of its node: {reason(error)}"
            ) from error
        for warning in sorted(set(filter(None, warnings))):
            self._tell(warning)

    def submit(self, ticket: int, problem: Problem, text: str) -> None:
        """Queue one response, for the judges in turn; it is sent by the next `poll`."""
        if not self._slots:
            raise RuntimeError("this judge is closed")
        number = next(self._numbers)
        slot = self._slots[number % len(self._slots)]
        slot.owed[number] = (ticket, problem, text)
        slot.unsent.append(number)

    def poll(self, *, wait: bool) -> list[tuple[int, Verdict]]:
        """Verdicts that are here, in no particular order; with `wait`, at least one unless none is outstanding.

        A judge that has died or is silent is replaced, and the new one is sent what it owed. Raises JudgeOutError
        where no judge that owes a verdict can start a worker now, LostError where all that replaced one were lost.
        """
        self._ask()
        judged = self._collect(wait=False)
        for slot in self._slots:
            slot.out = None  # that was said before this poll
        while wait and not judged and (owing := [slot for slot in self._slots if slot.owed]):
            if all(slot.out for slot in owing):
                raise min((slot.out for slot in owing if slot.out), key=lambda out: out.seconds)
            judged = self._collect(wait=True)
        return judged

    def incidents(self) -> list[str]:
        """Which judges were replaced, and why, since the last call: a sentence each, and one for all workers."""
        told = super().incidents() + replacements(self._replaced, REPLACED)
        self._replaced.clear()
        return told

    def close(self) -> None:
        """End the judges and their workers; nothing may be submitted afterwards."""
        closing = [slot.actor.close.remote() for slot in self._slots]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
        for slot in self._slots:
            ray.kill(slot.actor)
        self._slots = []

    def _ask(self) -> None:
        """Send what is queued to every judge that has no call pending; it goes on with what it has."""
        for slot in self._slots:
            if slot.owed and slot.pending is None:
                items = []
                for number in slot.unsent:
                    _, problem, text = slot.owed[number]
                    items.append((number, replace(problem, payload=pickle.dumps(problem.payload)), text))
                slot.unsent.clear()
                slot.pending = slot.actor.exchange.remote(items)
                start = 0.0 if slot.started else START_SECONDS
                slot.due = time.monotonic() + start + self._deadline + ANSWER_SECONDS

    def _collect(self, *, wait: bool) -> list[tuple[int, Verdict]]:
        """Take what judges have answered and ask them again; with `wait`, after the first answer or deadline."""
        judged = [verdict for slot in self._answered(wait=wait) for verdict in self._take(slot)]
        self._ask()
        return judged

    def _take(self, slot: Slot) -> list[tuple[int, Verdict]]:
        try:
            answer: _Answer = result(slot.pending, within=TRANSFER_SECONDS)
        except LOST as error:
            self._restart(slot, error)
            slot.unsent = list(slot.owed)
            return []
        judged, replaced, slot.out = answer
        self._replaced.update(replaced)
        slot.pending, slot.started = None, True
        slot.restarts = 0 if judged else slot.restarts
        return [(slot.owed.pop(number)[0], verdict) for number, verdict in judged]
