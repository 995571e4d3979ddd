"""Everything in one process, on a CPU or one GPU: engine and learner share one set of weights."""

from __future__ import annotations

from prorl.backends.local.engine import LocalEngine
from prorl.backends.local.judge import LocalJudge
from prorl.errors import ProrlError
from prorl.learn.learner import TorchLearner

PROBE_TOLERANCE = 1e-3  # nats; float32 decoders agree to 1e-5, so more than this is another model


class SyncError(ProrlError):
    """Engine and learner disagree about the policy after a sync."""


class LocalBackend:
    """Engine, judge and learner of one process."""

    def __init__(
        self, engine: LocalEngine, judge: LocalJudge, learner: TorchLearner, *, probe: tuple[int, ...]
    ) -> None:
        """`probe` is a short token sequence whose log-probs both sides must agree on after every sync."""
        self.engine = engine
        self.judge = judge
        self.learner = learner
        self._probe = probe

    def sync(self, version: int) -> None:
        """Let the engine serve the learner's weights as `version`, and prove by the probe that it does.

        Raises:
            SyncError: the engine's log-probs of the probe differ from the learner's.
        """
        self.engine.publish(version)
        half = len(self._probe) // 2
        prompt, tokens = self._probe[:half], self._probe[half:]
        decoded = self.engine.score(prompt, tokens)
        learned = self.learner.score(prompt, tokens)
        gap = max(abs(a - b) for a, b in zip(decoded, learned, strict=True))
        if not gap <= PROBE_TOLERANCE:
            raise SyncError(
                f"after the sync to policy version {version} engine and learner differ by {gap:.2g} nats on the "
                "probe: the engine does not serve the learner's weights"
            )

    def close(self) -> None:
        """Stop the judge's processes."""
        self.judge.close()
