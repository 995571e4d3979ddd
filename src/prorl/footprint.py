"""What training and sampling keep in memory, in bytes: the one place where these formulas stand.

Everything is per copy; how copies are spread over GPUs is for `placement`. Invariant: an estimate is a pure function
of a model's size and of what is computed with it.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT32, HALF = 4, 2  # bytes
ADAM_MOMENTS = 2

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
