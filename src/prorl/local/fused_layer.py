"""One transformer layer with fused weights: the parts of a Llama layer on either side of attention.

Invariant: the fused copies equal the module's parameters as of `FusedLayer.of`; output projections and norms are
the module's own tensors. Dimensions: N tokens, E model width, H query heads, K key heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLayer:
    """Weights of one layer and what they compute."""

    input_norm: Tensor
    post_norm: Tensor
    norm_eps: float
    qkv_weight: Tensor  # ((H+2K)D)E
    qkv_bias: Tensor | None
    head_norm: Tensor | None  # (H+K)D, Qwen3's norm of each query and key head
    out_weight: Tensor
    out_bias: Tensor | None
    gate_up_weight: Tensor
    gate_up_bias: Tensor | None
    down_weight: Tensor
    down_bias: Tensor | None
    key_heads: int
    head_width: int

    @classmethod
    def of(cls, layer: Any) -> Self:
        """Fuse a decoder layer module of transformers (Llama, Qwen2 or Qwen3)."""
        attention, mlp = layer.self_attn, layer.mlp
        width = attention.head_dim
        scale = attention.scaling
        normed = hasattr(attention, "q_norm")
        # a head norm would undo a scaled weight, so there the scale goes into the norm's own weight
        query_scale = 1.0 if normed else scale
        weights, biases = [], []
        for linear, factor in ((attention.q_proj, query_scale), (attention.k_proj, 1.0)):
            weights.append(_pair_up(linear.weight, width) * factor)
            biases.append(None if linear.bias is None else _pair_up(linear.bias, width) * factor)
        weights.append(attention.v_proj.weight)
        biases.append(attention.v_proj.bias)
        head_norm = None
        key_heads = attention.k_proj.out_features // width
        if normed:
            query_heads = attention.q_proj.out_features // width
            query_norm = _pair_up(attention.q_norm.weight, width) * scale
            key_norm = _pair_up(attention.k_norm.weight, width)
            head_norm = torch.cat((query_norm.expand(query_heads, -1), key_norm.expand(key_heads, -1)))
        return cls(
            input_norm=layer.input_layernorm.weight,
            post_norm=layer.post_attention_layernorm.weight,
            norm_eps=layer.input_layernorm.variance_epsilon,
            qkv_weight=torch.cat(weights),
            qkv_bias=_cat_biases(biases),
            head_norm=head_norm,
            out_weight=attention.o_proj.weight,
            out_bias=attention.o_proj.bias,
            gate_up_weight=torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)),
            gate_up_bias=_cat_biases([mlp.gate_proj.bias, mlp.up_proj.bias]),
            down_weight=mlp.down_proj.weight,
            down_bias=mlp.down_proj.bias,
            key_heads=key_heads,
            head_width=width,
        )

    def qkv(self, x_NE: Tensor, rotation: Tensor) -> Tensor:
        """Queries, keys (both rotated) and values of the layer's input, shape N(H+2K)D."""
        normed = F.rms_norm(x_NE, x_NE.shape[-1:], self.input_norm, self.norm_eps)
        heads = F.linear(normed, self.qkv_weight, self.qkv_bias).view(len(x_NE), -1, self.head_width)
        rotated = heads[:, : -self.key_heads]
        if self.head_norm is not None:
            scaled = F.rms_norm(rotated, rotated.shape[-1:], None, self.norm_eps)
            torch.mul(scaled, self.head_norm, out=rotated)
        pairs = torch.view_as_complex(rotated.float().unflatten(-1, (-1, 2)))
        if rotated.dtype == torch.float32:
            pairs.mul_(rotation)  # a view: rotates `heads` in place
        else:
            rotated.copy_(torch.view_as_real(pairs * rotation).flatten(-2))
        return heads

    def add_attention_(self, x_NE: Tensor, mixed: Tensor) -> None:
        """Add the attention output to the residual stream in place; `mixed` has shape N(HD)."""
        x_NE.addmm_(mixed, self.out_weight.t())
        if self.out_bias is not None:
            x_NE.add_(self.out_bias)

    def add_mlp_(self, x_NE: Tensor) -> None:
        """Add the gated feed-forward output to the residual stream in place."""
        normed = F.rms_norm(x_NE, x_NE.shape[-1:], self.post_norm, self.norm_eps)
        gate, up = F.linear(normed, self.gate_up_weight, self.gate_up_bias).chunk(2, dim=-1)
        x_NE.addmm_(F.silu(gate, inplace=True).mul_(up), self.down_weight.t())
        if self.down_bias is not None:
            x_NE.add_(self.down_bias)


def _pair_up(rows: Tensor, width: int) -> Tensor:
    """Reorder each head's rows from (all first halves, all second halves) to adjacent rotary pairs."""
    halves = rows.view(-1, 2, width // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def _cat_biases(biases: list[Tensor | None]) -> Tensor | None:
    present = [bias for bias in biases if bias is not None]
    return torch.cat(present) if len(present) == len(biases) else None
