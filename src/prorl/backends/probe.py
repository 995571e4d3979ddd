"""The proof after a sync: engine and learner must give a fixed sequence the same log-probs."""

from __future__ import annotations

from collections.abc import Sequence

from prorl.errors import ProrlError


class SyncError(ProrlError):
    """Engine and learner disagree about the policy after a sync."""


def halves(probe: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A probe as the prompt and the response that are scored."""
    middle = len(probe) // 2
    return tuple(probe[:middle]), tuple(probe[middle:])


def require_agreement(
    version: int, decoded: Sequence[float], learned: Sequence[float], *, tolerance: float
) -> None:
    """Check that the log-probs of engine and learner differ by at most `tolerance` nats anywhere.

    Raises:
        SyncError: they differ, or one of them is not a number.
    """
    gap = max(abs(a - b) for a, b in zip(decoded, learned, strict=True))
    if not gap <= tolerance:
        raise SyncError(
            f"after the sync to policy version {version} engine and learner differ by {gap:.2g} nats on the "
            "probe: the engine does not serve the learner's weights"
        )
