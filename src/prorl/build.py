"""From a recipe to the parts of a run: data, tasks, base model, engine, judge, learner. Without torch until asked."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Self

from prorl.config.recipe import RecipeError, require_room
from prorl.config.schema import RunConfig, WarmupConfig
from prorl.control.plan import Plan, make_plan
from prorl.envs.base import ProceduralTask
from prorl.envs.datasets.catalogue import PROGRAMS, SOURCES, SourceRequest, resolve
from prorl.envs.datasets.prepare import DatasetTask, file_of, missing, prepare, require_prepared
from prorl.envs.errors import UsageError
from prorl.envs.extensions import Extension, find
from prorl.envs.files import hash_folder
from prorl.envs.mixture import Mixture
from prorl.envs.registry import VerifierSpec, make_task, make_verifier
from prorl.envs.sandbox.sandbox import Policy, Sandbox
from prorl.envs.seeds import derive
from prorl.envs.types import Split, Task
from prorl.envs.verifiers.programs import NeedsSandbox, OwnSandbox
from prorl.machine import computing, device_of, threads_of, worker_count
from prorl.rollout.pipeline import ChatRenderer, Sampler, Wait
from prorl.run.layout import TOKENIZER
from prorl.run.process import machine_memory
from prorl.run.resume import CODE, PROBLEMS, ROWS
from prorl.types import Backend

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from prorl.learn.learner import LearnerSettings
    from prorl.local.judge import LocalJudge

FEW_PROBLEMS = 100  # in the fingerprint of a run's tasks, at every start
MANY_PROBLEMS = 500  # in that of a base's
WORKER_BYTES = 1 << 29  # of a worker, whatever the model
PROBE_TOKENS = {"float32": 4, "bfloat16": 64}  # rounding is told from another model by more of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A recipe and all that was built for it; used with `with`, which stops all its processes at the end."""

    config: RunConfig
    plan: Plan
    tasks: Mixture
    backend: Backend
    renderer: ChatRenderer
    tokenizer: PreTrainedTokenizerBase
    context: int  # of the model, tokens
    note: str = ""  # what a run is to be told about how it is computed

    def sampler(self, wait: Wait) -> Sampler:
        """Renders, samples and judges; `wait` is called while verifiers are out."""
        backend = self.backend
        return Sampler(engine=backend.engine, judge=backend.judge, renderer=self.renderer, wait=wait)

    def __enter__(self) -> Self:
        # A collection that looks through all objects of torch and transformers takes a quarter of a second.
        gc.freeze()
        return self

    def __exit__(self, *_: object) -> None:
        gc.unfreeze()
        self.backend.close()


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
    where the plan needs one, unless said otherwise. Raises ModelError where model or tokenizer cannot be used,
    RecipeError where the response limit does not fit into the model's context.
    """
    import torch
    from transformers.utils.logging import disable_progress_bar

    from prorl.learn.model import ModelError, load_tokenizer

    disable_progress_bar()  # the console shows progress; transformers' own bars would tear it
    plan = make_plan(config)
    tasks = tasks or build_tasks(config)
    torch.set_num_threads(config.threads)  # the bits of a result depend on it
    tokens = load_tokenizer(tokenizer or source)
    renderer = _renderer(tokens, tokenizer or source, config.system_prompt)
    build = _ray_backend if config.backend == "ray" else _local_backend
    held = plan.needs_reference if with_reference is None else with_reference
    try:
        backend, context, note = build(config, source, tokens, held)
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
        note=note,
    )


# -- data and tasks


def cache_folder() -> Path:
    """Where bases and data sets are kept between runs: `$XDG_CACHE_HOME/prorl` or `~/.cache/prorl`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prorl"


def data_requests(config: RunConfig) -> tuple[SourceRequest, ...]:
    """The data sets among a recipe's tasks: those of the catalogue, and the recipe's own.

    The revision of local rows in the cache is a hash of their content: as a run began with it, or as they are now.
    """
    return tuple(
        replace(one, revision=_digest(*one.content))
        if config.data is None and not one.revision and _is_here(one)
        else one
        for one in _asked(config)
    )


def _asked(config: RunConfig) -> Iterator[SourceRequest]:
    keys = {"kind", "path", "domain", "columns", "answer_pattern", "limit", "subset", "split", "revision"}
    for name, task in config.tasks.items():
        if task.kind or task.grade or (name in SOURCES and not task.use):
            yield SourceRequest(name=name, graded=task.grade is not None, **task.model_dump(include=keys))


