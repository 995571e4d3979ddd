"""Ray: the session, the place of every process of a run, actors and their answers."""

from __future__ import annotations

import logging
import re
import socket
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, OutOfMemoryError, RayActorError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from prorl.cluster.settings import ClusterError, device_kind, engine_environment, places
from prorl.config.schema import RunConfig
from prorl.envs.errors import ProrlError
from prorl.types import JudgeOutError

CONNECT_SECONDS = 10.0
TRANSFER_SECONDS = 5.0  # for an answer that is ready on another machine to get here
REASON = 300  # characters
MOST_RESTARTS = 3  # of an actor, before one in its place has proven itself

_LOG = logging.getLogger(__name__)


class FaultError(Exception):
    """An actor raised something unexpected and lives, as after a GPU's fault. No `ProrlError` either."""


class OverdueError(Exception):
    """An actor has not answered within its deadline. No `ProrlError`, so that the supervisor starts again."""


LOST = (RayActorError, FaultError, OutOfMemoryError, ObjectLostError, OverdueError)
"""How a call ends whose actor is to be replaced: dead, broken, killed by Ray for its node's memory, or silent."""


class LostError(Exception):
    """Actors are lost faster than they are replaced. No `ProrlError`: the supervisor starts the run again."""


class Cluster:
    """A place for every rank and engine, of their own or shared, as `places` says; then one per judge."""

    def __init__(self, config: RunConfig) -> None:
        """Of a settled recipe. Raises ClusterError where there is no room."""
        self._config, asked = config, config.cluster
        one = {"CPU": float(config.threads)} | ({"GPU": 1.0} if device_kind(config) == "cuda" else {})
        self._places = [{name: gpus * each for name, each in one.items()} for gpus in places(config)]
        self._places += [{"CPU": float(config.judge.workers)}] * asked.judges
        # What a process asks for is a promise about its own threads, not a claim on this machine's cores.
        join(asked.address, cpus=int(sum(place["CPU"] for place in self._places)))
        # Ray fills a node before it turns to the next: its GPUs first, then judges on the CPUs that those leave.
        self._group = placement_group(self._places, strategy="PACK")
        if not self._group.wait(asked.room_deadline):
            self.close()
            alike = Counter(
                " and ".join(f"{amount:g} {name}" for name, amount in place.items()) for place in self._places
            )
            wanted = " and ".join(f"{count} places of {place}" for place, count in alike.items())
            raise ClusterError(
                f"the Ray cluster had no room for {wanted} for {asked.room_deadline:.0f} s: lower "
                "cluster.learners, cluster.engines, cluster.judges or threads, add machines, or where lost ones come "
                "back by themselves raise cluster.room_deadline"
            )

    def start(
        self, role: Literal["rank", "engine", "judge"], index: int, actor: type, *arguments: Any
    ) -> Any:
        """A handle of a new actor made of `arguments`, in the place of an earlier one of this index that has died."""
        config, asked = self._config, self._config.cluster
        first = {"rank": 0, "engine": 0 if asked.colocate else asked.learners}
        at = index + first.get(role, len(places(config)))
        # Passes differ in shape, which tears the memory of a GPU into pieces.
        rank = {"OMP_NUM_THREADS": str(config.threads), "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
        variables = {"rank": rank, "engine": engine_environment(config.threads, device_kind(config))}
        share = 0.5 if asked.colocate and role != "judge" else 1.0
        place = PlacementGroupSchedulingStrategy(placement_group=self._group, placement_group_bundle_index=at)
        remote = ray.remote(actor).options(
            num_cpus=share * self._places[at]["CPU"],
            num_gpus=share * self._places[at].get("GPU", 0.0),
            scheduling_strategy=place,
            runtime_env={"env_vars": variables[role]} if role in variables else None,
            max_concurrency=3 if role == "rank" else None,  # others write checkpoints and tell how far it is
        )
        return remote.remote(*arguments)

    def close(self) -> None:
        """Give the places back, which ends their processes, and leave the cluster."""
        if ray.is_initialized():
            remove_placement_group(self._group)
            ray.shutdown()


def join(address: str | None, *, cpus: int | None = None) -> None:
    """Connect to the cluster at an address; without one, start one on this machine with so many CPUs to give.

    Raises ClusterError where nobody answers, or a cluster of another version of Ray or Python does.
    """
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **options)
        return
    try:
        host, _, port = address.rpartition(":")
        if port.isdecimal() and "://" not in address:  # fail at once where Ray would try for minutes
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        ray.init(address=address, **options)
    except (OSError, ValueError) as error:  # the second of what is no address, such as a host without a port
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error}): start one with `ray start --head`, leave "
            "cluster.address out to use this machine alone, or set RAY_AUTH_MODE=token if that cluster asks for one"
        ) from None
    except RuntimeError as error:
        ray.shutdown()  # half connected
        versions = re.findall(r"^ *(?:Ray|Python): (\S+)$", str(error), re.MULTILINE)
        if len(versions) != 4:
            raise
        there, here = (" and Python ".join(side) for side in (versions[:2], versions[2:]))
        raise ClusterError(
            f"the Ray cluster at {address} is of Ray {there}, and here is Ray {here}: use one environment on all "
            "nodes and here (docs/cluster.md), and start the cluster again from it"
        ) from None


