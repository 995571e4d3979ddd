"""The layers of a Llama, Qwen2 or Qwen3 model on its own parameters, in few operations, for decoding and learning.

A small model on a CPU spends half of its time in small operations. Query and key coordinates are reordered so that a
rotary pair is adjacent, which leaves their products as they are and makes rotary embedding one complex product; each
takes half of the scale 1/sqrt(D) there. Invariant: the module's forward and its gradients, up to float rounding.

Dimensions: N tokens, E model width, H query heads, K key heads, D head width, F feed-forward width.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from prorl.learn.linear import linear, padded

_CLASSES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
# frequencies of the others depend on the sequence length
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


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
    projections = [model.lm_head]
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        projections += [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
        projections += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    if any(type(one) is not nn.Linear for one in projections):
        return "some of its projections are not plain linear layers"
    if len({(weight.device, weight.dtype) for weight in model.parameters()}) > 1:
        return "its parameters differ in device or dtype"
    return None


class Layer:
    """Weights of one decoder layer module of transformers, and what they compute."""

    def __init__(self, layer: Any, *, fused: bool) -> None:
        """`fused`: query, key and value as one matrix, and gate and up, which are copies."""
        attention, mlp = layer.self_attn, layer.mlp
        query, key, value = attention.q_proj, attention.k_proj, attention.v_proj
        self.head_width = attention.head_dim
        self.key_heads = key.out_features // attention.head_dim
        self._norms = layer.input_layernorm, layer.post_attention_layernorm
        self._qkv = _weights((query, key, value), fused=fused)
        self._out = attention.o_proj.weight, attention.o_proj.bias
        self._gate_up = _weights((mlp.gate_proj, mlp.up_proj), fused=fused)
        self._down = mlp.down_proj.weight, mlp.down_proj.bias
        self._head_norm: Tensor | None = None  # (H+K)D, Qwen3's norm of each query and key head
        if hasattr(attention, "q_norm"):
            heads = query.out_features // attention.head_dim
            norms = (
                attention.q_norm.weight.expand(heads, -1),
                attention.k_norm.weight.expand(self.key_heads, -1),
            )
            self._head_norm = torch.cat(norms)

    def qkv(self, x_NE: Tensor, rotation: Tensor) -> Tensor:
        """Queries, keys (both rotated) and values of the layer's input, shape N(H+2K)D."""
        normed = _normed(x_NE, self._norms[0])
        parts = [linear(normed, weight, bias) for weight, bias in self._qkv]
        heads = (torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]).unflatten(1, (-1, self.head_width))
        rotated, values = heads.split((heads.shape[1] - self.key_heads, self.key_heads), dim=1)
        if self._head_norm is not None:
            eps = self._norms[0].variance_epsilon
            rotated = F.rms_norm(rotated, rotated.shape[-1:], None, eps) * self._head_norm
        real, imaginary = rotated.float().chunk(2, dim=-1)
        pairs = torch.view_as_real(torch.complex(real, imaginary) * rotation)
        return torch.cat((pairs.flatten(-2).to(values.dtype), values), dim=1)

    def finish(self, x_NE: Tensor, mixed: Tensor) -> Tensor:
        """The layer's input plus the attention output `mixed`, of shape N(HD), plus the gated feed-forward's."""
        x_NE = x_NE + linear(mixed, *self._out)
        normed = _normed(x_NE, self._norms[1])
        parts = [linear(normed, weight, bias) for weight, bias in self._gate_up]
        gate, up = parts if len(parts) > 1 else parts[0].chunk(2, dim=1)
        return x_NE + linear(F.silu(gate) * up, *self._down)


def _weights(layers: Sequence[nn.Linear], *, fused: bool) -> list[tuple[Tensor, Tensor | None]]:
    """Weight and bias of each layer, or of all in one."""
    if not fused:
        return [(layer.weight, layer.bias) for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return [(torch.cat([layer.weight for layer in layers]), torch.cat(biases) if biases else None)]


def _normed(x: Tensor, norm: Any) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon)


def hidden_states(
    model: PreTrainedModel,
    layers: Sequence[Layer],
    tokens_N: Tensor,
    positions_N: Tensor,
    attend: Callable[[int, Tensor], Tensor],
) -> Tensor:
    """Final hidden states of N tokens, shape NE; `attend(layer, qkv)` maps N(H+2K)D to N(HD)."""
    body, count = model.model, len(tokens_N)
    like = torch.empty(0, dtype=torch.float32, device=positions_N.device)
    cos, sin = body.rotary_emb(like, padded(positions_N)[None])
    half = cos.shape[-1] // 2
    # exp(i·angle) for each position and rotary pair, times the attention factor, shape N1(D/2); and half of the scale
    rotation = (
        torch.complex(cos[0, :, None, :half], sin[0, :, None, :half])
        * body.layers[0].self_attn.scaling ** 0.5
    )
    x_NE = F.embedding(padded(tokens_N), body.embed_tokens.weight)
    for index, layer in enumerate(layers):
        x_NE = layer.finish(x_NE, padded(attend(index, layer.qkv(x_NE, rotation)[:count])))
    return _normed(x_NE[:count], body.norm)


def packed_hidden_states(
    model: PreTrainedModel, tokens_RS: Tensor, positions_RS: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Final hidden states of R rows on a CPU, RSE; `mask` (R, 1, S, S) is true where a query attends, None: causal.

    Gradients reach the module's parameters, of which nothing is copied.
    """
    rows, width = tokens_RS.shape
    layers = [Layer(layer, fused=False) for layer in model.model.layers]
    if positions_RS is None:
        positions_RS = torch.arange(width).repeat(rows, 1)
    bias = None if mask is None else torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)

    def attend(_layer: int, qkv: Tensor) -> Tensor:
        return attended(qkv, rows, layers[0].key_heads, bias)[0]

    states_NE = hidden_states(model, layers, tokens_RS.flatten(), positions_RS.flatten(), attend)
    return states_NE.view(rows, width, -1)


def attended(
    qkv: Tensor, rows: int, key_heads: int, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention within rows of equal length, N(H+2K)D to N(HD); also their keys and values, by row and head.

    `bias` is added to the scores; None: each position attends to itself and those before.
    """
    by_head = qkv.unflatten(0, (rows, -1)).transpose(1, 2)
    query, key, value = by_head.split((by_head.shape[1] - 2 * key_heads, key_heads, key_heads), dim=1)
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, is_causal=bias is None, scale=1.0, enable_gqa=True
    )
    return mixed.transpose(1, 2).reshape(len(qkv), -1), key, value
