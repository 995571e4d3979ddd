"""Which GPUs sample and which learn, and what each of them holds: a calculation, before anything is started.

Engines keep half-precision weights and a paged cache; the learner's ranks share float32 weights, gradients, moments
and reference evenly (FSDP2). Colocated, every GPU does both in turn: the engine sleeps while the rank learns, and the
rank's state lies in host memory while the engine samples. Invariant: what is said to fit is below the planned share
of a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from prorl.cluster.footprint import (
    FLOAT32,
    HALF,
    PROMPT_TOKENS,
    Demand,
    Size,
    activations,
    cast_copy,
    gathered,
    host_at_start,
    host_while_training,
    kv_cache,
    learner_state,
)
from prorl.envs.errors import ProrlError

GIB = 2**30
PLANNED = 0.9  # share of a GPU's or a node's memory that is planned with; fragments and spikes have the rest
ALONE = PLANNED  # that an engine may use of GPUs of its own
SHARED = 0.85  # that an engine may use where a rank's process is on the same GPU
# Of each process on a GPU: CUDA context, NCCL and cuBLAS buffers, graphs, one chunk of logits.
PROCESS = 2 * GIB
BLOCK = 16  # token positions that an engine's cache gives out together
FEWEST_ROWS = 16  # responses at full length that an engine must hold: one group
LEARNER_SHARE = 0.25  # of the GPUs where learning has its own, about its share of the work (docs/scaling.md)


class PlacementError(ProrlError):
    """GPUs that cannot be shared out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The GPUs at hand, all alike."""

    gpus: int = 8
    nodes: int = 1
    gpu_memory: float = 80.0  # GiB
    node_gpus: int | None = None  # of a node that has more than its share of these

    @property
    def beside(self) -> int:
        """GPUs of one node at most: processes fill a node before the next."""
        return self.node_gpus or math.ceil(self.gpus / self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Engines, ranks, and bytes per GPU by what they are for; `problems` is empty where everything fits."""

    size: Size
    demand: Demand
    cluster: Cluster
    colocated: bool
    engines: int
    tensor_parallel: int  # GPUs of one engine
    learner_ranks: int
    sampling: Mapping[str, float]  # without the cache, which takes what is left
    learning: Mapping[str, float]
    starting: Mapping[str, float]  # bytes of host memory on the node that needs most
    training: Mapping[str, float]  # likewise
    problems: tuple[str, ...] = ()

    @property
    def planned(self) -> float:
        """Bytes of a GPU that are planned with."""
        return PLANNED * self.cluster.gpu_memory * GIB

    @property
    def engine_share(self) -> float:
        """Bytes of a GPU that an engine may use."""
        return (SHARED if self.colocated else ALONE) * self.cluster.gpu_memory * GIB

    @property
    def host(self) -> float:
        """Bytes of host memory that a node needs at most, beside what every process takes for itself."""
        return max(sum(self.starting.values()), sum(self.training.values()))

    @property
    def left(self) -> float:
        """Bytes of one GPU that are left for keys and values."""
        return max(0.0, self.engine_share - sum(self.sampling.values()))

    @property
    def cache(self) -> float:
        """Bytes of one GPU that keys and values get."""
        return self.left if self.demand.cache_gib is None else self.demand.cache_gib * GIB

    @property
    def cache_needed(self) -> float:
        """Bytes of one GPU without which vLLM does not start: one sequence of the model's context, and a block."""
        blocks = -(-self.size.context // BLOCK) + 1
        return blocks * BLOCK * self.cached_token

    @property
    def cache_tokens(self) -> int:
        """Token positions that one engine's cache holds."""
        return int(self.cache // self.cached_token)

    @property
    def cached_token(self) -> float:
        """Bytes of one position on one GPU."""
        # fewer key heads than GPUs are repeated, one on each
        return kv_cache(self.size, 1, half=self.demand.half) / min(self.tensor_parallel, self.size.kv_heads)

    @property
    def rows(self) -> int:
        """Responses at full length that one engine holds."""
        return self.cache_tokens // self.demand.context

    @property
    def settings(self) -> str:
        """What a recipe is told to be placed like this."""
        told = f"cluster.learners={self.learner_ranks} cluster.engines={self.engines}"
        if self.tensor_parallel > 1:
            told += f" cluster.tensor_parallel={self.tensor_parallel}"
        return told + " cluster.colocate=true" * self.colocated


def place(size: Size, demand: Demand, cluster: Cluster, *, separate: bool = False) -> Placement:
    """The placement with the smallest engines that hold enough responses; problems are said, not raised.

    Raises:
        PlacementError: GPUs that do not divide over the nodes, or too few for separate placement.
    """
    if cluster.gpus < 1 or cluster.nodes < 1 or cluster.gpus % cluster.nodes:
        raise PlacementError(
            f"{cluster.gpus} GPUs do not spread evenly over {cluster.nodes} nodes: give all GPUs of all nodes"
        )
    if separate and cluster.gpus < 2:
        raise PlacementError("separate placement needs at least 2 GPUs: leave out --separate")
    learners = max(1, round(cluster.gpus * LEARNER_SHARE)) if separate else None
    tried = [
        _arrange(size, demand, cluster, tensor_parallel, learners=learners)
        for tensor_parallel in _tensor_parallel(size, cluster, learners=learners)
    ]
    return _judged(
        next((placement for placement in tried if not any(_sampling_problems(placement))), tried[-1])
    )


def place_as_told(
    size: Size, demand: Demand, cluster: Cluster, *, learners: int | None, tensor_parallel: int = 1
) -> Placement:
    """What `backend: ray` starts: so many ranks and engines of so many GPUs; without a number of ranks, colocated."""
    return _judged(_arrange(size, demand, cluster, tensor_parallel, learners=learners))


def describe(placement: Placement) -> Iterator[str]:
    """The placement in sentences, a table of GiB per GPU, and what does not fit."""
    cluster = placement.cluster
    yield (
        f"placement on {_count(cluster.gpus, 'GPU')} of {cluster.gpu_memory:g} GiB in "
        f"{_count(cluster.nodes, 'node')}, {PLANNED:.0%} of each planned: {_count(placement.engines, 'engine')} of "
        f"{_count(placement.tensor_parallel, 'GPU')}, {_count(placement.learner_ranks, 'learner rank')}, "
        f"{'on the same GPUs in turn' if placement.colocated else 'on GPUs of their own'}"
    )
    for phase, held in (
        ("sampling", {**placement.sampling, "key-value cache": placement.cache}),
        ("learning", placement.learning),
    ):
        yield f"  {phase}, GiB per GPU: {sum(held.values()) / GIB:.1f} = {_parts(held)}"
    yield (
        f"  one engine's cache holds {placement.cache_tokens:,} tokens: {placement.rows:,} responses of "
        f"{placement.demand.response_limit:,} tokens at full length"
    )
    starting, training = (
        f"{sum(held.values()) / GIB:.1f} = {_parts(held)}"
        for held in (placement.starting, placement.training)
    )
    yield (
        f"  host memory beside the processes' own, GiB per node: at most {placement.host / GIB:.0f}; at start "
        f"{starting}; while training {training}"
    )
    yield f"  as settings: {placement.settings}"
    if not placement.problems:
        yield f"  everything fits by this estimate, at a context of {placement.demand.context:,} tokens"
    yield from (f"  does not fit: {problem}" for problem in placement.problems)


def _parts(held: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {size / GIB:.1f}" for name, size in held.items() if size)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _judged(placement: Placement) -> Placement:
    return replace(placement, problems=(*_sampling_problems(placement), *_learning_problems(placement)))


def _tensor_parallel(size: Size, cluster: Cluster, *, learners: int | None) -> list[int]:
    """GPUs that one engine may have: one where they are shared, else dividing heads, nodes, and those that sample."""
    if learners is None:
        return [1]
    node, sampling = cluster.gpus // cluster.nodes, cluster.gpus - learners
    powers = [gpus for gpus in range(1, node + 1) if gpus & (gpus - 1) == 0]
    return [gpus for gpus in powers if not (size.heads % gpus or node % gpus or sampling % gpus)]


def _arrange(
    size: Size, demand: Demand, cluster: Cluster, tensor_parallel: int, *, learners: int | None
) -> Placement:
    """`learners` ranks on GPUs of their own; None: one on every GPU, in turn with the engines."""
    ranks = cluster.gpus if learners is None else learners
    state = learner_state(size, reference=demand.reference, shards=ranks)
    # Ranks on GPUs of their own lie as close together as they can.
    beside, colocated = min(ranks, cluster.beside), learners is None
    width = HALF if demand.half else FLOAT32
    sampling = {"engine weights": width * size.parameters / tensor_parallel, "process": float(PROCESS)}
    resident = {
        "weights": state.weights,
        "gradients": state.gradients,
        "moments": state.moments,
        "reference": state.reference,
    }
    learning = ({} if demand.offloads(ranks) else resident) | {
        "weights as computed with": gathered(size, half=demand.half)
        if ranks > 1
        else cast_copy(size, half=demand.half),
        "activations": activations(
            size, demand.micro_batch, half=demand.half, checkpointed=demand.activation_checkpointing
        ),
        "process": float(PROCESS),
    }
    if colocated:
        learning |= {"sleeping engine": float(PROCESS)}
    return Placement(
        size=size,
        demand=demand,
        cluster=cluster,
        colocated=colocated,
        engines=(cluster.gpus - (learners or 0)) // tensor_parallel,
        tensor_parallel=tensor_parallel,
        learner_ranks=ranks,
        sampling=sampling,
        learning=learning,
        starting=host_at_start(size, demand, ranks=ranks, beside=beside),
        training=host_while_training(size, demand, ranks=ranks, beside=beside, colocated=colocated),
    )


def _sampling_problems(placement: Placement) -> Iterator[str]:
    told, left = placement.demand.cache_gib, placement.left
    if not left:
        needed = sum(placement.sampling.values())
        yield (
            f"sampling needs {needed / GIB:.1f} GiB of the {placement.engine_share / GIB:.1f} planned before the "
            f"first key: take {_larger_engines(placement)}"
        )
        return
    if placement.cache > left:
        yield (
            f"cluster.cache_gib ({told:g}) is more than the {left / GIB:.1f} GiB that are left on a GPU: lower it, "
            f"or take {_larger_engines(placement)}"
        )
    if placement.cache < placement.cache_needed:
        yield (
            f"an engine starts only with a cache for one sequence of the model's context, {placement.size.context:,} "
            f"tokens: {placement.cache_needed / GIB:.2f} GiB on each GPU, and it has {placement.cache / GIB:.2f}: "
            f"{_larger_cache(placement)}"
        )
    if placement.rows < FEWEST_ROWS:
        yield (
            f"an engine holds {_count(placement.rows, 'response')} at full length, fewer than {FEWEST_ROWS}: lower "
            f"sampling.response_limit (now {placement.demand.response_limit:,}) or "
            f"{_larger_cache(placement)}"
        )


def _larger_cache(placement: Placement) -> str:
    """What gives an engine enough cache, for the model's context and for responses."""
    rows = FEWEST_ROWS * placement.demand.context * placement.cached_token
    enough = max(placement.cache_needed, rows)
    if placement.demand.cache_gib is not None and enough <= placement.left:
        return f"set cluster.cache_gib={math.ceil(10 * enough / GIB) / 10:g} or more"
    return f"take {_larger_engines(placement)}"


def _larger_engines(placement: Placement) -> str:
    """What gives an engine more memory."""
    memory, wider = "GPUs with more memory", 2 * placement.tensor_parallel
    if placement.colocated:
        return (
            f"{memory}, or engines of several GPUs, which are not shared: --separate, cluster.colocate=false"
        )
    if wider in _tensor_parallel(placement.size, placement.cluster, learners=placement.learner_ranks):
        return f"{memory}, or set cluster.tensor_parallel={wider}"
    return memory


def _learning_problems(placement: Placement) -> Iterator[str]:
    needed = sum(placement.learning.values())
    if needed <= placement.planned:
        return
    found = ", or ".join(_remedies(placement))
    yield (
        f"learning needs {needed / GIB:.1f} GiB of the {placement.planned / GIB:.1f} planned: "
        + (
            found
            or "no single change is enough; take a smaller model, GPUs with more memory, or more of them"
        )
    )


def _remedies(placement: Placement) -> Iterator[str]:
    """Single changes after which learning fits."""
    demand = placement.demand
    changes = {
        "learner.activation_checkpointing=true": replace(demand, activation_checkpointing=True),
        "learner.dtype=bfloat16 learner.old_logprobs=learner": replace(demand, half=True),
        f"learner.micro_batch_tokens={demand.context}": replace(demand, micro_batch_tokens=demand.context),
        f"sampling.response_limit={demand.response_limit // 2} with learner.micro_batch_tokens="
        f"{demand.response_limit // 2 + PROMPT_TOKENS}": replace(
            demand,
            response_limit=demand.response_limit // 2,
            micro_batch_tokens=demand.response_limit // 2 + PROMPT_TOKENS,
        ),
    }
    for change, changed in changes.items():
        if changed != demand and _learns(placement, changed):
            yield f"set {change}"
    for factor in (2, 4, 8):
        if _learns(placement, demand, factor):
            yield f"take {placement.cluster.gpus * factor} GPUs"
            return


def _learns(placement: Placement, demand: Demand, factor: int = 1) -> bool:
    """Whether learning fits with another demand, over so many times the GPUs, shared out in the same way."""
    cluster = placement.cluster
    more = replace(cluster, gpus=cluster.gpus * factor, nodes=cluster.nodes * factor)
    learners = None if placement.colocated else placement.learner_ranks * factor
    other = _arrange(placement.size, demand, more, placement.tensor_parallel, learners=learners)
    return sum(other.learning.values()) <= other.planned
