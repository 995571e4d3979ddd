"""The composition root: builds the parts of a run from its recipe. Nothing else knows both recipes and torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from prorl.cluster.settings import (
    EngineSettings,
    GpuSharing,
    chosen_transfer,
    require_packages,
)
from prorl.config.contradictions import heads_problem
from prorl.config.recipe import RecipeError
from prorl.config.schema import RunConfig
from prorl.data import (
    cache_folder,
    check_sandbox,
    data_folder,
    data_requests,
    mixture,
    verifier_spec,
    warmup_mixture,
)
from prorl.envs.datasets.prepare import require_prepared
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_verifier
from prorl.envs.seeds import derive
from prorl.envs.types import Split
from prorl.learn.base_model import ModelShape, WarmupSettings, build_base
from prorl.learn.learner import LearnerSettings, TorchLearner
from prorl.learn.model import ModelError, context_limit, eos_ids, load_model, load_tokenizer, pad_id
from prorl.local.backend import LocalBackend
from prorl.local.engine import LocalEngine
from prorl.local.judge import LocalJudge
from prorl.machine import cluster_settings, device_of, set_threads
from prorl.ports import Backend
from prorl.rollout.pipeline import ChatRenderer, Wait, Worker

if TYPE_CHECKING:
    from prorl.cluster.cluster import Cluster
    from prorl.cluster.judge import RayJudge

disable_progress_bar()  # the console shows progress; transformers' own bars would tear it

PROBE_TOKENS = {"float32": 8, "bfloat16": 64}  # rounding is told from another model by more of them
CPU_CACHE_GIB = 1.0  # where vLLM would take nearly all memory of the machine
FINGERPRINT_PROBLEMS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run computes with."""

    backend: Backend
    renderer: ChatRenderer
    tokenizer: PreTrainedTokenizerBase
    context: int  # of the model, tokens

    def worker(self, wait: Wait) -> Worker:
        """Who renders, samples and judges outside the loop, and who waits while verifiers are out."""
        return Worker(engine=self.backend.engine, judge=self.backend.judge, renderer=self.renderer, wait=wait)


def build_tasks(config: RunConfig) -> Mixture:
    """The mixture a recipe trains on.

    Raises:
        RecipeError: an unknown task, a level that it does not have, or fewer problems than the recipe asks for.
        DataError: a data set that is not prepared.
    """
    require_prepared(data_requests(config), data_folder(config))
    levels = {name: task.levels for name, task in config.tasks.items()}
    tasks = mixture(config, levels, derive(config.seed, "data"), config.instruction)
    try:
        _require_problems(tasks, config)
    except ValueError as error:
        raise RecipeError(str(error)) from None
    return tasks


def base_model(config: RunConfig, progress: Callable[[int, int, str], None]) -> str:
    """Directory or hub id of the model to start from; warms a tiny one up if the recipe says so."""
    warmup = config.model.warmup
    if warmup is None:
        assert config.model.path is not None, "checked by the recipe"
        return config.model.path
    problems = warmup_mixture(config, warmup)
    settings = WarmupSettings(
        shape=ModelShape(**warmup.shape.model_dump()),
        vocab_size=warmup.vocab_size,
        steps=warmup.steps,
        batch_size=warmup.batch_size,
        learning_rate=warmup.lr,
        seed=derive(config.seed, "initial weights"),
        corpus_problems=warmup.corpus_problems,
    )
    folder = build_base(
        settings,
        lambda draw: problems.problem(draw, "train"),
        cache_folder(),
        fingerprint=problems.fingerprint(FINGERPRINT_PROBLEMS),
        progress=lambda step, steps, loss: progress(step, steps, f"loss {loss:.3f}"),
    )
    return str(folder)


def build_parts(
    config: RunConfig, source: str | Path, *, tokenizer: str | Path | None = None, with_reference: bool
) -> Parts:
    """Engine, judge, learner and renderer around the model of a directory or hub id.

    `tokenizer` is where the tokenizer lies if not beside the model, as with a run's checkpoints.

    Raises:
        ModelError: the model or its tokenizer cannot be used.
        RecipeError: the response limit does not fit into the model's context.
    """
    set_threads(config)
    tokens = load_tokenizer(tokenizer or source)
    renderer = _renderer(tokens, tokenizer or source)
    settings = learner_settings(config)
    build = _ray_backend if config.backend == "ray" else _local_backend
    try:
        backend, context = build(config, source, tokens, settings, with_reference)
    except ValueError as error:  # an architecture that learner or engine cannot compute
        raise ModelError(f"{source} cannot be trained: {error}") from None
    return Parts(backend=backend, tokenizer=tokens, renderer=renderer, context=context)


def learner_settings(config: RunConfig) -> LearnerSettings:
    """What a recipe fixes about its learner."""
    return LearnerSettings(
        **config.learner.model_dump(),
        offload=config.cluster.offload,
        betas=config.optimizer.betas,
        weight_decay=config.optimizer.weight_decay,
    )


def _renderer(tokens: PreTrainedTokenizerBase, source: str | Path) -> ChatRenderer:
    try:
        renderer = ChatRenderer(tokens)
        empty = not renderer.encode("1")
    except Exception as error:  # a template is a program: it raises what it likes
        first_line = str(error).partition("\n")[0]
        raise ModelError(f"the chat template of {source} cannot be used: {first_line}") from error
    if empty:
        raise ModelError(f"the chat template of {source} leaves nothing of a prompt: mend it, or remove it")
    return renderer


