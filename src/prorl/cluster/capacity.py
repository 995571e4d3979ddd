"""Which GPUs sample and which learn, what each of them holds, and whether it fits: a calculation without recipes.

Engines keep their weights and a paged key-value cache. The learner's ranks share float32 weights, gradients, moments
and reference evenly (FSDP2). Colocated, every GPU does both in turn: the engine sleeps while the rank learns, and the
rank's state lies in host memory while the engine samples. All sizes are in bytes unless a name says GiB.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, log2

from prorl.envs.errors import ProrlError

GIB = 2**30
PLANNED = 0.9  # share of a GPU's or a node's memory that is planned with; fragments and spikes have the rest
ALONE = PLANNED  # that an engine may use of GPUs of its own
SHARED = 0.85  # that an engine may use where a rank's process is on the same GPU
FLOAT32, HALF = 4, 2  # bytes
ADAM_MOMENTS = 2
PROMPT_TOKENS = 1024  # room for a prompt beside the response
LEARNED = 8  # bytes of a response's token: 32 bits each for the token and its log-prob
SAMPLED = LEARNED + 4  # and in the driver about four characters of text
PROCESS = 2 * GIB  # on a GPU: CUDA context, NCCL and cuBLAS buffers, graphs
LOGITS = 3 * FLOAT32 * 2**27  # a chunk of logits of the default size, its logarithm and a gradient
TILED_KEYS = 2**18  # as `learn/packing.py: MOST_KEYS`, which would be imported with torch
BLOCK = 16  # token positions that an engine's cache gives out together
FEWEST_ROWS = 16  # responses at full length that an engine must hold: one group
LEARNER_SHARE = 0.25  # of the GPUs where learning has its own, about its share of the work (docs/scaling.md)
GPUS_PER_NODE = 8
GPU_MEMORY = 80.0  # GiB

# Bytes that a Llama-like layer keeps per token for its backward pass, for each unit of model, feed-forward and
# key-value width. Counted on transformers' Qwen2 with autograd's hooks for saved tensors, as the test does again.
# Autocast halves little of the first: the residual stream and what norms keep stay float32.
_KEPT_FLOAT32 = (32.0, 16.0, 8.0)
_KEPT_HALF = (30.0, 8.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What the estimates need to know about a model."""

    parameters: float
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    context: int  # tokens that it can attend over
    vocab_size: int = 0  # 0: not known

    @property
    def widths(self) -> dict[str, int]:
        """What GPUs that share a layer must divide, as `config/checks.py: parts_problem` takes it."""
        names = ("heads", "kv_heads", "intermediate_size", "vocab_size")
        return {name: getattr(self, name) for name in names}

    @property
    def kv_width(self) -> int:
        """Elements of one layer's keys, or values, per token."""
        return self.kv_heads * self.head_width

    @property
    def projections(self) -> tuple[int, ...]:
        """Elements of each of one layer's matrices."""
        widths = (self.heads * self.head_width,) * 2 + (self.kv_width,) * 2 + (self.intermediate_size,) * 3
        return tuple(self.hidden_size * width for width in widths)

    @property
    def layer_parameters(self) -> int:
        """Of one layer's projections; norms and biases are too few to count."""
        return sum(self.projections)

    @property
    def end_parameters(self) -> float:
        """Embedding, and output head where it is not the same."""
        return self.parameters - self.layers * self.layer_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the estimates need to know about a recipe."""

    response_limit: int
    micro_batch_tokens: int
    activation_checkpointing: bool
    half: bool  # matrix products of the learner in bfloat16
    reference: bool
    offload: bool  # weights, gradients, moments and reference in host memory, with several ranks
    cache_gib: float | None  # of keys and values on each of an engine's GPUs; None: what is left
    sampled_tokens: int  # of responses that the driver holds at a time, at most
    trained_tokens: int  # of responses that a step learns from, at most

    @property
    def context(self) -> int:
        """Longest sequence, tokens."""
        return self.response_limit + PROMPT_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """GPUs that are all alike."""

    gpus: int = GPUS_PER_NODE
    nodes: int | None = None  # default: one for every eight, or every `node_gpus`
    gpu_memory: float = GPU_MEMORY  # GiB
    node_gpus: int | None = None  # of a node that has more than its share of these

    @property
    def node_count(self) -> int:
        """Nodes that hold them."""
        return self.nodes or ceil(self.gpus / (self.node_gpus or GPUS_PER_NODE))


# -- formulas


def learner_state(size: Size, *, reference: bool, shards: int = 1) -> dict[str, float]:
    """What one of `shards` ranks holds, float32. Gradients exist during an update only."""
    copy = FLOAT32 * size.parameters / shards
    moments = ADAM_MOMENTS * copy
    return {"weights": copy, "gradients": copy, "moments": moments, "reference": copy if reference else 0.0}


def computed_weights(size: Size, *, half: bool, sharded: bool) -> float:
    """The weights in the type of matrix products, beside the master copy.

    A process without FSDP keeps what autocast casts, a rank the ends and two layers at a time, with gradients.
    """
    if not sharded:
        return HALF * size.parameters if half else 0.0
    return 2 * (HALF if half else FLOAT32) * (size.end_parameters + 2 * size.layer_parameters)


def activations(size: Size, tokens: int, *, half: bool, checkpointed: bool) -> float:
    """What the forward pass over `tokens` positions keeps for the backward pass; attention stores no scores."""
    model, feed_forward, key_value = _KEPT_HALF if half else _KEPT_FLOAT32
    layer = model * size.hidden_size + feed_forward * size.intermediate_size + key_value * size.kv_width
    if checkpointed:  # the float32 input of every layer, and one layer being computed again
        return tokens * (size.layers * FLOAT32 * size.hidden_size + layer)
    return tokens * size.layers * layer


def kv_cache(size: Size, tokens: int, *, half: bool) -> float:
    """Keys and values of `tokens` positions in all layers."""
    return tokens * size.layers * 2 * size.kv_width * (HALF if half else FLOAT32)


def pinned(size: Size, *, shards: int) -> float:
    """Factor by which a rank's weights grow in pinned memory, which torch gives in powers of two to every matrix."""
    matrices = (*size.projections * size.layers, size.end_parameters)
    taken = sum(2.0 ** ceil(log2(FLOAT32 * each / shards)) for each in matrices if each > 0)
    return taken * shards / (FLOAT32 * size.parameters)


