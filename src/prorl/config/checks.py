"""Cross-field checks: settings of a recipe that are each fine and mean nothing together."""

import re
from collections.abc import Iterator

from prorl.config.schema import LOW_IS_BAD, RunConfig, ShapeConfig, WarmupConfig, is_hot, setting
from prorl.envs.datasets.catalogue import SOURCES

MOST_ROLLOUTS = 2**20  # of one step
VOCABULARY_BLOCK = 64  # rows of an embedding, to a multiple of which vLLM pads it
NOT_ABOVE = (
    ("clip.low", "clip.high"),
    ("length_penalty.eta_min", "length_penalty.eta_max"),  # or it would pay for length
    ("mismatch.low", "mismatch.high"),
    ("reset.kl_count", "reset.kl_window"),
)
OF_ROWS = ("domain", "columns", "answer_pattern", "limit", "subset", "split", "revision")
"""Keys of a task that say something of its rows of data."""

_FOLDER = re.compile(r"\w[^/\\@\x00-\x1f\x7f]*")
_NAMED_SO = "begin with a letter or digit, use no /, \\ or @"


def shape_of(config: RunConfig) -> ShapeConfig | None:
    """The model's shape as far as the recipe knows it."""
    return config.model.warmup.shape if config.model.warmup else config.model.shape


def contradictions(config: RunConfig) -> Iterator[str]:
    """One sentence per contradiction."""
    sampling, reset, shape = config.sampling, config.reset, shape_of(config)
    if (config.model.path is None) == (config.model.warmup is None):
        yield "model: say either `path` (a transformers directory or hub id) or `warmup`, exactly one"
    if not _FOLDER.fullmatch(config.name):
        yield f"name {config.name!r} cannot be a folder below runs/: {_NAMED_SO}"
    rollouts = sampling.prompts_per_step * sampling.samples_per_prompt
    if rollouts > MOST_ROLLOUTS:
        yield (
            f"sampling.prompts_per_step × sampling.samples_per_prompt is {rollouts:,} rollouts in every step, above "
            f"{MOST_ROLLOUTS:,}: lower either"
        )
    if sampling.samples_per_prompt < 2:
        yield "sampling.samples_per_prompt must be at least 2: the baseline is the mean of a prompt's own group"
    if config.advantage.pass_at_k > sampling.samples_per_prompt:
        yield (
            f"advantage.pass_at_k ({config.advantage.pass_at_k}) is above sampling.samples_per_prompt "
            f"({sampling.samples_per_prompt}): the best of so many is estimated within a prompt's own group"
        )
    if sampling.prompts_per_step % config.optimizer.updates_per_step:
        yield (
            f"sampling.prompts_per_step ({sampling.prompts_per_step}) does not divide into "
            f"optimizer.updates_per_step ({config.optimizer.updates_per_step}) equal mini-batches"
        )
    if shape is not None and sampling.response_limit >= shape.context:
        yield no_room(sampling.response_limit, shape.context)
    if config.backend == "ray" and sampling.top_p < 1:
        yield (
            "backend=ray needs sampling.top_p 1: below it vLLM reports log-probs of the "
            "truncated distribution, which the learner cannot compute"
        )
    if config.device == "cpu" and config.cluster.transfer in ("nccl", "ipc"):
        yield (
            f"cluster.transfer={config.cluster.transfer} moves weights between GPUs, and there are none with "
            "device=cpu: set cluster.transfer=auto"
        )
    phases = config.deadlines
    patience = min(phases.generate, phases.sync, phases.validation, phases.measure, phases.between)
    if config.backend == "ray" and config.cluster.engine_deadline >= patience:
        yield (
            f"cluster.engine_deadline ({config.cluster.engine_deadline:g} s) is not below the least of "
            f"deadlines.generate, sync, validation, measure and between ({patience:g} s): the trainer would be ended "
            "before it could replace an engine"
        )
    if config.backend == "ray":
        yield from _of_places(config, shape)
    for low, high in NOT_ABOVE:
        if setting(config, low) > setting(config, high):
            yield f"{low} ({setting(config, low)}) is above {high} ({setting(config, high)})"
    if config.mismatch.kind != "none" and config.learner.old_logprobs == "engine":
        yield "mismatch correction compares engine and learner: it needs learner.old_logprobs=learner"
    if config.learner.dtype == "bfloat16" and config.learner.old_logprobs == "engine":
        yield (
            "learner.dtype=bfloat16 rounds otherwise than the engine, whose log-probs would then not be those of the "
            "policy at the start of a step: set learner.old_logprobs=learner"
        )
    older = [f"sampling.{name}" for name in ("max_staleness", "partial") if getattr(sampling, name)]
    if older and config.mismatch.kind == "none":
        yield (
            f"{' and '.join(older)} above 0 learn from what an older policy sampled: correct for it with "
            "mismatch.kind=tis (or icepop, sequence_mask) and learner.old_logprobs=learner"
        )
    if (reset.stalled_validations or reset.target == "best") and not config.validation.every:
        yield "reset.stalled_validations and reset.target=best need validations: set validation.every above 0"
    if 0 < config.reset.every < config.reset.cooldown:
        yield (
            f"reset.every ({config.reset.every}) is below reset.cooldown ({config.reset.cooldown}), within which "
            "there is no second reset: lower reset.cooldown"
        )
    yield from _of_tasks(config)
    yield from _of_stages_and_detectors(config)