def _local_backend(
    config: RunConfig,
    source: str | Path,
    tokens: PreTrainedTokenizerBase,
    settings: LearnerSettings,
    with_reference: bool,
) -> tuple[Backend, int]:
    model = load_model(source, dtype=torch.float32, device=device_of(config))
    _check_context(config, context_limit(model))
    pad = pad_id(tokens)
    learner = TorchLearner(model, settings, with_reference=with_reference, pad_id=pad)
    engine = LocalEngine(model, eos_ids=eos_ids(model, tokens), pad_id=pad, max_rows=config.engine.max_rows)
    return LocalBackend(engine, _judge(config)(), learner, probe=_probe(tokens, "float32")), context_limit(
        model
    )


def _ray_backend(
    config: RunConfig,
    source: str | Path,
    tokens: PreTrainedTokenizerBase,
    settings: LearnerSettings,
    with_reference: bool,
) -> tuple[Backend, int]:
    require_packages()
    from prorl.cluster.backend import RayBackend
    from prorl.cluster.cluster import Cluster
    from prorl.cluster.engine import EngineActor, RayEngine
    from prorl.cluster.learner import LearnerRank, RayLearner

    asked = config.cluster
    where = cluster_settings(config)
    cluster = Cluster(where)
    sharing = GpuSharing() if asked.colocate else None
    with ExitStack() as stack:
        stack.callback(cluster.close)
        judge = _ray_judge(config, cluster)  # before a model is loaded: what a node lacks is seen at once
        stack.callback(judge.close)
        learner = RayLearner(
            [
                cluster.start("rank", rank, LearnerRank, rank, asked.learners)
                for rank in range(asked.learners)
            ],
            _everywhere(source),
            _everywhere(tokens.name_or_path),
            settings,
            with_reference=with_reference,
            device=where.device,
            sharing=sharing,
        )
        _check_context(config, learner.facts.context)
        _check_heads(config, learner.facts.heads)
        cache = asked.cache_gib or (CPU_CACHE_GIB if where.device == "cpu" else None)
        engines = EngineSettings(
            config=learner.facts.config,
            eos_ids=learner.facts.eos_ids,
            context=learner.facts.context,
            dtype=settings.dtype,
            max_rows=asked.max_rows,
            cache_bytes=round(cache * 2**30) if cache else None,
            transfer=chosen_transfer(asked.transfer, where.device, colocate=asked.colocate),
            tensor_parallel=asked.tensor_parallel,
            colocated=asked.colocate,
        )
        engine = RayEngine(
            lambda index: cluster.start("engine", index, EngineActor, engines),
            asked.engines,
            engines,
            deadline=asked.engine_deadline,
            sharing=sharing,
        )
        stack.pop_all()
    backend = RayBackend(
        cluster,
        engine,
        judge,
        learner,
        probe=_probe(tokens, settings.dtype),
        keep_copy=engines.transfer != "nccl" or config.sampling.max_staleness > 0,
    )
    return backend, learner.facts.context


def _ray_judge(config: RunConfig, cluster: Cluster) -> LocalJudge | RayJudge:
    from prorl.cluster.judge import JudgeActor, RayJudge

    make = _judge(config)
    if not config.cluster.judges:
        return make()
    return RayJudge(
        lambda index: cluster.start("judge", index, JudgeActor, make),
        config.cluster.judges,
        deadline=config.judge.deadline,
        check=partial(check_sandbox, config),
    )


def _everywhere(source: str | Path) -> str:
    """A directory by a name that other processes know too; a hub id as it is."""
    return str(Path(source).absolute()) if Path(source).is_dir() else str(source)


def _judge(config: RunConfig) -> Callable[[], LocalJudge]:
    """Makes the judge of a machine, this one or another."""
    return partial(
        LocalJudge,
        partial(make_verifier, verifier_spec(config)),
        deadline=config.judge.deadline,
        workers=config.judge.workers,
        memory=round(config.judge.memory_gib * 2**30),
        items_per_worker=config.judge.items_per_worker,
    )


def _require_problems(tasks: Mixture, config: RunConfig) -> None:
    """Draw what every stage and exam will ask for: what is missing shows now and not hours later, as ValueError."""
    weights: dict[str, float] = {}
    for stage in ({}, *(stage.mixture for stage in config.stages)):
        weights |= stage
        tasks.problem(0, "train", weights)
    sizes: dict[Split, int] = {
        "exam": config.exam.per_domain if config.exam.every else 0,
        "test": config.evaluation.per_domain,
        "ood": config.evaluation.ood_per_domain,
    }
    for split, per_domain in sizes.items():
        if per_domain:
            tasks.exam_problems(split, per_domain)


def _check_context(config: RunConfig, limit: int) -> None:
    asked = [config.sampling.response_limit]
    asked += [stage.set.get("sampling.response_limit", 0) for stage in config.stages]
    if max(asked) >= limit:
        raise RecipeError(
            f"sampling.response_limit ({max(asked)}) leaves no room for a prompt in the model's context of "
            f"{limit} tokens: lower it or take a model with a longer context"
        )


def _check_heads(config: RunConfig, heads: int) -> None:
    """What a recipe that does not say the model's shape could not know."""
    if problem := heads_problem(config.cluster.tensor_parallel, heads):
        raise RecipeError(problem)


def _probe(tokenizer: PreTrainedTokenizerBase, dtype: Literal["float32", "bfloat16"]) -> tuple[int, ...]:
    """Any fixed tokens do; spread over the vocabulary they touch many rows of the embedding."""
    number = PROBE_TOKENS[dtype]
    stride = max(1, len(tokenizer) // number)
    return tuple(range(0, stride * number, stride))
