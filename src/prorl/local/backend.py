"""Everything on one machine, its CPU cores or one GPU: engine and learner share one set of weights.

Here too is the proof that every backend gives after a sync: engine and learner must give a fixed sequence, the probe,
the same log-probs. Imports no torch by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from statistics import pstdev
from typing import TYPE_CHECKING, Literal

from prorl.envs.errors import ProrlError

if TYPE_CHECKING:
    from prorl.learn.learner import TorchLearner
    from prorl.local.engine import LocalEngine, WorkersEngine
    from prorl.local.judge import LocalJudge
    from prorl.local.workers import Workers

Dtype = Literal["float32", "bfloat16"]
EXACT = 1e-4  # of the spread of a probe's log-probs, and at least nats, by which they may differ in float32
ROUNDED = 0.75  # of the spread of a probe's log-probs, by which they may in bfloat16


class SyncError(ProrlError):
    """Engine and learner disagree about the policy after a sync."""


def halves(probe: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A probe as the prompt and the response that are scored."""
    middle = len(probe) // 2
    return tuple(probe[:middle]), tuple(probe[middle:])


def allowed(dtype: Dtype, learned: Sequence[float]) -> float:
    """How many nats an engine that computes in `dtype` may be away from the learner's log-probs of a probe.

    Both types round logits in proportion to their size. Over 28 random layers of width 512 the largest difference is
    a quarter of the spread of the log-probs in bfloat16, 6e-6 of it in float32, three of it between two models.
    """
    spread = pstdev(learned)
    return EXACT * max(1.0, spread) if dtype == "float32" else ROUNDED * spread


def require_agreement(
    version: int, decoded: Sequence[float], learned: Sequence[float], dtype: Dtype, *, engine: str = "engine"
) -> None:
    """Raise SyncError where the log-probs of an engine that computes in `dtype` are too far from the learner's."""
    gap = max(abs(a - b) for a, b in zip(decoded, learned, strict=True))
    if not gap <= allowed(dtype, learned):  # so that what is not a number agrees with nothing
        raise SyncError(
            f"after the sync to policy version {version} {engine} and learner differ by {gap:.2g} nats on the "
            "probe, so it does not serve the learner's weights: where that happens again, test the memory of the "
            "device that it computes on"
        )


@dataclass(eq=False)
class LocalBackend:
    """Engine, judge and learner of one machine."""

    engine: LocalEngine | WorkersEngine
    judge: LocalJudge
    learner: TorchLearner
    _: KW_ONLY
    probe: Sequence[int]  # a short text on whose log-probs both sides must agree after every sync
    workers: Workers | None = None  # that compute for engine and learner

    def sync(self, version: int) -> None:
        """Let the engine serve the learner's weights as `version`.

        SyncError where the probe shows others, here or, by workers, in place of the first responses.
        """
        self.engine.publish(version)
        prompt, tokens = halves(self.probe)

        def accept(decoded: Sequence[float]) -> None:
            import torch

            # TF32, where somebody has allowed it, keeps hardly more bits than bfloat16.
            exact = torch.get_float32_matmul_precision() == "highest"
            learned = self.learner.score(prompt, tokens)
            require_agreement(version, decoded, learned, "float32" if exact else "bfloat16")

        self.engine.prove(prompt, tokens, accept)

    def incidents(self) -> list[str]:
        """Which workers were replaced; anything else that fails in this process ends it."""
        return self.judge.incidents() + (self.workers.incidents() if self.workers else [])

    def close(self) -> None:
        """Stop all processes."""
        self.judge.close()
        if self.workers is not None:
            self.workers.close()
