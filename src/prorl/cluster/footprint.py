"""What training and sampling keep in memory, in bytes: the one place where these formulas stand.

Everything is per copy; how copies are spread over GPUs is for `placement`. Invariant: an estimate is a pure function
of a model's size and of what is computed with it.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT32, HALF = 4, 2  # bytes
ADAM_MOMENTS = 2
PROMPT_TOKENS = 1024  # room for a prompt beside the response
LEARNED = 8  # bytes of a response's token: 32 bits each for the token and its log-prob
SAMPLED = LEARNED + 4  # and in the driver about four characters of text

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

    @property
    def kv_width(self) -> int:
        """Elements of one layer's keys, or values, per token."""
        return self.kv_heads * self.head_width

    @property
    def layer_parameters(self) -> int:
        """Of one layer's projections; norms and biases are too few to count."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_width
        return self.hidden_size * (attention + 3 * self.intermediate_size)

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
    offload: bool = False  # weights, gradients, moments and reference in host memory, with several ranks
    cache_gib: float | None = None  # of keys and values on each of an engine's GPUs; None: what is left
    sampled_tokens: int = 0  # of responses that the driver holds at a time, at most
    trained_tokens: int = 0  # of responses that a step learns from, at most

    @property
    def context(self) -> int:
        """Longest sequence, tokens."""
        return self.response_limit + PROMPT_TOKENS

    @property
    def micro_batch(self) -> int:
        """Positions computed together: a sequence is never cut."""
        return max(self.micro_batch_tokens, self.context)

    def offloads(self, ranks: int) -> bool:
        """Whether host memory holds the state of so many ranks; one alone keeps it on its GPU."""
        return self.offload and ranks > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerState:
    """What a learner holds from step to step, float32, in bytes."""

    weights: float
    gradients: float
    moments: float
    reference: float

    @property
    def resident(self) -> float:
        """What stays while others use the GPU: gradients exist during an update only."""
        return self.weights + self.moments + self.reference

    @property
    def total(self) -> float:
        """All of it, during an update."""
        return self.resident + self.gradients


def learner_state(size: Size, *, reference: bool, shards: int = 1) -> LearnerState:
    """One rank's share when everything is spread evenly over `shards` ranks."""
    copy = FLOAT32 * size.parameters / shards
    return LearnerState(
        weights=copy, gradients=copy, moments=ADAM_MOMENTS * copy, reference=copy if reference else 0.0
    )


def cast_copy(size: Size, *, half: bool) -> float:
    """The weights in the type that one process computes with, beside the master copy: autocast keeps what it cast."""
    return HALF * size.parameters if half else 0.0


def gathered(size: Size, *, half: bool) -> float:
    """What an FSDP rank holds unsharded at a time: the model's ends and two layers, each with its gradient."""
    width = HALF if half else FLOAT32
    return 2 * width * (size.end_parameters + 2 * size.layer_parameters)


def activations(size: Size, tokens: int, *, half: bool, checkpointed: bool) -> float:
    """What the forward pass over `tokens` positions keeps for the backward pass.

    Attention that stores no scores (flash or memory-efficient SDPA) is taken for granted.
    """
    model, feed_forward, key_value = _KEPT_HALF if half else _KEPT_FLOAT32
    layer = model * size.hidden_size + feed_forward * size.intermediate_size + key_value * size.kv_width
    if checkpointed:  # the float32 input of every layer, and one layer being computed again
        return tokens * (size.layers * FLOAT32 * size.hidden_size + layer)
    return tokens * size.layers * layer


def kv_cache(size: Size, tokens: int, *, half: bool) -> float:
    """Keys and values of `tokens` positions in all layers."""
    return tokens * size.layers * 2 * size.kv_width * (HALF if half else FLOAT32)


def checkpoint_copies(size: Size, *, share: float) -> float:
    """What is held while a checkpoint is written: the first rank's whole weights, and a share of all moments."""
    return FLOAT32 * size.parameters * (1 + ADAM_MOMENTS * share)


def host_at_start(size: Size, demand: Demand, *, ranks: int, beside: int) -> dict[str, float]:
    """Host memory of a node with `beside` of the ranks while they load the model, one after the other."""
    state = learner_state(size, reference=demand.reference, shards=ranks)
    return {
        "a model being loaded": FLOAT32 * size.parameters,
        "learner's state": beside * (state.weights + state.reference) if demand.offloads(ranks) else 0.0,
    }


def host_while_training(
    size: Size, demand: Demand, *, ranks: int, beside: int, colocated: bool
) -> dict[str, float]:
    """Host memory of a node with the driver and `beside` ranks, the first among them, at the worst moment of a step.

    Which is sampling where that is `colocated`, with the last checkpoint not yet written.
    """
    state = learner_state(size, reference=demand.reference, shards=ranks)
    moved = state.total if demand.offloads(ranks) else state.resident if colocated else 0.0
    return {
        "learner's state": beside * moved,
        "a checkpoint being written": checkpoint_copies(size, share=beside / ranks),
        "the engines' weights": (HALF if demand.half else FLOAT32) * size.parameters,
        # in the driver, and those that are learned from on their way to the ranks and there
        "responses": SAMPLED * demand.sampled_tokens + LEARNED * demand.trained_tokens * (1 + beside / ranks),
    }
