"""Which GPUs sample and which learn, and what each of them holds: a calculation, before anything is started.

Engines keep half-precision weights and a paged cache; the learner's ranks share float32 weights, gradients, moments
and reference evenly (FSDP2). Colocated, every GPU does both in turn: the engine sleeps while the rank learns, and the
rank's state lies in host memory while the engine samples. Invariant: what is said to fit is below the planned share
of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from prorl.errors import ProrlError
from prorl.footprint import HALF, Size, activations, cast_copy, gathered, kv_cache, learner_state

GIB = 2**30
PLANNED = 0.9  # share of a GPU's memory that is planned with; fragments and spikes have the rest
SHARED = 0.85  # that an engine may use where a rank's process is on the same GPU
PROCESS = (
    2 * GIB
)  # of each process on a GPU: CUDA context, NCCL and cuBLAS buffers, graphs, one chunk of logits
PROMPT_TOKENS = 1024  # room for a prompt beside the response
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a recipe asks of a placement."""

    response_limit: int
    micro_batch_tokens: int
    activation_checkpointing: bool
    half: bool  # matrix products of the learner in bfloat16
    reference: bool

    @property
    def context(self) -> int:
        """Longest sequence, tokens."""
        return self.response_limit + PROMPT_TOKENS

    @property
    def micro_batch(self) -> int:
        """Positions computed together: a sequence is never cut."""
        return max(self.micro_batch_tokens, self.context)


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
    host: float  # bytes of a node's memory that the learner's state takes while engines sample
    problems: tuple[str, ...] = ()

    @property
    def planned(self) -> float:
        """Bytes of a GPU that are planned with."""
        return PLANNED * self.cluster.gpu_memory * GIB

    @property
    def engine_share(self) -> float:
        """Bytes of a GPU that an engine may use."""
        return SHARED * self.cluster.gpu_memory * GIB if self.colocated else self.planned

    @property
    def cache(self) -> float:
        """Bytes of one GPU that are left for keys and values."""
        return max(0.0, self.engine_share - sum(self.sampling.values()))

    @property
    def cache_tokens(self) -> int:
        """Token positions that one engine's cache holds."""
        # fewer key heads than GPUs are repeated, one on each
        parts = min(self.tensor_parallel, self.size.kv_heads)
        return int(self.cache * parts // kv_cache(self.size, 1, half=True))

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
    return _judged(next((placement for placement in tried if placement.rows >= FEWEST_ROWS), tried[-1]))


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
        parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in held.items() if size)
        yield f"  {phase}, GiB per GPU: {sum(held.values()) / GIB:.1f} = {parts}"
    yield (
        f"  one engine's cache holds {placement.cache_tokens:,} tokens: {placement.rows:,} responses of "
        f"{placement.demand.response_limit:,} tokens at full length"
    )
    if placement.host:
        yield f"  host memory, GiB per node: {placement.host / GIB:.0f} for the learner's state while engines sample"
    yield f"  as settings: {placement.settings}"
    if not placement.problems:
        yield f"  everything fits by this estimate, at a context of {placement.demand.context:,} tokens"
    yield from (f"  does not fit: {problem}" for problem in placement.problems)


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
    sampling = {"engine weights": HALF * size.parameters / tensor_parallel, "process": float(PROCESS)}
    learning = {
        "weights": state.weights,
        "gradients": state.gradients,
        "moments": state.moments,
        "reference": state.reference,
        "weights as computed with": gathered(size, half=demand.half)
        if ranks > 1
        else cast_copy(size, half=demand.half),
        "activations": activations(
            size, demand.micro_batch, half=demand.half, checkpointed=demand.activation_checkpointing
        ),
        "process": float(PROCESS),
    }
    if learners is None:
        learning |= {"sleeping engine": float(PROCESS)}
    return Placement(
        size=size,
        demand=demand,
        cluster=cluster,
        colocated=learners is None,
        engines=(cluster.gpus - (learners or 0)) // tensor_parallel,
        tensor_parallel=tensor_parallel,
        learner_ranks=ranks,
        sampling=sampling,
        learning=learning,
        host=state.resident * ranks / cluster.nodes if learners is None else 0.0,
    )


def _sampling_problems(placement: Placement) -> Iterator[str]:
    if not placement.cache:
        needed = sum(placement.sampling.values())
        yield (
            f"sampling needs {needed / GIB:.1f} GiB of the {placement.engine_share / GIB:.1f} planned before the "
            f"first key: take {_larger_engines(placement)}"
        )
    elif placement.rows < FEWEST_ROWS:
        yield (
            f"an engine holds {_count(placement.rows, 'response')} at full length, fewer than {FEWEST_ROWS}: lower "
            f"sampling.response_limit (now {placement.demand.response_limit:,}) or take {_larger_engines(placement)}"
        )


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
        "learner.dtype=bfloat16": replace(demand, half=True),
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
