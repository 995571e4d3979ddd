"""From a recipe to the parts of a run: tasks, base model, engine, judge, learner. Importing it imports no torch."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prorl.config.checks import heads_problem, no_room
from prorl.config.recipe import RecipeError
from prorl.config.schema import RunConfig
from prorl.control.plan import Plan, make_plan
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
from prorl.rollout.pipeline import ChatRenderer, Wait, Worker
from prorl.run.layout import TOKENIZER
from prorl.run.process import machine_memory
from prorl.run.resume import PROBLEMS, hash_files
from prorl.types import Backend, Renderer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from prorl.cluster.cluster import Cluster
    from prorl.cluster.judge import RayJudge
    from prorl.learn.learner import LearnerSettings
    from prorl.local.judge import LocalJudge

FEW_PROBLEMS = 100  # in the fingerprint of a run's tasks, at every start
MANY_PROBLEMS = 500  # in that of a base's
FEW_PROCESSES = 32  # that any machine runs
PER_PROCESSOR = 8  # that wait for each processor of a larger one
PROBE_TOKENS = {"float32": 8, "bfloat16": 64}  # rounding is told from another model by more of them
CPU_CACHE_GIB = 1.0  # where vLLM would take nearly all memory of the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A recipe and all that was built for it."""

    config: RunConfig
    plan: Plan
    tasks: Mixture
    backend: Backend
    renderer: Renderer
    tokenizer: PreTrainedTokenizerBase
    context: int  # of the model, tokens

    def worker(self, wait: Wait) -> Worker:
        """Renders, samples and judges; `wait` is called while verifiers are out."""
        return Worker(engine=self.backend.engine, judge=self.backend.judge, renderer=self.renderer, wait=wait)


def build_session(
    config: RunConfig,
    source: str | Path,
    *,
    tokenizer: str | Path | None = None,
    tasks: Mixture | None = None,
    with_reference: bool | None = None,
) -> Session:
    """Plan, tasks, engine, judge, learner and renderer around the model of a directory or hub id.

    `tokenizer` is where the tokenizer lies if not beside the model, as with a run's checkpoints. A reference is held
    where the plan needs one, unless said otherwise.

    Raises:
        ModelError: the model or its tokenizer cannot be used.
        RecipeError: the response limit does not fit into the model's context.
    """
    from transformers.utils.logging import disable_progress_bar

    from prorl.learn.model import ModelError, load_tokenizer

    disable_progress_bar()  # the console shows progress; transformers' own bars would tear it
    plan = make_plan(config)
    tasks = tasks or build_tasks(config)
    set_threads(config)
    tokens = load_tokenizer(tokenizer or source)
    renderer = _renderer(tokens, tokenizer or source)
    build = _ray_backend if config.backend == "ray" else _local_backend
    held = plan.needs_reference if with_reference is None else with_reference
    try:
        backend, context = build(config, source, tokens, held)
    except ValueError as error:  # an architecture that learner or engine cannot compute
        raise ModelError(f"{source} cannot be trained: {error}") from None
    return Session(
        config=config,
        plan=plan,
        tasks=tasks,
        backend=backend,
        tokenizer=tokens,
        renderer=renderer,
        context=context,
    )


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


def _require_problems(tasks: Mixture, config: RunConfig) -> None:
    """Draw what every stage and validation will ask for: what is missing shows now and not hours later."""
    weights: dict[str, float] = {}
    for stage in ({}, *(stage.mixture for stage in config.stages)):
        weights |= stage
        tasks.problem(0, "train", weights)
    sizes: dict[Split, int] = {
        "validation": config.validation.per_domain if config.validation.every else 0,
        "test": config.evaluation.per_domain,
        "ood": config.evaluation.ood_per_domain,
    }
    for split, per_domain in sizes.items():
        if per_domain:
            tasks.validation_problems(split, per_domain)


def settled(config: RunConfig) -> RunConfig:
    """The recipe with thread count and device said, as the bits of a result depend on them.

    Raises:
        ClusterError: the backend is not installed, or no cluster answers that could be asked for its GPUs.
        RecipeError: the device cannot be used on this machine.
    """
    if config.backend == "ray":
        from prorl.cluster.settings import require_packages

        require_packages()
    threads = config.threads or os.cpu_count() or 1
    return config.model_copy(update={"threads": threads, "device": str(device_of(config))})


