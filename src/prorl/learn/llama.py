"""The layers of a Llama, Qwen2 or Qwen3 model on its own parameters, in few operations, for decoding and learning.

A small model on a CPU spends half of its time in small operations. Here a rotary pair of coordinates is one complex
number, so that rotary embedding is one product, which brings half of the scale 1/sqrt(D) of the scores with it.
Invariant: the module's forward and its gradients, up to float rounding.

Dimensions: N tokens, E model width, H query heads, K key heads, D head width, F feed-forward width.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from prorl.learn.linear import linear, padded, prepared
from prorl.learn.packing import Tiles

_CLASSES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
# frequencies of the others depend on the sequence length
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
_number = cache(torch.tensor)  # to convert Python's number takes as long as a small operation with it


def unsupported_reason(model: PreTrainedModel) -> str | None:
    """Why this module cannot compute the model, or None if it can."""
    config = model.config
    if type(model).__name__ not in _CLASSES or not type(model).__module__.startswith("transformers."):
        return f"{type(model).__name__} is not one of {', '.join(_CLASSES)}"
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        return "some of its layers do not attend to the whole context"
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act}, not silu"
    if (rope_type := model.model.rotary_emb.rope_type) not in _ROPE_TYPES:
        return f"its rotary embedding is of kind {rope_type}"
    attention = model.model.layers[0].self_attn
    if 2 * model.model.rotary_emb.inv_freq.numel() != attention.head_dim:
        return "its rotary embedding covers only a part of each head"
    projections = (one for name, one in model.named_modules() if name.endswith(("_proj", "lm_head")))
    if any(type(one) is not nn.Linear for one in projections):
        return "some of its projections are not plain linear layers"
    if {weight.dtype for weight in model.parameters()} != {torch.float32}:
        return "its parameters are not float32"
    if len({weight.device for weight in model.parameters()}) > 1:
        return "its parameters are on several devices"
    return None


class Layer:
    """Weights of one decoder layer module of transformers, and what they compute."""

    def __init__(self, layer: Any, *, fused: bool) -> None:
        """`fused`, without gradients: products that read the same are one, by copies of the weights.

        Their coordinates are reordered, so that a rotary pair is adjacent; that leaves products of heads as they are.
        """
        attention, mlp = layer.self_attn, layer.mlp
        query, key, value = attention.q_proj, attention.k_proj, attention.v_proj
        self.head_width = attention.head_dim
        self.key_heads = key.out_features // attention.head_dim
        self._fused = fused
        self._norms = layer.input_layernorm, layer.post_attention_layernorm
        self._head_norms = [attention.q_norm, attention.k_norm] if hasattr(attention, "q_norm") else []
        if self._head_norms:  # of Qwen3, for each query and key head
            heads = query.out_features // self.head_width, self.key_heads
            weights = [
                _weight(norm).expand(count, -1) for norm, count in zip(self._head_norms, heads, strict=True)
            ]
            self._head_weights = torch.cat(weights)  # (H+K)D
            if fused:
                self._head_weights = self._adjacent(self._head_weights.flatten()).view_as(self._head_weights)
        self._qkv = self._products((query, key, value), norm=self._norms[0], rotated=2)
        self._out = self._products((attention.o_proj,))[0]
        self._gate_up = self._products((mlp.gate_proj, mlp.up_proj), norm=self._norms[1])
        self._down = self._products((mlp.down_proj,))[0]

    def heads(self, x_NE: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys as rotary pairs, which are complex numbers, N(H+K)(D/2), and values NKD of the input."""
        normed = self._normed(x_NE, self._norms[0])
        parts = [multiply(normed).view(len(normed), -1, self.head_width) for multiply in self._qkv]
        if self._fused:
            rotated = parts[0].shape[1] - self.key_heads
            heads, values = parts[0].split_with_sizes((rotated, self.key_heads), dim=1)
        else:
            heads, values = torch.cat(parts[:2], dim=1), parts[2]
        if self._head_norms:
            heads = _unit(heads, self._head_norms[0]) * self._head_weights
        pairs = heads.view(torch.complex64) if self._fused else torch.complex(*heads.chunk(2, dim=-1))
        return pairs, values

    def finish(self, x_NE: Tensor, mixed: Tensor) -> Tensor:
        """The layer's input plus the attention output `mixed`, of shape N(HD), plus the gated feed-forward's."""
        x_NE = x_NE + self._out(mixed)
        normed = self._normed(x_NE, self._norms[1])
        parts = [multiply(normed) for multiply in self._gate_up]
        gate, up = parts[0].chunk(2, dim=1) if self._fused else parts
        return x_NE + self._down(F.silu(gate) * up)

    def _normed(self, x_NE: Tensor, norm: Any) -> Tensor:
        unit = _unit(x_NE, norm)
        return unit if self._fused else unit * _weight(norm)

    def _products(
        self, layers: Sequence[nn.Linear], *, norm: Any = None, rotated: int = 0
    ) -> list[Callable[[Tensor], Tensor]]:
        """The product of each layer, or of all as one, with the weights of the norm before.

        The first `rotated` of them make heads with rotary pairs.
        """
        if not self._fused:
            return [partial(linear, weight_MK=layer.weight, bias_M=layer.bias) for layer in layers]
        weights = [layer.weight if norm is None else layer.weight * _weight(norm) for layer in layers]
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        for tensors in weights, biases:
            tensors[:rotated] = map(self._adjacent, tensors[:rotated])
        return [prepared(torch.cat(weights), torch.cat(biases) if biases else None)]

    def _adjacent(self, rows: Tensor) -> Tensor:
        """Rows of whole heads, with the two of a rotary pair next to each other."""
        halves = rows.reshape(-1, 2, self.head_width // 2, *rows.shape[1:])
        return halves.transpose(1, 2).reshape(rows.shape)


def _unit(x: Tensor, norm: Any) -> Tensor:
    """Vectors over their length; the norm's epsilon, of a mean of E squares, keeps small ones small."""
    least = x.shape[-1] * norm.variance_epsilon
    if not torch.is_grad_enabled():
        return x * _over_length(x, least)
    result: Tensor = _Unit.apply(x, least)  # type: ignore[no-untyped-call]
    return result


def _weight(norm: Any) -> Tensor:
    """What unit vectors are multiplied by."""
    scaled: Tensor = norm.weight * len(norm.weight) ** 0.5
    return scaled


def _over_length(x: Tensor, least: float) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.mul_(length).add_(_number(least, device=x.device)).rsqrt_()


class _Unit(torch.autograd.Function):
    """The gradient of torch's RMS norm takes three times as long, on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, least: float) -> Tensor:
        factor = _over_length(x, least)
        unit = x * factor
        ctx.save_for_backward(unit, factor)
        return unit

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        unit, factor = ctx.saved_tensors
        along = torch.linalg.vecdot(grad, unit).unsqueeze(-1)
        return torch.addcmul(grad, unit, along, value=-1).mul_(factor), None


def rotations(model: PreTrainedModel, positions_N: Tensor) -> Tensor:
    """The factor that rotates each rotary pair at a position and scales its head by D^-1/4, complex, N(D/2)."""
    body = model.model
    cos, sin = body.rotary_emb(torch.empty(0, device=positions_N.device), positions_N[None])
    half, scale = cos.shape[-1] // 2, body.layers[0].self_attn.scaling
    return torch.complex(cos[0, :, :half], sin[0, :, :half]).mul_(scale**0.5)


Attend = Callable[[int, Tensor, Tensor], Tensor]
"""Attention of a layer, by number, for queries and keys as rotary pairs and values, to N(HD)."""


def hidden_states(
    model: PreTrainedModel, layers: Sequence[Layer], tokens_N: Tensor, attend: Attend
) -> Tensor:
    """Final hidden states of N tokens, a number that is `filled`, shape NE."""
    x_NE = F.embedding(tokens_N, model.model.embed_tokens.weight)
    for index, layer in enumerate(layers):
        x_NE = layer.finish(x_NE, attend(index, *layer.heads(x_NE)))
    return _unit(x_NE, model.model.norm) * _weight(model.model.norm)


def packed_hidden_states(
    model: PreTrainedModel, tokens_RS: Tensor, positions_RS: Tensor | None = None, tiles: Tiles | None = None
) -> Tensor:
    """Final hidden states of R rows on a CPU, RSE; tiles as of a `MicroBatch`. By default positions are 0, 1, …

    Gradients reach the module's parameters, of which nothing is copied.
    """
    rows, width = tokens_RS.shape
    layers = [Layer(layer, fused=False) for layer in model.model.layers]
    if positions_RS is None:
        positions_RS = tiles.texts_N if tiles else torch.arange(width).repeat(rows)
    rotation = rotations(model, positions_RS.flatten())

    def attend(_layer: int, pairs: Tensor, values: Tensor) -> Tensor:
        if tiles is None:
            return padded(attended(pairs, values, rotation, rows)[0])
        return padded(_attended_in_tiles(pairs, values, rotation, tiles))

    states_NE = hidden_states(model, layers, padded(tokens_RS.flatten()), attend)
    return states_NE[: rows * width].view(rows, width, -1)


def attended(pairs: Tensor, values: Tensor, rotation: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Attention within rows of equal length to what is before, to N(HD); also their keys and values, by row and head.

    `rotation`, of N tokens, says how many of those that are given count.
    """
    query, key, value = (part.unflatten(0, (rows, -1)) for part in _rotated(pairs, values, rotation))
    return _mixed(query, key, value, None), key.transpose(1, 2), value.transpose(1, 2)


def _attended_in_tiles(pairs: Tensor, values: Tensor, rotation: Tensor, tiles: Tiles) -> Tensor:
    """As `attended`, of positions in tiles, to N(HD)."""
    parts = zip(_rotated(pairs, values, rotation), (tiles.queries_M, *[tiles.keys_M] * 2), strict=True)
    query, key, value = (
        part.index_select(0, chosen).unflatten(0, (len(tiles.bias), -1)) for part, chosen in parts
    )
    return _mixed(query, key, value, tiles.bias).index_select(0, tiles.places_N)


def _rotated(pairs: Tensor, values: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of the first N tokens, by head."""
    count, heads = len(rotation), pairs.shape[1] - values.shape[1]
    rotated = torch.view_as_real(pairs[:count] * rotation[:, None]).flatten(-2)
    return rotated[:, :heads], rotated[:, heads:], values[:count]


def _mixed(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """Attention by row, position and head, to N(HD); without a bias to what is before."""
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, is_causal=bias is None, scale=1.0, enable_gqa=True
    )
    return mixed.transpose(1, 2).flatten(2).flatten(0, 1)