def _of_tasks(config: RunConfig) -> Iterator[str]:
    """Levels and weights of no task, and tasks of which it is not clear where problems or verdicts come from."""
    warmup = config.model.warmup or WarmupConfig()  # without one it says nothing of tasks
    levels = {"model.warmup.levels": warmup.levels}
    levels["tasks"] = {name: task.levels for name, task in config.tasks.items()}
    for name in sorted({*warmup.levels, *warmup.weights} - config.tasks.keys()):
        yield f"model.warmup: the recipe has no task '{name}', for which levels or weights are given"
    for place, tasks in levels.items():
        for name, weights in tasks.items():
            if weights and not any(weights.values()):
                yield f"{place}.{name}: every level has weight 0: give at least one a positive weight"
    for name, task in config.tasks.items():
        rows = [key for key in ("kind", "grade", "path") if getattr(task, key) is not None]
        if (task.kind or task.grade) and task.path is None:
            yield f"tasks.{name}: `{rows[0]}` describes rows of your own: say where they lie with `path`"
        if task.kind and task.grade:
            yield f"tasks.{name}: rows are judged by `kind` or by `grade`: leave one out"
        if (rows or name in SOURCES) and not _FOLDER.fullmatch(name):
            yield f"tasks: {name!r} cannot be the name of a file: {_NAMED_SO}"
        if task.use and rows:
            yield f"tasks.{name}: `use` is a task that makes its own problems: leave out `{rows[0]}`"
        published = name in SOURCES and task.use is None
        if idle := [key for key in OF_ROWS if getattr(task, key) and not (rows or published)]:
            yield f"tasks.{name}: `{idle[0]}` is about rows of data, and this task makes its problems: leave it out"
        if task.path and not (task.kind or task.grade or task.use or published):
            yield (
                f"tasks.{name}: say how its rows are judged: by `kind` (math, choice, quantity, code, instructions) "
                "or by a function of your own, `grade`"
            )
        if (task.levels or task.adaptive) and (rows or published):
            yield f"tasks.{name}: a data set has no `levels`"
        if task.answer_pattern is not None:
            try:
                re.compile(task.answer_pattern)
            except (re.error, OverflowError, RecursionError) as error:
                yield f"tasks.{name}.answer_pattern is no regular expression: {error}"
    drawn = {name: task.weight for name, task in config.tasks.items()}
    if not (any(drawn.values()) and any((drawn | warmup.weights).values())):
        yield "every task has weight 0, in training or in the warm-up: give at least one a positive weight"


