"""Learner ranks and engines that write down when they were asked for what."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prorl.cluster import backend
from prorl.cluster.engine import EngineActor
from prorl.cluster.learner import LearnerRank
from prorl.cluster.settings import EngineSettings

LOG = "PRORL_TEST_CALLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an actor, in monotonic seconds."""

    begin: float
    end: float
    kind: str  # "engine" or "rank"
    process: int
    what: str


def watch(patch: pytest.MonkeyPatch, log: Path) -> None:
    """Have the clusters that are started from now on write into a file what their processes are asked for."""
    patch.setenv(LOG, str(log))
    patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    patch.setattr(backend, "EngineActor", WatchedEngine)
    patch.setattr(backend, "LearnerRank", WatchedRank)


def calls(log: Path) -> list[Call]:
    """What was written, in the order in which it began."""
    written = [Call(**json.loads(line)) for line in log.read_text().splitlines()]
    return sorted(written, key=lambda call: call.begin)


class WatchedEngine(EngineActor):
    """An engine."""

    def __init__(self, settings: EngineSettings) -> None:
        with _noted("engine", "start"):
            super().__init__(settings)

    def call(self, method: str, *arguments: Any) -> Any:
        with _noted("engine", method):
            return super().call(method, *arguments)


class WatchedRank(LearnerRank):
    """A rank."""

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        with _noted("rank", method):
            return super().call(method, *arguments, **options)

    def learn(self, shares: Any, hparams: Any) -> Any:
        with _noted("rank", "learn"):
            return super().learn(shares, hparams)

    def publish(self, version: int) -> list[Any]:
        with _noted("rank", "publish"):
            return super().publish(version)

    def snapshot(self) -> None:
        with _noted("rank", "snapshot"):
            super().snapshot()


@contextmanager
def _noted(kind: str, what: str) -> Iterator[None]:
    begin = time.monotonic()
    yield
    call = {"begin": begin, "end": time.monotonic(), "kind": kind, "process": os.getpid(), "what": what}
    with open(os.environ[LOG], "a") as log:  # one line at once, whoever else writes
        log.write(json.dumps(call) + "\n")
