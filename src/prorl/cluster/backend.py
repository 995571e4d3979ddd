"""A run on a Ray cluster: learner ranks, vLLM engines and judges as actors, or judges beside the driver.

The driver holds plain data; tensors stay in the actors and in Ray's object store.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from prorl.cluster.cluster import Cluster
from prorl.cluster.engine import RayEngine
from prorl.cluster.judge import RayJudge
from prorl.cluster.learner import RayLearner
from prorl.cluster.weights import Published
from prorl.local.backend import halves
from prorl.local.judge import LocalJudge


class RayBackend:
    """`types.Backend` on the actors of a cluster, which it closes at its end."""

    def __init__(
        self,
        cluster: Cluster,
        engine: RayEngine,
        judge: LocalJudge | RayJudge,
        learner: RayLearner,
        *,
        probe: Sequence[int],
        keep_copy: bool = True,
    ) -> None:
        """`probe` is a short token sequence whose log-probs both sides must agree on after every sync.

        `keep_copy` puts the weights into host memory at every sync. Without it that is done when an engine must be
        replaced, which is right only as long as nothing is learned while engines work.
        """
        self.engine = engine
        self.judge = judge
        self.learner = learner
        self._cluster = cluster
        self._probe = halves(probe)
        self._keep_copy = keep_copy

    def sync(self, version: int) -> None:
        """Let the engines serve the learner's weights as `version`, and prove by the probe that they do.

        Raises:
            SyncError: an engine's log-probs of the probe differ from the learner's.
            LostError: as `RayEngine.publish`.
        """
        prompt, tokens = self._probe
        copy = cache(partial(self.learner.publish, version))
        if self._keep_copy:
            copy()
        logps = self.learner.score(prompt, tokens)
        self.engine.publish(
            Published(
                version=version, copy=copy, send=self.learner.send, prompt=prompt, tokens=tokens, logps=logps
            )
        )

    def incidents(self) -> list[str]:
        """What happened to engines and judges; a rank that dies ends the run."""
        return self.engine.incidents() + self.judge.incidents()

    def close(self) -> None:
        """Stop the judge's processes and the actors."""
        self.judge.close()
        self._cluster.close()