def _is_here(request: SourceRequest) -> bool:
    return request.local is not None and request.local.exists()


def with_rows_of_now(config: RunConfig) -> RunConfig:
    """A run's recipe with its local rows, if they are still there, as they are now."""
    named = {one.name for one in _asked(config) if _is_here(one)}
    tasks = {
        name: task.model_copy(update={"revision": None}) if name in named else task
        for name, task in config.tasks.items()
    }
    return config.model_copy(update={"tasks": tasks})


def data_folder(config: RunConfig) -> Path:
    """Where the recipe's prepared data sets lie: as it says, or in the cache under what it asks for."""
    if config.data is not None:
        return Path(config.data)
    asked = [replace(one, revision=None) if one.local else one for one in _asked(config)]
    return cache_folder() / "data" / _digest(*sorted(map(repr, asked)))


def data_files(config: RunConfig) -> dict[str, Path]:
    """The file of each data set, by name."""
    folder = data_folder(config).absolute()
    return {request.name: file_of(folder, request) for request in data_requests(config)}


def _digest(*lines: str) -> str:
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def verifier_spec(config: RunConfig) -> VerifierSpec:
    """How the responses to a recipe's problems are judged."""
    datasets = data_files(config)
    return VerifierSpec(
        tasks=tuple(name for name in config.tasks if name not in datasets),
        datasets=datasets,
        own=own_code(config),
        policy=Policy(tier=config.sandbox.tier, unsafe=config.sandbox.unsafe),
        strict=config.format == "strict",
    )


def own_code(config: RunConfig) -> dict[str, Extension]:
    """The tasks and reward functions of the user's own, by the task's name, as their files say now.

    Raises UsageError where one cannot be found.
    """
    code = {name: task.use or task.grade for name, task in config.tasks.items()}
    return {name: find(use) for name, use in code.items() if use}


def prepare_own_data(config: RunConfig, progress: Callable[[str, int], None]) -> None:
    """Prepare what a recipe names of local files, as they are now.

    Nothing is done where prepared data came without its files, or where data of the hub is missing still, of which
    `build_tasks` will tell. Raises DataError where a file cannot be used.
    """
    requests, folder = data_requests(config), data_folder(config)
    published = [request for request in requests if not request.local]
    gone = [request for request in requests if request.local and not _is_here(request)]
    as_it_is = missing(published, folder) or (gone and not missing(gone, folder))
    if len(published) < len(requests) and not as_it_is:
        prepare(requests, folder, progress, run=OwnSandbox(verifier_spec(config).policy))


def check_sandbox(config: RunConfig) -> str:
    """Check that the recipe's programs can be run here; what the tier leaves open, in words, "" for nothing.

    Raises SandboxError where there is no sandbox that the recipe allows; the sentence says how to get one.
    """
    spec = verifier_spec(config)
    if not any(resolve(request).layout in PROGRAMS for request in data_requests(config)) and not any(
        isinstance(make_task(name, own=spec.own.get(name)), NeedsSandbox) for name in spec.tasks
    ):
        return ""
    with Sandbox.open(spec.policy) as sandbox:
        return sandbox.warning


def build_tasks(config: RunConfig) -> Mixture:
    """The mixture a recipe trains on.

    Raises RecipeError for an unknown task, a level that it does not have, or fewer problems than the recipe asks
    for, DataError for a data set that is not prepared.
    """
    require_prepared(data_requests(config), data_folder(config))
    tasks = mixture(config)
    validated = config.validation.per_domain if config.validation.every else 0
    sizes: dict[Split, tuple[str, int]] = {
        "validation": ("validation.per_domain", validated),
        "test": ("evaluation.per_domain", config.evaluation.per_domain),
        "ood": ("evaluation.ood_per_domain", config.evaluation.ood_per_domain),
    }
    weights: dict[str, float] = {}
    try:  # what every stage and validation will ask for: what is missing shows now and not hours later
        for stage in ({}, *(stage.mixture for stage in config.stages)):
            weights |= stage
            tasks.problem(0, "train", weights)
    except ValueError as error:
        raise RecipeError(str(error)) from None
    for split, (key, per_domain) in sizes.items():
        try:
            if per_domain and not tasks.validation_problems(split, per_domain) and split == "validation":
                raise RecipeError("no task has problems for validations: set validation.every=0")
        except UsageError:  # of a task that fails, however few problems are asked for
            raise
        except ValueError as error:
            raise RecipeError(f"{error}: lower {key}, or add problems") from None
    return tasks


