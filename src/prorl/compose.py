"""The composition root: builds the parts of a run from its recipe. Nothing else knows both recipes and torch."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path

import torch
import transformers
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from prorl.backends.local.backend import LocalBackend
from prorl.backends.local.engine import LocalEngine
from prorl.backends.local.judge import LocalJudge
from prorl.backends.ray.settings import ClusterSettings, EngineSettings, require_packages
from prorl.config.contradictions import heads_problem
from prorl.config.recipe import RecipeError
from prorl.config.schema import RunConfig
from prorl.data import cache_folder, data_folder, data_requests, mixture, sandbox_policy, warmup_mixture
from prorl.learn.learner import LearnerSettings, TorchLearner
from prorl.learn.model import (
    ModelError,
    ModelShape,
    context_limit,
    eos_ids,
    load_model,
    load_tokenizer,
    pad_id,
)
from prorl.learn.warmup import WarmupSettings, build_base
from prorl.ports import Backend
from prorl.rollout.outage import Wait
from prorl.rollout.pipeline import Worker
from prorl.rollout.render import ChatRenderer
from prorl.run.surroundings import PROBLEMS, TOKENIZER, hash_files
from prorl.seeds import derive
from prorl.tasks.datasets.prepare import require_prepared
from prorl.tasks.mixture import Mixture
from prorl.tasks.verifier import VerifierSpec, make_verifier
from prorl.types import Split

disable_progress_bar()  # the console shows progress; transformers' own bars would tear it

PROBE_TOKENS = 8
CPU_CACHE_GIB = 1.0  # where vLLM would take nearly all memory of the machine
FINGERPRINT_PROBLEMS = 500
FEW_PROBLEMS = 100  # for a check at every start


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
        fingerprint=_fingerprint(problems),
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
    settings = LearnerSettings(
        **config.learner.model_dump(),
        offload=config.cluster.offload,
        betas=config.optimizer.betas,
        weight_decay=config.optimizer.weight_decay,
    )
    build = _ray_backend if config.backend == "ray" else _local_backend
    try:
        backend, context = build(config, source, tokens, settings, with_reference)
    except ValueError as error:  # an architecture that learner or engine cannot compute
        raise ModelError(f"{source} cannot be trained: {error}") from None
    return Parts(backend=backend, tokenizer=tokens, renderer=ChatRenderer(tokens), context=context)


def _local_backend(
    config: RunConfig,
    source: str | Path,
    tokens: PreTrainedTokenizerBase,
    settings: LearnerSettings,
    with_reference: bool,
) -> tuple[Backend, int]:
    model = load_model(source, dtype=torch.float32, device=_device(config))
    _check_context(config, context_limit(model))
    pad = pad_id(tokens)
    learner = TorchLearner(model, settings, with_reference=with_reference, pad_id=pad)
    engine = LocalEngine(model, eos_ids=eos_ids(model, tokens), pad_id=pad, max_rows=config.engine.max_rows)
    return LocalBackend(engine, _judge(config), learner, probe=_probe(tokens)), context_limit(model)


def _ray_backend(
    config: RunConfig,
    source: str | Path,
    tokens: PreTrainedTokenizerBase,
    settings: LearnerSettings,
    with_reference: bool,
) -> tuple[Backend, int]:
    require_packages()
    from prorl.backends.ray.backend import RayBackend
    from prorl.backends.ray.cluster import Cluster
    from prorl.backends.ray.engine import RayEngine
    from prorl.backends.ray.learner import Origin, RayLearner
    from prorl.backends.ray.turns import Turns, apart

    asked = config.cluster
    where = cluster_settings(config)
    cluster = Cluster(where)
    take = Turns().take if asked.colocate else apart
    with ExitStack() as stack:
        stack.callback(cluster.close)
        model = _everywhere(source)
        origin = Origin(
            model=model,
            tokenizer=_everywhere(tokens.name_or_path),
            settings=settings,
            with_reference=with_reference,
        )
        ranks = [cluster.start_rank(rank) for rank in range(asked.learners)]
        learner = RayLearner(ranks, origin, device=where.device, take=take)
        _check_context(config, learner.facts.context)
        if problem := heads_problem(asked.tensor_parallel, learner.facts.heads):
            raise RecipeError(problem)
        cache = asked.cache_gib or (CPU_CACHE_GIB if where.device == "cpu" else None)
        engines = EngineSettings(
            model=model,
            eos_ids=learner.facts.eos_ids,
            context=learner.facts.context,
            dtype=settings.dtype,
            max_rows=config.engine.max_rows,
            cache_bytes=round(cache * 2**30) if cache else None,
            tensor_parallel=asked.tensor_parallel,
            colocated=asked.colocate,
        )
        engine = RayEngine(
            lambda index: cluster.start_engine(index, engines),
            asked.engines,
            engines,
            deadline=asked.engine_deadline,
            take=take,
        )
        stack.pop_all()
    return RayBackend(cluster, engine, _judge(config), learner, probe=_probe(tokens)), learner.facts.context


def cluster_settings(config: RunConfig) -> ClusterSettings:
    """Where a recipe with `backend: ray` wants its processes."""
    places = {"address", "learners", "engines", "room_deadline", "tensor_parallel", "colocate"}
    return ClusterSettings(
        **config.cluster.model_dump(include=places),
        device="cuda" if _device(config).type == "cuda" else "cpu",
        threads=config.threads,
    )


def _everywhere(source: str | Path) -> str:
    """A directory by a name that other processes know too; a hub id as it is."""
    return str(Path(source).absolute()) if Path(source).is_dir() else str(source)


def _judge(config: RunConfig) -> LocalJudge:
    return LocalJudge(
        partial(make_verifier, verifier_spec(config)),
        deadline=config.judge.deadline,
        workers=config.judge.workers,
        memory=round(config.judge.memory_gib * 2**30),
        items_per_worker=config.judge.items_per_worker,
    )


def verifier_spec(config: RunConfig) -> VerifierSpec:
    """How the responses to a recipe's problems are judged."""
    datasets = tuple(request.name for request in data_requests(config))
    return VerifierSpec(
        tasks=tuple(name for name in config.tasks if name not in datasets),
        datasets=datasets,
        data=data_folder(config),
        policy=sandbox_policy(config),
        strict=config.format == "strict",
    )