def cpus_per_gpu(address: str) -> int | None:
    """CPUs for each GPU, on the node that has fewest, of the cluster at an address as far as its nodes have joined;
    None without a GPU. Raises as `join`."""
    join(address)
    try:
        there = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return min((int(one.get("CPU", 0) // one["GPU"]) for one in there if one.get("GPU")), default=None)
    finally:
        ray.shutdown()


@dataclass(slots=True, kw_only=True)
class Slot:
    """The place of an actor, what it owes by name, and the call that it was asked last.

    An engine owes requests, by draw and sample; a judge owes items, under the caller's tickets, by number.
    """

    index: int
    actor: Any
    owed: dict[Any, Any] = field(default_factory=dict)
    pending: Any = None
    due: float = 0.0  # monotonic time at which `pending` is overdue
    restarts: int = 0  # since an actor in this place has proven itself
    begun: tuple[Any, ...] = ()  # what an engine that was started anew was asked before `pending`
    disproved: bool = False  # an engine here has not served what was published since the last sync
    unsent: list[int] = field(default_factory=list)  # numbers of items that a judge has not been sent yet
    started: bool = True  # false for an actor that was started anew and has not answered yet
    out: JudgeOutError | None = None  # in its last answer


class Pool:
    """Actors that do the same; another is started in the place of one that is lost."""

    role: str
    again: str  # what is done again with what a lost one owed
    proven: str  # within what one place may lose `MOST_RESTARTS`
    silence = help = ""  # for how long one was silent; what else to do where too many are lost

    def __init__(self, start: Callable[[int], Any], number: int) -> None:
        """`start(index)` gives a handle of a new actor, in the place of the one before it."""
        self._start = start
        self._slots = [Slot(index=index, actor=start(index)) for index in range(number)]
        self._incidents: list[str] = []

    def incidents(self) -> list[str]:
        """Which actors were replaced, and why, since this was last asked: a sentence each."""
        told, self._incidents = self._incidents, []
        return told

    def _tell(self, incident: str) -> None:
        """Write it to the log now, as a step may take long; `incidents` gives it to the journal."""
        _LOG.warning(incident)
        self._incidents.append(incident)

    def _answered(self, *, wait: bool = True) -> list[Slot]:
        """Those whose pending call is answered or overdue; `wait` until there is one, unless none is pending."""
        busy = [slot for slot in self._slots if slot.pending is not None]
        calls = [slot.pending for slot in busy]
        if wait and busy:
            left = min(slot.due for slot in busy) - time.monotonic()
            ray.wait(calls, timeout=max(0.0, left), fetch_local=False)
        ready = ray.wait(calls, num_returns=len(calls), timeout=0.0, fetch_local=False)[0] if busy else []
        return [slot for slot in busy if slot.pending in ready or slot.due <= time.monotonic()]

    def _restart(self, slot: Slot, lost: Exception, *, hopeless: str = "") -> None:
        """Start another actor for a lost one. Raises LostError where that one was one too many, or `hopeless`."""
        slot.restarts += 1
        failed = isinstance(lost, (FaultError, ProrlError))
        how, why = "has failed" if failed else "has died", f": {reason(lost)}"
        if isinstance(lost, OverdueError):
            how, why = f"was silent{self.silence}", ""
        if slot.restarts > MOST_RESTARTS:
            hopeless = f"the {slot.restarts}th {self.proven}"
        if hopeless:
            raise LostError(
                f"{self.role} {slot.index} {how}, {hopeless}: check memory and logs of its node{self.help}{why}"
            ) from lost
        self._tell(
            f"{self.role} {slot.index} {how} and is replaced, {len(slot.owed)} responses are {self.again} again{why}"
        )
        ray.kill(slot.actor)  # one that hangs holds its place
        slot.actor, slot.started = self._start(slot.index), False
        slot.pending, slot.begun = None, ()


def results(references: Sequence[Any], *, within: float | None = None) -> list[Any]:
    """What the calls returned, in their order; the first failure is raised at once, without waiting for the others.

    Raises a ProrlError or ValueError of an actor as it is, anything else that one raised as FaultError; RayActorError
    or OutOfMemoryError where one has died, OverdueError where one has not answered `within` so many seconds.
    """
    try:
        return list(ray.get(list(references), timeout=within))
    except RayTaskError as error:
        if isinstance(error.cause, (ProrlError, ValueError)):
            raise error.cause from None
        raise FaultError(f"{type(error.cause).__name__}: {error.cause}") from error
    except GetTimeoutError:
        raise OverdueError("an actor has not answered in time") from None


def result(reference: Any, *, within: float | None = None) -> Any:
    """What one call returned; raises as `results`."""
    return results([reference], within=within)[0]


def reason(lost: BaseException) -> str:
    """What is known of why an actor is lost, in a line."""
    lines = [line.strip() for line in str(lost).splitlines() if line.strip()] or [type(lost).__name__]
    # Ray ends its message about a dead actor with why, whether it was killed or failed as it was made.
    return textwrap.shorten(lines[-1 if isinstance(lost, RayActorError) else 0], REASON, placeholder=" …")