def _of_stages_and_detectors(config: RunConfig) -> Iterator[str]:
    """Stages out of order or without effect, and detectors that could never act as they say."""
    starts = [stage.at for stage in config.stages]
    if starts != sorted(set(starts)):
        yield f"stages must begin at ascending steps, not {starts}"
    for stage in config.stages:
        if stage.optimizer == "clear" and not stage.reset_reference:
            yield f"stage at step {stage.at}: optimizer: clear has an effect with reset_reference: true alone"
        if unknown := sorted(set(stage.mixture) - set(config.tasks)):
            yield f"stage at step {stage.at}: the mixture names {unknown}, which `tasks` does not list"
    for name, row in config.detectors:
        if row.hits > row.of_last:
            yield f"detectors.{name}: hits ({row.hits}) is above of_last ({row.of_last})"
        if row.mode == "act" and row.action == "warn":
            yield f"detectors.{name}: mode: act needs an action other than warn"
        if not is_hot(name, row.threshold, row.rearm):
            side = "below" if name in LOW_IS_BAD else "above"
            yield f"detectors.{name}: rearm ({row.rearm:g}) is {side} its threshold ({row.threshold:g})"


def _of_places(config: RunConfig, shape: ShapeConfig | None) -> Iterator[str]:
    """Places that cannot be had."""
    cluster = config.cluster
    if cluster.colocate and cluster.learners != cluster.engines:
        yield (
            f"cluster.colocate puts an engine on the GPU of every learner rank, but cluster.learners is "
            f"{cluster.learners} and cluster.engines {cluster.engines}: make them equal"
        )
    if cluster.colocate and cluster.tensor_parallel > 1:
        yield (
            "cluster.colocate cannot say on which GPUs an engine of several lies: set cluster.tensor_parallel=1, or "
            "cluster.colocate=false for GPUs of its own"
        )
    if cluster.colocate and config.sampling.max_staleness:
        yield (
            "sampling.max_staleness=1 samples while learning, which take turns on shared GPUs: set "
            "cluster.colocate=false for GPUs of their own"
        )
    if cluster.offload and cluster.learners == 1:
        yield (
            "cluster.offload keeps in host memory what several learner ranks share, but cluster.learners is 1: set "
            "cluster.offload=false, or more cluster.learners"
        )
    widths = shape.model_dump(include={"heads", "kv_heads", "intermediate_size"}) if shape else {}
    if widths and (problem := parts_problem(cluster.tensor_parallel, **widths)):
        yield problem


def no_room(limit: int, context: int) -> str:
    """Why responses of `limit` tokens do not go into a model's context."""
    return (
        f"sampling.response_limit ({limit}) leaves no room for a prompt in the model's context of {context} tokens: "
        "lower it or take a model with a longer context"
    )


def parts_problem(
    tensor_parallel: int, *, heads: int, kv_heads: int, intermediate_size: int, vocab_size: int = 0
) -> str:
    """Why vLLM cannot lay a model over so many GPUs, or nothing; `vocab_size` is 0 where it is not known.

    Source: vLLM's `QKVParallelLinear`, `MergedColumnParallelLinear` and `VocabParallelEmbedding`.
    """

    def undivided(parts: int) -> list[str]:
        padded = -(-vocab_size // VOCABULARY_BLOCK) * VOCABULARY_BLOCK
        # Fewer key-value heads than GPUs are repeated, each on as many GPUs.
        kv_divided = kv_heads % parts == 0 or parts % kv_heads == 0
        return (
            [f"{heads} attention heads"] * (heads % parts > 0)
            + [f"{kv_heads} key-value heads"] * (not kv_divided)
            + [f"feed-forward width of {intermediate_size:,}"] * (intermediate_size % parts > 0)
            + [f"vocabulary, padded to {padded:,}"] * (padded % parts > 0)
        )

    if not (wrong := undivided(tensor_parallel)):
        return ""
    *good, last = [str(parts) for parts in range(1, heads + 1) if not undivided(parts)]
    return (
        f"cluster.tensor_parallel ({tensor_parallel}) does not divide the model's {' and '.join(wrong)}: take "
        + " or ".join([", ".join(good), last] if good else [last])
    )
