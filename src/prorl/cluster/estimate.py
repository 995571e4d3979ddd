"""What a recipe asks of a machine or a cluster: tokens, memory, disk, its placement on GPUs, and if it finds them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

import yaml

from prorl.build import data_folder, data_requests, own_code, settled
from prorl.cluster import capacity
from prorl.cluster.capacity import GIB, GPU_MEMORY, GPUS_PER_NODE, PLANNED, Demand, Hardware, Placement, Size
from prorl.cluster.settings import device_kind, places, require_packages
from prorl.cluster.survey import (
    findings,
    gpus,
    host_memory,
    installed,
    no_compiler,
    room,
    survey,
    wrong_versions,
)
from prorl.config.checks import parts_problem, shape_of
from prorl.config.recipe import RecipeError, changed, to_json
from prorl.config.schema import RunConfig
from prorl.control.plan import Plan, hparams_at, make_plan
from prorl.envs.datasets.prepare import describe_needs, require_prepared
from prorl.envs.errors import ProrlError
from prorl.envs.registry import make_task
from prorl.envs.sandbox.sandbox import Finding
from prorl.machine import cores, device_of
from prorl.run.process import machine_memory
from prorl.types import HParams


def dry_run(config: RunConfig, *, full: bool = False) -> str:
    """Estimates and the data a recipe needs, as comments; then what it says as YAML, with `full` each default too.

    Raises RecipeError as `make_plan` and for an unknown task, DataError for a data set that means nothing.
    """
    plan = make_plan(config)
    requests, folder = data_requests(config), data_folder(config)
    needs = [f"data, prepared into {folder} by `prorl data prepare`:"] if requests else []
    needs += [f"  {line}" for line in describe_needs(requests, folder)] if requests else []
    datasets = {request.name for request in requests}
    try:
        own_code(config)
        for name, task in config.tasks.items():
            if name not in datasets:
                make_task(name, task.levels or None, task.use)
    except ValueError as error:
        raise RecipeError(str(error)) from None
    said = to_json(config) if full else config.model_dump(mode="json", exclude_defaults=True)
    resolved: str = yaml.safe_dump(
        said, sort_keys=False, allow_unicode=True, default_flow_style=None, width=118
    )
    more = () if full else ("what differs from the defaults; all of it: --dry-run --full",)
    return "".join(f"# {line}\n" for line in (*estimates(config, plan), *needs, *more)) + resolved


def estimates(config: RunConfig, plan: Plan) -> Iterator[str]:
    """One sentence per estimate: tokens, memory and disk."""
    hparams = hparams_at(plan, 0)
    rollouts = hparams.prompts_per_step * hparams.samples_per_prompt
    yield (
        f"the first step trains on {rollouts:,} rollouts of {hparams.prompts_per_step} informative groups, at most "
        f"{_trained_tokens(hparams):,} tokens, and samples at most {_sampled_tokens(hparams):,}"
    )
    total = sum(_trained_tokens(hparams_at(plan, step)) for step in range(config.steps))
    yield f"the run trains on at most {total:,} tokens in {config.steps:,} steps"
    yield f"a reference is {'held' if plan.needs_reference else 'not held'}; {len(config.stages)} stages"
    size = model_size(config)
    if size is None:
        yield "the model is not on this machine: give model.shape and model.parameters to estimate memory and disk"
        return
    yield f"the model has {size.parameters / 1e6:,.1f}M parameters"
    if config.backend != "ray":
        yield _local_memory(config, plan, size)
    else:
        yield from plan_gpus(config).describe()
        yield "  for other GPUs: prorl doctor --recipe RECIPE --gpus N --nodes M --gpu-memory GIB"
    yield _disk(config, plan, size)


def _local_memory(config: RunConfig, plan: Plan, size: Size) -> str:
    demand = _demand(config, plan)
    # Left open it is as many as there is memory for.
    workers = config.workers if device_kind(config) == "cpu" else 0
    held = sum(capacity.learner_state(size, reference=demand.reference).values())
    held += capacity.FLOAT32 * size.parameters  # the engine's fused copy
    if workers > 1:  # each has two gradients and a fused copy
        held += workers * 3 * capacity.FLOAT32 * size.parameters
    held += capacity.computed_weights(size, half=demand.half, sharded=False)
    passes = max(demand.micro_batch_tokens, demand.response_limit)  # a sequence is never cut
    kept = max(1, workers) * capacity.activations(
        size, passes, half=demand.half, checkpointed=demand.activation_checkpointing
    )
    apart = demand.half or demand.activation_checkpointing or config.learner.compile
    copied = ""
    if device_kind(config) == "cpu" and not apart:
        # Most where half of a pass is one text, whose keys every position of the other half copies.
        keys = min(capacity.TILED_KEYS, (passes // 2) ** 2)
        more = max(1, workers) * capacity.kv_cache(size, keys, half=False)
        copied = f" and up to about {_gib(more)} more where responses share a prompt"
    cache = capacity.kv_cache(size, config.engine.max_rows * demand.response_limit, half=False)
    copies = capacity.checkpoint_copies(size, share=1)
    copies *= capacity.pinned(size, shards=1) if device_kind(config) == "cuda" else 1
    return (
        f"memory: weights, gradients, optimizer and copies {_gib(held)}, "
        f"activations of a micro-batch about {_gib(kept)}{copied}, "
        f"key-value cache at most {_gib(cache)} (engine.max_rows rows at the limit), "
        f"host memory while a checkpoint is written {_gib(copies)} "
        f"and for a step's responses at most {_gib(capacity.SAMPLED * demand.sampled_tokens)}"
    )


def _disk(config: RunConfig, plan: Plan, size: Size) -> str:
    checkpoint = capacity.checkpoint_copies(size, share=1)
    # And the base, the best, the last good, what was the best at that one, and the one being written.
    kept = config.save.keep_last + 5
    kept += config.steps // config.save.keep_every if config.save.keep_every else 0
    resets = sum(stage.reset_reference for stage in config.stages)
    resets += config.steps // config.reset.every if config.reset.every else 0
    reference, references = size.parameters * capacity.FLOAT32, (1 + resets) * plan.needs_reference
    unplanned = f", {_gib(reference)} for each that no schedule foresees" if references else ""
    return (
        f"disk: {_gib(kept * checkpoint)} for {kept} checkpoints of {_gib(checkpoint)}, "
        f"{_gib(references * reference)} for {references} reference{'s' * (references != 1)}{unplanned}"
    )


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"


def plan_gpus(
    config: RunConfig,
    gpus: int | None = None,
    *,
    nodes: int | None = None,
    gpu_memory: float = GPU_MEMORY,
    node_gpus: int | None = None,
    separate: bool = False,
) -> Placement:
    """The best placement of a recipe on so many GPUs of so many GiB.

    Without a number of GPUs: what the recipe's `cluster` asks for, or the best on eight where it says nothing and
    `node_gpus`, how many a node has, is not known. A run that samples while it learns is placed as with `separate`.

    Raises RecipeError as `make_plan`, where the model's size is not known here and where an engine's GPUs cannot
    share it, ProrlError as `place`.
    """
    size, demand, asked = model_size(config), _demand(config, make_plan(config)), config.cluster
    if size is None:
        raise RecipeError(
            f"the size of {config.model.path} is not known on this machine: give model.shape and model.parameters"
        )
    if problem := parts_problem(asked.tensor_parallel, **size.widths):
        raise RecipeError(problem)
    size = replace(size, context=min(size.context, asked.context or size.context))
    hardware = Hardware(gpus=gpus or GPUS_PER_NODE, nodes=nodes, gpu_memory=gpu_memory, node_gpus=node_gpus)
    said = node_gpus is not None or asked.colocate
    said |= max(asked.learners, asked.engines, asked.tensor_parallel) > 1
    if gpus is not None or not said:
        separate |= config.sampling.max_staleness > 0
        return capacity.place(size, demand, hardware, separate=separate)
    if separate:
        raise ProrlError("the recipe says where its processes go: leave out --separate, or add --gpus")
    learners = None if asked.colocate else asked.learners
    hardware = replace(hardware, gpus=sum(places(config)))
    return capacity.arrange(size, demand, hardware, learners=learners, tensor_parallel=asked.tensor_parallel)


def choose_backend(config: RunConfig) -> tuple[RunConfig, str]:
    """A recipe that leaves its backend open, with one; and why, in a sentence, where there is a GPU to be used."""
    if config.backend != "auto":
        return config, ""
    here, memory = config.model_copy(update={"backend": "local"}), gpus()[0]
    if not memory or config.device == "cpu":
        return here, ""
    try:
        turns = changed(config, {}, ["backend=ray", "cluster.colocate=true"])
        against = next(_against_turns(turns, memory), None)
    except RecipeError as error:
        against = str(error)
    if against is not None:
        return here, f"this process samples and learns by itself (backend=local): {against}"
    return (
        turns,
        "an engine of vLLM and the learner take turns on the GPU (backend=ray cluster.colocate=true)",
    )


def _against_turns(turns: RunConfig, memory: Sequence[float]) -> Iterator[str]:
    """Why an engine of vLLM and the learner should not take turns on GPUs of so many GiB."""
    import torch

    if turns.model.warmup is not None:
        yield "so small a model gains nothing from vLLM"
    if not torch.cuda.is_available():
        yield "torch does not see the GPU"
    if len(memory) > 1:
        yield f"for {len(memory)} GPUs see prorl doctor --recipe RECIPE --gpus {len(memory)}"
    yield from wrong_versions(installed())
    yield from no_compiler()
    planned = plan_gpus(turns, 1, gpu_memory=memory[0])
    yield from planned.problems
    needed, there = sum(planned.node.values()) / GIB, machine_memory()[0] / GIB
    if needed > PLANNED * there:
        yield f"who waits for its turn keeps {needed:.0f} GiB in the machine's memory, which has {there:.0f}"


def machine_findings() -> Iterator[Finding]:
    """What of this machine makes a run fast, and what a run of more than a tiny model lacks here."""
    yield Finding(name="cores", works=True, detail=f"{cores()}, which train a tiny model together")
    memory, driver = gpus()
    seen = f"{len(memory)} of {min(memory):.0f} GiB, driver {driver}" if memory else "none"
    cost = "" if memory else "a model of more than some millions of parameters takes weeks on a CPU"
    yield Finding(name="GPU", works=bool(memory), detail=seen, cost=cost)
    if not memory:
        return
    import torch  # seconds, which a machine without a GPU need not wait

    works = torch.cuda.is_available()
    cost = "" if works else "the GPU stays idle: install a torch for CUDA, and see CUDA_VISIBLE_DEVICES"
    seen = f"torch {torch.__version__} {'uses' if works else 'does not see'} the GPU"
    yield Finding(name="torch", works=works, detail=seen, cost=cost)
    wrong = [*wrong_versions(installed()), *no_compiler()]
    cost = "rollouts are decoded at a third to five sixths of vLLM's rate (docs/results/gpu.md)"
    found = "; ".join(wrong) or "vLLM and Ray, for turns on the GPU"
    yield Finding(name="vLLM", works=not wrong, detail=found, cost=cost if wrong else "")


def examine(
    config: RunConfig | None, recipe: str | None, address: str | None, run: Path, *, place: bool
) -> tuple[list[Finding], Placement | None]:
    """Check a cluster, and what a recipe needs of it; with `place`, its placement on the cluster's GPUs too.

    Raises ClusterError as `require_packages` and `survey`, RecipeError and ProrlError as `plan_gpus`.
    """
    require_packages()
    nodes = survey(config.cluster.address if config else address, run)
    found = list(findings(nodes, installed()))
    if config is None or recipe is None:
        return found, None
    found += data_findings(config, recipe)
    if not place:
        return found, None
    config = settled(config)
    found.append(room(nodes, config))
    memory = [gpu for node in nodes for gpu in node.devices]
    if device_kind(config) != "cuda" or not memory:
        return found, None
    largest = max(node.gpus for node in nodes)
    planned = plan_gpus(config, gpu_memory=min(memory), node_gpus=largest)
    on_node = min(largest, sum(places(config)))
    found.append(host_memory(nodes, sum(planned.node.values()) / GIB, gpus=on_node))
    return found, planned


def data_findings(config: RunConfig, recipe: str) -> list[Finding]:
    """Whether the recipe's data sets, if any, are prepared where this machine looks for them."""
    requests, folder = data_requests(config), data_folder(config)
    works, detail = True, f"{len(requests)} data sets, prepared in {folder}"
    try:
        require_prepared(requests, folder, recipe)
    except ProrlError as error:
        works, detail = False, str(error)
    return [Finding(name="data", works=works, detail=detail)] if requests else []