def checkpoint_copies(size: Size, *, share: float) -> float:
    """What is held while a checkpoint is written: the first rank's whole weights, and a share of all moments."""
    return FLOAT32 * size.parameters * (1 + ADAM_MOMENTS * share)


# -- placement on GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Engines, learner ranks, and the bytes that each GPU and node holds, by what they are for."""

    demand: Demand
    hardware: Hardware
    context: int  # that the model can attend over
    colocated: bool
    engines: int
    tensor_parallel: int  # GPUs of one engine
    learner_ranks: int
    engine_share: float  # of a GPU that an engine may use
    sampling: Mapping[str, float]  # per GPU, without the cache, which takes what is left
    cached_token: float  # keys and values of one position on one GPU
    learning: Mapping[str, float]  # per GPU
    node: Mapping[str, float]  # host memory of the node that needs most, at the worst moment of a step

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
        """Bytes of one GPU without which vLLM does not start: one sequence of its context, and a block."""
        return (-(-self.context // BLOCK) + 1) * BLOCK * self.cached_token

    @property
    def rows(self) -> int:
        """Responses at full length that one engine holds."""
        return int(self.cache // self.cached_token) // self.demand.context

    @property
    def settings(self) -> str:
        """Overrides that give a recipe this placement."""
        return (
            f"cluster.learners={self.learner_ranks} cluster.engines={self.engines} "
            f"cluster.colocate={str(self.colocated).lower()} cluster.tensor_parallel={self.tensor_parallel}"
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """What does not fit, by how much, and which fields of the recipe change that."""
        demand = self.demand
        planned = PLANNED * self.hardware.gpu_memory * GIB
        fields = ["learner.activation_checkpointing=true"] * (not demand.activation_checkpointing)
        fields += ["learner.dtype=bfloat16 with learner.old_logprobs=learner"] * (not demand.half)
        if demand.micro_batch_tokens > demand.context:
            fields += [f"a lower learner.micro_batch_tokens ({demand.micro_batch_tokens:,})"]
        fields += [f"a lower sampling.response_limit ({demand.response_limit:,})"]
        ranks = f"more cluster.learners ({self.learner_ranks}) on more GPUs"
        change = f"set {', or '.join([*fields, ranks])}"
        fixed = sum(self.learning.values()) - self.learning["activations"]
        if fixed > planned:  # none of the fields helps
            host = "cluster.offload=true, " * (self.learner_ranks > 1 and not demand.offload)
            change = (
                f"{fixed / GIB:.2f} are there whatever is computed, so take {host}a smaller model, or {ranks}"
            )
        learning = ("learning", sum(self.learning.values()), planned, change)
        return tuple(
            f"{what} needs {needed / GIB:.2f} GiB on each GPU and has {there / GIB:.2f}, "
            f"{(needed - there) / GIB:.2f} too few: {change}"
            for what, needed, there, change in (*self.engine_needs(), learning)
            if needed > there
        )

    def engine_needs(self) -> Iterator[tuple[str, float, float, str]]:
        """Of an engine: what for, the bytes of one GPU that it needs and has, and what to change."""
        limit, told = self.demand.response_limit, self.demand.cache_gib is not None
        more = "take GPUs with more memory, or set cluster.tensor_parallel higher"
        more += " with cluster.colocate=false (--separate)" * self.colocated
        larger = "set cluster.cache_gib higher, or " * told + more
        yield "an engine's weights and process", sum(self.sampling.values()), self.engine_share, more
        if not self.left:
            return
        yield "cluster.cache_gib", self.cache, self.left, f"lower it, or {more}"
        sequence = f"a cache for one sequence of its context, {self.context:,} tokens,"
        yield sequence, self.cache_needed, self.cache, f"set cluster.context lower, or {larger}"
        group = FEWEST_ROWS * self.demand.context * self.cached_token
        shorter = f"lower sampling.response_limit ({limit:,}), or {larger}"
        yield f"a cache for {FEWEST_ROWS} responses at full length", group, self.cache, shorter

    def describe(self) -> Iterator[str]:
        """The placement in sentences, a table of GiB per GPU, and what does not fit."""
        hardware, demand = self.hardware, self.demand
        yield (
            f"placement on {_count(hardware.gpus, 'GPU')} of {hardware.gpu_memory:g} GiB in "
            f"{_count(hardware.node_count, 'node')}, {PLANNED:.0%} of each planned: "
            f"{_count(self.engines, 'engine')} of {_count(self.tensor_parallel, 'GPU')}, "
            f"{_count(self.learner_ranks, 'learner rank')}, "
            f"{'on the same GPUs in turn' if self.colocated else 'on GPUs of their own'}"
        )
        yield f"  sampling, GiB per GPU: {_parts({**self.sampling, 'key-value cache': self.cache})}"
        yield f"  learning, GiB per GPU: {_parts(self.learning)}"
        yield (
            f"  one engine's cache holds {int(self.cache // self.cached_token):,} tokens: {self.rows:,} responses of "
            f"{demand.response_limit:,} tokens at full length"
        )
        yield f"  host memory beside the processes' own, GiB per node: at most {_parts(self.node)}"
        yield f"  as settings: {self.settings}"
        problems = self.problems
        if not problems:
            yield f"  everything fits by this estimate, at a context of {demand.context:,} tokens"
        yield from (f"  does not fit: {problem}" for problem in problems)


def place(size: Size, demand: Demand, hardware: Hardware, *, separate: bool = False) -> Placement:
    """The placement with the smallest engines that hold enough responses; what does not fit is in `problems`.

    Raises ProrlError where GPUs do not divide over the nodes, or are too few for separate placement.
    """
    from prorl.config.checks import parts_problem  # and pydantic, for which `prorl --help` does not wait

    gpus, nodes = hardware.gpus, hardware.node_count
    if gpus < 1 or gpus % nodes:
        raise ProrlError(f"{gpus} GPUs do not spread evenly over {nodes} nodes: give all GPUs of all nodes")
    if not separate:
        return arrange(size, demand, hardware)
    if gpus < 2:
        raise ProrlError(
            "separate placement needs at least 2 GPUs: leave out --separate and sampling.max_staleness"
        )
    learners = max(1, round(gpus * LEARNER_SHARE))
    node, sampling = gpus // nodes, gpus - learners
    powers = [wide for wide in range(1, node + 1) if wide & (wide - 1) == 0]
    # An engine's GPUs can share the model, are those of one node, and leave none of those that sample over.
    wide = [each for each in powers if not (node % each or sampling % each)]
    wide = [each for each in wide if not parts_problem(each, **size.widths)]
    tried = [arrange(size, demand, hardware, learners=learners, tensor_parallel=each) for each in wide]
    fits = (one for one in tried if all(needed <= there for _, needed, there, _ in one.engine_needs()))
    return next(fits, tried[-1])


def arrange(
    size: Size, demand: Demand, hardware: Hardware, *, learners: int | None = None, tensor_parallel: int = 1
) -> Placement:
    """`learners` ranks on GPUs of their own and engines on all others; None: one of each on every GPU, colocated."""
    colocated, ranks = learners is None, learners or hardware.gpus
    offloads = demand.offload and ranks > 1  # a rank alone keeps its state on its GPU
    # Ray fills a node before the next, so ranks lie as close together as they can.
    beside = min(ranks, hardware.node_gpus or ceil(hardware.gpus / hardware.node_count))
    state = learner_state(size, reference=demand.reference, shards=ranks)
    micro_batch = max(demand.micro_batch_tokens, demand.context)  # a sequence is never cut
    learning = ({} if offloads else state) | {
        "weights as computed with": computed_weights(size, half=demand.half, sharded=True),
        "activations": activations(
            size, micro_batch, half=demand.half, checkpointed=demand.activation_checkpointing
        ),
        "process": float(PROCESS),
        "logits": float(LOGITS),
        "sleeping engine": float(PROCESS * colocated),
    }
    total = sum(state.values())
    moved = total if offloads else total - state["gradients"] if colocated else 0.0
    weights = (HALF if demand.half else FLOAT32) * size.parameters
    grown = pinned(size, shards=ranks)
    return Placement(
        demand=demand,
        hardware=hardware,
        context=size.context,
        colocated=colocated,
        engines=(hardware.gpus - (learners or 0)) // tensor_parallel,
        tensor_parallel=tensor_parallel,
        learner_ranks=ranks,
        engine_share=(SHARED if colocated else ALONE) * hardware.gpu_memory * GIB,
        sampling={"engine weights": weights / tensor_parallel, "process": float(PROCESS)},
        # fewer key heads than GPUs are repeated, one on each
        cached_token=kv_cache(size, 1, half=demand.half) / min(tensor_parallel, size.kv_heads),
        learning=learning,
        node={  # more than at the start, when the ranks load the model one after the other
            "learner's state": beside * moved * grown,
            "a checkpoint being written": checkpoint_copies(size, share=beside / ranks) * grown,
            "the engines' weights": 2 * weights,  # as they are gathered, and in Ray's store
            # in the driver, and those that are learned from on their way to the ranks and there
            "responses": SAMPLED * demand.sampled_tokens
            + LEARNED * demand.trained_tokens * (1 + beside / ranks),
        },
    )


def _parts(held: Mapping[str, float]) -> str:
    """Total and parts in GiB."""
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in held.items() if size)
    return f"{sum(held.values()) / GIB:.1f} = {parts}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"
