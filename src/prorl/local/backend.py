"""Everything in one process, on a CPU or one GPU: engine and learner share one set of weights."""

from __future__ import annotations

import torch

from prorl.learn.learner import TorchLearner
from prorl.local.engine import LocalEngine
from prorl.local.judge import LocalJudge
from prorl.probe import allowed, halves, require_agreement


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
        prompt, tokens = halves(self._probe)
        decoded, learned = self.engine.score(prompt, tokens), self.learner.score(prompt, tokens)
        # TF32, where somebody has allowed it, keeps hardly more bits than bfloat16.
        exact = torch.get_float32_matmul_precision() == "highest"
        tolerance = allowed("float32" if exact else "bfloat16", learned)
        require_agreement(version, decoded, learned, tolerance=tolerance)

    def incidents(self) -> list[str]:
        """Which judge workers were replaced; anything else that fails in this process ends it."""
        return self.judge.incidents()

    def close(self) -> None:
        """Stop the judge's processes."""
        self.judge.close()