def task_makers(config: RunConfig, warmup: WarmupConfig | None = None) -> dict[str, Callable[[], Task]]:
    """The recipe's tasks by name, on the levels of a warm-up where it has some, not built yet: some take a second."""
    levels = warmup.levels if warmup else {}
    files, own = data_files(config), own_code(config)
    return {
        name: partial(DatasetTask, name, files[name], own.get(name))
        if name in files
        else partial(make_task, name, levels.get(name, task.levels) or None, own.get(name))
        for name, task in config.tasks.items()
    }


def mixture(config: RunConfig, warmup: WarmupConfig | None = None) -> Mixture:
    """What a recipe trains on, as yet unchecked, or what its tiny base is warmed up on, without instructions."""
    weights = warmup.weights if warmup else {}
    tasks: list[tuple[Task, float]] = []
    for name, make in task_makers(config, warmup).items():
        try:
            task = make()
        except ValueError as error:
            raise RecipeError(str(error)) from None
        if (longest := getattr(task, "verdict_seconds", 0.0)) > config.judge.deadline:
            raise RecipeError(
                f"a verdict of task {name} may take {longest:g} s: set judge.deadline={longest:g}"
            )
        if isinstance(task, ProceduralTask):  # rows of data sets already say how to answer
            task.instruction = "" if warmup else config.instruction
        tasks.append((task, weights.get(name, config.tasks[name].weight)))
    return Mixture(tasks, seed=derive(config.seed, "warm-up" if warmup else "data"))


# -- what results depend on, and the model to begin with


def settled(config: RunConfig) -> RunConfig:
    """The recipe with thread count, device and the content of local rows said, as a result depends on them, and the
    levels of tasks of the user's own, whose code who reads the run later may not have.

    Raises ClusterError where the backend is not installed or no cluster answers that could be asked for its GPUs,
    RecipeError where the device cannot be used on this machine.
    """
    if config.backend == "ray":
        from prorl.cluster.settings import require_packages

        require_packages()
    device = device_of(config)
    threads = config.threads or max(1, threads_of(config, on_gpu=device.type != "cpu"))
    tasks = dict(config.tasks)
    for name, task in tasks.items():
        made = make_task(name, own=task.use) if task.use and not task.levels else None
        if isinstance(made, ProceduralTask):
            tasks[name] = task.model_copy(update={"levels": dict.fromkeys(made.levels, 1.0)})
    for request in data_requests(config):
        tasks[request.name] = tasks[request.name].model_copy(update={"revision": request.revision})
    return config.model_copy(update={"threads": threads, "device": str(device), "tasks": tasks})


def environment(config: RunConfig, tasks: Mixture, tokenizer: Path) -> dict[str, str]:
    """What else the bits of a result depend on; `tokenizer` is the folder it is loaded from on resume."""
    import torch
    import transformers

    from prorl.learn import linear

    device, cluster = device_of(config), config.cluster
    if device.type == "cuda":
        processor = torch.cuda.get_device_name(device) if torch.cuda.is_available() else "GPUs elsewhere"
    else:
        processor = linear.processor()
    several = f" of {cluster.tensor_parallel} GPUs" if cluster.tensor_parallel > 1 else ""
    ray = f"ray with {cluster.learners} learners and {cluster.engines} engines{several}"
    return {
        "backend": ray if config.backend == "ray" else "local",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "processor": processor,
        TOKENIZER: hash_folder(tokenizer),
        PROBLEMS: tasks.fingerprint(FEW_PROBLEMS),
        ROWS: tasks.rows_fingerprint(),
        **{f"{CODE}{name}": code.fingerprint for name, code in own_code(config).items()},
    }


