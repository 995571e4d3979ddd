"""A run on a Ray cluster: learner ranks, vLLM engines and judges as actors, or judges beside the driver.

The driver holds plain data; tensors stay in the actors and in Ray's object store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field

from prorl.cluster.cluster import Cluster
from prorl.cluster.engine import EngineActor, RayEngine
from prorl.cluster.judge import JudgeActor, RayJudge
from prorl.cluster.learner import LearnerRank, RayLearner
from prorl.cluster.settings import EngineSettings, GpuSharing, chosen_transfer, device_kind
from prorl.cluster.survey import installed
from prorl.cluster.weights import Copies, Published
from prorl.config.checks import parts_problem
from prorl.config.recipe import RecipeError, require_room
from prorl.config.schema import RunConfig
from prorl.learn.learner import LearnerSettings
from prorl.local.backend import halves
from prorl.local.judge import LocalJudge

CPU_CACHE_GIB = 1.0  # where vLLM would take nearly all memory of the machine


@dataclass(eq=False)
class RayBackend:
    """`types.Backend` on the actors of a cluster, which it closes at its end.

    `keep_copy` puts the weights into host memory at every sync. Without it that is done when an engine must be
    replaced, which is right only as long as nothing is learned while engines work.
    """

    cluster: Cluster
    engine: RayEngine
    judge: LocalJudge | RayJudge
    learner: RayLearner
    _: KW_ONLY
    probe: Sequence[int]  # a short text on whose log-probs both sides must agree after every sync
    keep_copy: bool = True
    _copies: Copies | None = field(default=None, init=False)  # of the last version, once there are some

    def sync(self, version: int) -> None:
        """Let the engines serve the learner's weights as `version`; raises as `RayEngine.publish`."""
        prompt, tokens = halves(self.probe)
        self._copies = None  # their memory is free before there are others

        def copy() -> Copies:
            self._copies = self._copies or self.learner.publish(version)
            return self._copies

        logps = self.learner.score(prompt, tokens)
        if self.keep_copy:  # while the weights are on the learner's GPUs
            copy()
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
        self.cluster.close()


def start_backend(
    config: RunConfig,
    learning: LearnerSettings,
    *,
    model: str,
    tokenizer: str,
    with_reference: bool,
    make_judge: Callable[[], LocalJudge],
    check_sandbox: Callable[[], str],
    probe: Sequence[int],
) -> tuple[RayBackend, int]:
    """Start the processes of a recipe around a model; returns the backend and the context in tokens.

    Raises RecipeError: the response limit or the engines' GPUs do not suit the model.
    """
    asked, device = config.cluster, device_kind(config)
    cluster = Cluster(config)
    sharing = GpuSharing() if asked.colocate else None
    with ExitStack() as stack:
        stack.callback(cluster.close)
        judge: LocalJudge | RayJudge  # before a model is loaded: what a node lacks is seen at once
        if asked.judges:
            judge = RayJudge(
                lambda index: cluster.start("judge", index, JudgeActor, make_judge),
                asked.judges,
                deadline=config.judge.deadline,
                check=check_sandbox,
            )
        else:
            judge = make_judge()
        stack.callback(judge.close)
        ranks = range(asked.learners)
        learner = RayLearner(
            [cluster.start("rank", rank, LearnerRank, rank, asked.learners) for rank in ranks],
            model,
            tokenizer,
            learning,
            with_reference=with_reference,
            device=device,
            sharing=sharing,
        )
        facts = learner.facts
        context = min(facts.context, asked.context or facts.context)
        require_room(config, context)
        if problem := parts_problem(asked.tensor_parallel, **facts.widths):
            raise RecipeError(problem)  # a recipe that does not say the model's shape could not know it
        said = {
            "context": context,
            "cache_gib": asked.cache_gib or (CPU_CACHE_GIB if device == "cpu" else None),
            "transfer": chosen_transfer(
                asked.transfer, device, colocate=asked.colocate, vllm=installed()["vllm"]
            ),
        }
        engines = EngineSettings(
            **asked.model_dump() | said, config=facts.config, eos_ids=facts.eos_ids, dtype=learning.dtype
        )
        engine = RayEngine(
            lambda index: cluster.start("engine", index, EngineActor, engines), engines, sharing=sharing
        )
        stack.pop_all()
    keep_copy = engines.transfer == "host" or config.sampling.max_staleness > 0
    backend = RayBackend(cluster, engine, judge, learner, probe=probe, keep_copy=keep_copy)
    return backend, context
