"""Answers of actors, with the project's own errors as they were raised there."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import ObjectLostError, OutOfMemoryError, RayActorError, RayTaskError

from prorl.envs.errors import ProrlError

REASON = 300  # characters


class FaultError(Exception):
    """An actor has failed at what it was asked for and lives, as after a GPU's fault. No `ProrlError` either."""


class OverdueError(Exception):
    """An actor has not answered within its deadline. No `ProrlError`: whoever supervises may start again."""


LOST = (RayActorError, FaultError, OutOfMemoryError, ObjectLostError, OverdueError)
"""How a call ends whose actor is to be replaced: dead, broken, killed by Ray for its node's memory, or silent."""


def ended(lost: BaseException) -> str:
    """How an actor came to be lost, as one says it of it."""
    match lost:
        case OverdueError():
            return "was silent"
        case FaultError() | ProrlError():
            return "has failed"
        case _:
            return "has died"


def reason(lost: BaseException) -> str:
    """What is known of why an actor is lost, in a line."""
    lines = [line.strip() for line in str(lost).splitlines() if line.strip()] or [type(lost).__name__]
    # Ray ends what it says of a dead actor with why, whether it was killed or failed as it was made.
    return textwrap.shorten(lines[-1 if isinstance(lost, RayActorError) else 0], REASON, placeholder=" …")


def results(references: Sequence[Any], *, within: float | None = None) -> list[Any]:
    """What the calls returned, in their order; the first failure is raised at once, whoever else waits for it.

    `within` so many seconds all of them must answer.

    Raises:
        ProrlError, ValueError: raised by one of the actors.
        FaultError: anything else that one of them raised.
        RayActorError, OutOfMemoryError: one of them has died.
        OverdueError: one of them has not answered in time.
    """
    end = None if within is None else time.monotonic() + within
    try:
        waiting = list(references)
        while waiting:
            left = None if end is None else max(0.0, end - time.monotonic())
            ready, waiting = ray.wait(waiting, timeout=left)
            if not ready:
                raise OverdueError("an actor has not answered in time")
            ray.get(ready)
        return list(ray.get(list(references)))
    except RayTaskError as error:
        if isinstance(error.cause, (ProrlError, ValueError)):
            raise error.cause from None
        raise FaultError(f"{type(error.cause).__name__}: {error.cause}") from error


def result(reference: Any, *, within: float | None = None) -> Any:
    """What one call returned; raises as `results`."""
    return results([reference], within=within)[0]