def base_model(config: RunConfig, progress: Callable[[int, int, str], None]) -> str:
    """Directory or hub id of the model to start from; warms a tiny one up if the recipe says so."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    from prorl.learn.base_model import build_base

    warmup = config.model.warmup
    if warmup is None:
        assert config.model.path is not None, "checked by the recipe"
        return config.model.path
    disable_progress_bar()
    torch.set_num_threads(config.threads)
    problems = mixture(config, warmup)
    folder = build_base(
        warmup,
        lambda draw: problems.problem(draw, "train"),
        cache_folder(),
        seed=derive(config.seed, "initial weights"),
        fingerprint=problems.fingerprint(MANY_PROBLEMS),
        computing=partial(computing, config),
        progress=lambda step, steps, loss: progress(step, steps, f"loss {loss:.3f}"),
    )
    return str(folder)


def learner_settings(config: RunConfig) -> LearnerSettings:
    """What a recipe fixes about its learner."""
    from prorl.learn.learner import LearnerSettings

    adam = config.optimizer.model_dump(include={"betas", "weight_decay"})
    return LearnerSettings(**config.learner.model_dump(), **adam, offload=config.cluster.offload)


def _renderer(tokens: PreTrainedTokenizerBase, source: str | Path, system: str) -> ChatRenderer:
    from prorl.learn.model import ModelError, no_tokenizer

    try:
        renderer = ChatRenderer(tokens, system)
        empty = not renderer.encode("1")
    except Exception as error:  # a template is a program: it raises what it likes
        first_line = str(error).partition("\n")[0]
        raise ModelError(f"the chat template of {source} cannot be used: {first_line}") from error
    if empty and not tokens.chat_template:
        raise no_tokenizer(source)
    if empty:
        raise ModelError(f"the chat template of {source} leaves nothing of a prompt: mend it, or remove it")
    return renderer


def _local_backend(
    config: RunConfig, source: str | Path, tokens: PreTrainedTokenizerBase, with_reference: bool
) -> tuple[Backend, int, str]:
    import torch

    from prorl.learn.learner import TorchLearner
    from prorl.learn.model import context_limit, eos_ids, load_model, pad_id
    from prorl.local.backend import LocalBackend
    from prorl.local.engine import LocalEngine, WorkersEngine
    from prorl.local.workers import Workers

    model = load_model(source, dtype=torch.float32, device=device_of(config))
    context, pad = context_limit(model), pad_id(tokens, model)
    require_room(config, context)
    learner = TorchLearner(model, learner_settings(config), with_reference=with_reference, pad_id=pad)
    ends = eos_ids(model.generation_config, tokens)
    alone = LocalEngine(model, eos_ids=ends, pad_id=pad, max_rows=config.engine.max_rows)
    engine: LocalEngine | WorkersEngine = alone
    count = worker_count(config) if model.device.type == "cpu" and not config.learner.compile else 1
    if not config.workers:  # as many as there is memory for: two gradients, the decoder's copy, activations
        weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
        count = max(1, min(count, machine_memory()[1] // (2 * (3 * weights + WORKER_BYTES))))
    workers, note = None, ""
    if count > 1 and not alone.is_steady():
        note = (
            "the matrix products of this machine or model round a response by what is sampled beside it, so its "
            f"text would depend on the number of workers: one process computes instead of {count}. (On an Intel "
            "processor, have MKL_CBWR=AUTO,STRICT in the environment if torch computes before prorl does.)"
        )
    elif count > 1:
        workers = learner.runner = Workers(learner.modules, count=count, threads=config.threads)
        if not config.sampling.partial:  # where a wave stops would depend on the speed of each worker
            engine = WorkersEngine(alone, workers)
    judge, probe = _judge_maker(config)(), _probe(tokens, "float32")
    return LocalBackend(engine, judge, learner, probe=probe, workers=workers), context, note


def _ray_backend(
    config: RunConfig, source: str | Path, tokens: PreTrainedTokenizerBase, with_reference: bool
) -> tuple[Backend, int, str]:
    config = settled(config)  # which says what is not installed
    from prorl.cluster.backend import start_backend

    backend, context = start_backend(
        config,
        learner_settings(config),
        model=_everywhere(source),
        tokenizer=_everywhere(tokens.name_or_path),
        with_reference=with_reference,
        make_judge=_judge_maker(config),
        check_sandbox=partial(check_sandbox, config),
        probe=_probe(tokens, config.learner.dtype),
    )
    return backend, context, ""


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
    """A directory by a name that other processes know; a hub id as it is."""
    return str(Path(source).absolute()) if Path(source).is_dir() else str(source)


def _probe(tokenizer: PreTrainedTokenizerBase, dtype: str) -> tuple[int, ...]:
    """Any fixed tokens do; spread over the vocabulary they touch many rows of the embedding."""
    number = PROBE_TOKENS[dtype]
    stride = max(1, len(tokenizer) // number)
    return tuple(range(0, stride * number, stride))
