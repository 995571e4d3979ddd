"""The proof after a sync: engine and learner must give a fixed sequence the same log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import pstdev
from typing import Literal

from prorl.envs.errors import ProrlError

EXACT = 1e-4  # of the spread of a probe's log-probs, and at least nats, by which they may differ in float32
ROUNDED = 0.75  # of the spread of a probe's log-probs, by which they may in bfloat16


class SyncError(ProrlError):
    """Engine and learner disagree about the policy after a sync."""


def halves(probe: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A probe as the prompt and the response that are scored."""
    middle = len(probe) // 2
    return tuple(probe[:middle]), tuple(probe[middle:])


def allowed(dtype: Literal["float32", "bfloat16"], learned: Sequence[float]) -> float:
    """How many nats an engine that computes in `dtype` may be away from the learner's log-probs of a probe.

    Both types round logits in proportion to their size. Over 28 random layers of width 512 the largest difference is
    a quarter of the spread of the log-probs in bfloat16, 6e-6 of it in float32, three of it between two models.
    """
    spread = pstdev(learned)
    return EXACT * max(1.0, spread) if dtype == "float32" else ROUNDED * spread


def require_agreement(
    version: int,
    decoded: Sequence[float],
    learned: Sequence[float],
    *,
    tolerance: float,
    engine: str = "engine",
) -> None:
    """Check that the log-probs of an engine, so called, and the learner differ by at most `tolerance` nats anywhere.

    Raises:
        SyncError: they differ, or one of them is not a number.
    """
    gap = max(abs(a - b) for a, b in zip(decoded, learned, strict=True))
    if not gap <= tolerance:
        raise SyncError(
            f"after the sync to policy version {version} {engine} and learner differ by {gap:.2g} nats on the "
            "probe, so it does not serve the learner's weights: where that happens again, test the memory of the "
            "device that it computes on"
        )