def settled(config: RunConfig) -> RunConfig:
    """The recipe with thread count and device said, as the bits of a result depend on them.

    Raises:
        MissingError: the backend is not installed.
        ClusterError: no cluster answers that could be asked for its GPUs.
        RecipeError: the device cannot be used on this machine.
    """
    if config.backend == "ray":
        require_packages()
    threads = config.threads or os.cpu_count() or 1
    return config.model_copy(update={"threads": threads, "device": str(_device(config))})


def surroundings(config: RunConfig, tasks: Mixture, tokenizer: Path) -> dict[str, str]:
    """What else the bits of a result depend on; `tokenizer` is the folder it is loaded from on resume."""
    device = _device(config)
    if device.type == "cuda":
        processor = torch.cuda.get_device_name(device) if torch.cuda.is_available() else "GPUs elsewhere"
    else:
        processor = torch.backends.cpu.get_cpu_capability()
    cluster = config.cluster
    return {
        "backend": f"ray with {cluster.learners} learners and {cluster.engines} engines"
        + (f" of {cluster.tensor_parallel} GPUs" if cluster.tensor_parallel > 1 else "")
        if config.backend == "ray"
        else config.backend,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "processor": processor,
        TOKENIZER: hash_files(tokenizer),
        PROBLEMS: _fingerprint(tasks, FEW_PROBLEMS),
    }


def set_threads(config: RunConfig) -> None:
    """Fix the number of CPU threads, on which the bits of a result depend."""
    torch.set_num_threads(config.threads)


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


def _fingerprint(problems: Mixture, count: int = FINGERPRINT_PROBLEMS) -> str:
    """Identity of what a mixture asks and shows: it changes when a recipe's weights or a task's code do."""
    digest = blake2b(digest_size=8)
    for draw in range(count):
        problem = problems.problem(draw, "train")
        digest.update(f"{problem.task}\n{problem.prompt}\n{problem.witness}\n".encode())
    return digest.hexdigest()


def _device(config: RunConfig) -> torch.device:
    address = config.cluster.address if config.backend == "ray" else None
    if config.device == "auto" and address is not None:  # the cluster computes in this machine's place
        from prorl.backends.ray.cluster import has_gpus

        return torch.device("cuda" if has_gpus(address) else "cpu")
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(config.device)
        if config.backend != "ray":  # whose driver computes nothing, and may be a machine without GPUs
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError):  # the latter from a torch that was built without the device
        raise RecipeError(
            f"device {config.device!r} cannot be used on this machine: set device=cpu or device=auto"
        ) from None
    return device


def _check_context(config: RunConfig, limit: int) -> None:
    asked = [config.sampling.response_limit]
    asked += [stage.set.get("sampling.response_limit", 0) for stage in config.stages]
    if max(asked) >= limit:
        raise RecipeError(
            f"sampling.response_limit ({max(asked)}) leaves no room for a prompt in the model's context of "
            f"{limit} tokens: lower it or take a model with a longer context"
        )


def _probe(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Any fixed tokens do; spread over the vocabulary they touch many rows of the embedding."""
    stride = max(1, len(tokenizer) // PROBE_TOKENS)
    return tuple(range(0, stride * PROBE_TOKENS, stride))