def require_memory(config: RunConfig) -> None:
    """Raise RecipeError where one process cannot hold what the learner keeps; of a cluster `prorl doctor` says it."""
    import torch

    size = model_size(config) if config.backend != "ray" else None
    if size is None:
        return
    needed = sum(capacity.learner_state(size, reference=make_plan(config).needs_reference).values())
    device = device_of(config)
    cuda = device.type == "cuda"
    there = torch.cuda.get_device_properties(device).total_memory if cuda else machine_memory()[0]
    if needed > there:
        raise RecipeError(
            f"the learner needs {_gib(needed)} for weights, gradients and optimizer, and {device} has {_gib(there)} "
            "of memory: take a smaller model, or share it out over GPUs with --backend ray"
        )


def model_size(config: RunConfig) -> Size | None:
    """Size of the model: from the recipe, or else from the model's own config if that is on this machine."""
    shape, model = shape_of(config), config.model
    if shape is None:
        assert model.path is not None, "checked by the recipe"
        return _stored_size(model.path)
    named = shape.model_dump(exclude={"architecture"})
    size = Size(parameters=model.parameters or 0, head_width=shape.hidden_size // shape.heads, **named)
    vocabulary = model.warmup.vocab_size if model.warmup else 0
    counted = size.layers * size.layer_parameters + size.hidden_size * vocabulary
    return size if model.parameters else replace(size, parameters=counted)


def _stored_size(path: str) -> Size | None:
    """Read from a checkpoint on this machine, without its weights; None when there is none."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from prorl.learn.model import widths

    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        text = config.get_text_config()
        return Size(
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            hidden_size=text.hidden_size,
            layers=text.num_hidden_layers,
            head_width=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
            context=getattr(text, "max_position_embeddings", None) or 0,  # a run says what a config lacks
            **widths(text),
        )
    except Exception:  # as loading will say, which knows what to do about it
        return None


def _demand(config: RunConfig, plan: Plan) -> Demand:
    stages = [hparams_at(plan, step) for step in (0, *(stage.at for stage in config.stages))]
    return Demand(
        response_limit=max(hparams.response_limit for hparams in stages),
        micro_batch_tokens=config.learner.micro_batch_tokens,
        activation_checkpointing=config.learner.activation_checkpointing,
        half=config.learner.dtype == "bfloat16",
        reference=plan.needs_reference,
        offload=config.cluster.offload,
        cache_gib=config.cluster.cache_gib,
        # what is sampled ahead, or in hand for later steps, is held beside what is learned from
        sampled_tokens=ceil(
            max(map(_sampled_tokens, stages)) * (1 + config.sampling.max_staleness + config.sampling.partial)
        ),
        trained_tokens=max(map(_trained_tokens, stages)),
    )


def _trained_tokens(hparams: HParams) -> int:
    return hparams.prompts_per_step * hparams.samples_per_prompt * hparams.response_limit


def _sampled_tokens(hparams: HParams) -> int:
    draws = ceil(hparams.prompts_per_step * hparams.max_draw_factor)
    return draws * hparams.samples_per_prompt * hparams.response_limit