def require_processors(config: RunConfig) -> None:
    """Check the processes and threads of this machine against its processors; those of a cluster are its own matter.

    Raises:
        RecipeError: there are more than it could ever run.
    """
    here = {"threads": config.threads if config.backend == "local" else 0}
    if config.backend == "local" or not config.cluster.judges:
        here["judge.workers"] = config.judge.workers
    processors = os.cpu_count() or 1
    most = max(FEW_PROCESSES, PER_PROCESSOR * processors)
    for key, asked in here.items():
        if asked > most:
            raise RecipeError(
                f"{key} ({asked:,}) is above what this machine with {processors} processors can run: "
                f"set at most {most}"
            )


def set_threads(config: RunConfig) -> None:
    """Fix the number of CPU threads, on which the bits of a result depend."""
    import torch

    torch.set_num_threads(config.threads)


def device_of(config: RunConfig) -> torch.device:
    """Where tensors lie.

    Raises:
        ClusterError, RecipeError: as `settled`.
    """
    import torch

    if config.device == "auto":
        address = config.cluster.address
        if config.backend != "ray" or address is None:
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        from prorl.cluster.cluster import has_gpus

        return torch.device("cuda" if has_gpus(address) else "cpu")
    try:
        device = torch.device(config.device)
        if config.backend != "ray":  # whose driver computes nothing, and may be a machine without GPUs
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError):  # the latter from a torch that was built without the device
        raise RecipeError(
            f"device {config.device!r} cannot be used on this machine: set device=cpu or device=auto"
        ) from None
    return device


