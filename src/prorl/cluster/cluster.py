"""The processes of a run on a Ray cluster: attached or started, placed together, and given back."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from prorl.cluster.engine_actor import EngineActor
from prorl.cluster.judge import JudgeActor
from prorl.cluster.learner import LearnerRank
from prorl.cluster.settings import (
    ClusterSettings,
    EngineSettings,
    engine_environment,
    learner_environment,
)
from prorl.envs.errors import ProrlError
from prorl.local.judge import LocalJudge

CONNECT_SECONDS = 10.0


class ClusterError(ProrlError):
    """The cluster cannot be reached, or has no room for the run."""


class Cluster:
    """A place for every rank and engine, of their own or shared, as `ClusterSettings.places`; then one per judge."""

    def __init__(self, settings: ClusterSettings) -> None:
        """Raises ClusterError where the places are not to be had."""
        self._settings = settings
        one = {"CPU": float(settings.threads)} | ({"GPU": 1.0} if settings.device == "cuda" else {})
        self._places = [{name: gpus * each for name, each in one.items()} for gpus in settings.places]
        self._places += [{"CPU": float(settings.judge_workers)}] * settings.judges
        # What a process asks for is a promise about its own threads, not a claim on this machine's cores.
        join(settings.address, cpus=int(sum(place["CPU"] for place in self._places)))
        # Ray fills a node before it turns to the next: its GPUs first, then judges on the CPUs that those leave.
        self._group = placement_group(self._places, strategy="PACK")
        if not self._group.wait(settings.room_deadline):
            self.close()
            raise ClusterError(
                f"the Ray cluster had no room for {_counted(self._places)} for {settings.room_deadline:.0f} s: lower "
                "cluster.learners, cluster.engines, cluster.judges or threads, add machines, or where lost ones come "
                "back by themselves raise cluster.room_deadline"
            )

    def start_rank(self, index: int) -> Any:
        """A handle of a new `LearnerRank`; it writes checkpoints in a second thread."""
        rank = ray.remote(LearnerRank).options(
            **self._options(index, self._share),
            runtime_env={"env_vars": learner_environment(self._settings.threads)},
            max_concurrency=2,
        )
        return rank.remote(index, self._settings.learners)

    def start_engine(self, index: int, settings: EngineSettings) -> Any:
        """A handle of a new `EngineActor`, in the place of an earlier one of this index that has died."""
        engine = ray.remote(EngineActor).options(
            **self._options(self._settings.place_of_engine(index), self._share),
            runtime_env={"env_vars": engine_environment(self._settings.threads, self._settings.device)},
        )
        return engine.remote(settings)

    def start_judge(self, index: int, make: Callable[[], LocalJudge]) -> Any:
        """A handle of a new `JudgeActor`, in the place of an earlier one of this index that has died."""
        return (
            ray.remote(JudgeActor).options(**self._options(len(self._settings.places) + index)).remote(make)
        )

    def close(self) -> None:
        """Give the places back, which ends their processes, and leave the cluster."""
        if ray.is_initialized():
            remove_placement_group(self._group)
            ray.shutdown()

    @property
    def _share(self) -> float:
        """Of its place that a rank or an engine has."""
        return 0.5 if self._settings.colocate else 1.0

    def _options(self, place: int, share: float = 1.0) -> dict[str, Any]:
        holds = self._places[place]
        return {
            "num_cpus": share * holds["CPU"],
            "num_gpus": share * holds.get("GPU", 0.0),
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=place
            ),
        }


def _counted(places: Sequence[Mapping[str, float]]) -> str:
    """Places in words, alike ones together."""
    alike = Counter(" and ".join(f"{amount:g} {name}" for name, amount in place.items()) for place in places)
    return " and ".join(f"{count} places of {place}" for place, count in alike.items())


def join(address: str | None, *, cpus: int | None = None) -> None:
    """Enter the cluster at an address; without one, start one on this machine with so many CPUs to give.

    Raises:
        ClusterError: nobody answers there.
    """
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **options)
        return
    try:
        _require_listener(address)
        ray.init(address=address, **options)
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error}): start one with `ray start --head`, or leave "
            "cluster.address out to use this machine alone"
        ) from None


def has_gpus(address: str) -> bool:
    """Whether the cluster at an address has GPUs, as far as its nodes have joined. Raises as `join`."""
    join(address)
    try:
        return bool(ray.cluster_resources().get("GPU"))
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Raise OSError at once where nobody listens: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