def device_memory(device: torch.device) -> int:
    """Bytes that a device of this machine has in all."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return machine_memory()[0]


def environment(config: RunConfig, tasks: Mixture, tokenizer: Path) -> dict[str, str]:
    """What else the bits of a result depend on; `tokenizer` is the folder it is loaded from on resume."""
    import torch
    import transformers

    device, cluster = device_of(config), config.cluster
    if device.type == "cuda":
        processor = torch.cuda.get_device_name(device) if torch.cuda.is_available() else "GPUs elsewhere"
    else:
        processor = torch.backends.cpu.get_cpu_capability()
    several = f" of {cluster.tensor_parallel} GPUs" if cluster.tensor_parallel > 1 else ""
    ray = f"ray with {cluster.learners} learners and {cluster.engines} engines{several}"
    return {
        "backend": ray if config.backend == "ray" else config.backend,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "processor": processor,
        TOKENIZER: hash_files(tokenizer),
        PROBLEMS: tasks.fingerprint(FEW_PROBLEMS),
    }


def base_model(config: RunConfig, progress: Callable[[int, int, str], None]) -> str:
    """Directory or hub id of the model to start from; warms a tiny one up if the recipe says so."""
    from prorl.learn.base_model import build_base

    warmup = config.model.warmup
    if warmup is None:
        assert config.model.path is not None, "checked by the recipe"
        return config.model.path
    problems = warmup_mixture(config, warmup)
    folder = build_base(
        warmup,
        lambda draw: problems.problem(draw, "train"),
        cache_folder(),
        seed=derive(config.seed, "initial weights"),
        fingerprint=problems.fingerprint(MANY_PROBLEMS),
        progress=lambda step, steps, loss: progress(step, steps, f"loss {loss:.3f}"),
    )
    return str(folder)


def learner_settings(config: RunConfig) -> LearnerSettings:
    """What a recipe fixes about its learner."""
    from prorl.learn.learner import LearnerSettings

    return LearnerSettings(
        **config.learner.model_dump(),
        offload=config.cluster.offload,
        betas=config.optimizer.betas,
        weight_decay=config.optimizer.weight_decay,
    )


def _renderer(tokens: PreTrainedTokenizerBase, source: str | Path) -> ChatRenderer:
    from prorl.learn.model import ModelError

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
    config: RunConfig, source: str | Path, tokens: PreTrainedTokenizerBase, with_reference: bool
) -> tuple[Backend, int]:
    import torch

    from prorl.learn.learner import TorchLearner
    from prorl.learn.model import context_limit, eos_ids, load_model, pad_id
    from prorl.local.backend import LocalBackend
    from prorl.local.engine import LocalEngine

    model = load_model(source, dtype=torch.float32, device=device_of(config))
    context, pad = context_limit(model), pad_id(tokens)
    _check_context(config, context)
    learner = TorchLearner(model, learner_settings(config), with_reference=with_reference, pad_id=pad)
    engine = LocalEngine(
        model, eos_ids=eos_ids(model.generation_config, tokens), pad_id=pad, max_rows=config.engine.max_rows
    )
    return LocalBackend(engine, _judge_maker(config)(), learner, probe=_probe(tokens, "float32")), context


def _ray_backend(
    config: RunConfig, source: str | Path, tokens: PreTrainedTokenizerBase, with_reference: bool
) -> tuple[Backend, int]:
    from prorl.cluster.settings import (
        EngineSettings,
        GpuSharing,
        chosen_transfer,
        device_kind,
        require_packages,
    )

    require_packages()
    from prorl.cluster.cluster import Cluster
    from prorl.cluster.engine import EngineActor, RayBackend, RayEngine
    from prorl.cluster.learner import LearnerRank, RayLearner

    config = settled(config)
    asked, settings, device = config.cluster, learner_settings(config), device_kind(config)
    cluster = Cluster(config)
    sharing = GpuSharing() if asked.colocate else None
    with ExitStack() as stack:
        stack.callback(cluster.close)
        judge = _ray_judge(config, cluster)  # before a model is loaded: what a node lacks is seen at once
        stack.callback(judge.close)
        ranks = range(asked.learners)
        learner = RayLearner(
            [cluster.start("rank", rank, LearnerRank, rank, asked.learners) for rank in ranks],
            _everywhere(source),
            _everywhere(tokens.name_or_path),
            settings,
            with_reference=with_reference,
            device=device,
            sharing=sharing,
        )
        _check_context(config, learner.facts.context)
        if problem := heads_problem(asked.tensor_parallel, learner.facts.heads):
            raise RecipeError(problem)  # a recipe that does not say the model's shape could not know it
        cache = asked.cache_gib or (CPU_CACHE_GIB if device == "cpu" else None)
        engines = EngineSettings(
            config=learner.facts.config,
            eos_ids=learner.facts.eos_ids,
            context=learner.facts.context,
            dtype=settings.dtype,
            max_rows=asked.max_rows,
            cache_bytes=round(cache * 2**30) if cache else None,
            transfer=chosen_transfer(asked.transfer, device, colocate=asked.colocate),
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

    make = _judge_maker(config)
    if not config.cluster.judges:
        return make()
    return RayJudge(
        lambda index: cluster.start("judge", index, JudgeActor, make),
        config.cluster.judges,
        deadline=config.judge.deadline,
        check=partial(check_sandbox, config),
    )


def _judge_maker(config: RunConfig) -> Callable[[], LocalJudge]:
    """Makes the judge of a machine, this one or another."""
    from prorl.local.judge import LocalJudge

    return partial(
        LocalJudge,
        partial(make_verifier, verifier_spec(config)),
        deadline=config.judge.deadline,
        workers=config.judge.workers,
        memory=round(config.judge.memory_gib * 2**30),
        items_per_worker=config.judge.items_per_worker,
    )


def _everywhere(source: str | Path) -> str:
    """A directory by a name that other processes know too; a hub id as it is."""
    return str(Path(source).absolute()) if Path(source).is_dir() else str(source)


def _check_context(config: RunConfig, limit: int) -> None:
    asked = [config.sampling.response_limit]
    asked += [stage.set.get("sampling.response_limit", 0) for stage in config.stages]
    if max(asked) >= limit:
        raise RecipeError(no_room(max(asked), limit))


def _probe(tokenizer: PreTrainedTokenizerBase, dtype: str) -> tuple[int, ...]:
    """Any fixed tokens do; spread over the vocabulary they touch many rows of the embedding."""
    number = PROBE_TOKENS[dtype]
    stride = max(1, len(tokenizer) // number)
    return tuple(range(0, stride * number, stride))
