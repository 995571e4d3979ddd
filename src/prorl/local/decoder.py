"""Batched decoding of Llama-family models on the transformers module's own parameters.

Fused copies (query/key/value and gate/up as one matrix each) are the only weights held here and are
retaken by `refresh`; everything else reads the module's parameters in place. Invariant: after `refresh` the logits
are those of the module's forward up to float rounding.

Two liberties leave attention scores unchanged: query and key coordinates are reordered so that a rotary pair is
adjacent, which makes rotary embedding one complex product, and queries are scaled by 1/sqrt(D) in their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from prorl.local.attention_cache import AttentionCache
from prorl.local.fused_layer import FusedLayer
from prorl.local.layout import Decoding, Layout, best_width, pack

_CLASSES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
# the frequencies of the other kinds depend on the sequence length
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
# bounds the activations of prompt computation, not its result
_PROMPT_TOKENS_AT_ONCE = 16384
# prompt positions whose attention costs a block as much as one more slot costs; measured on a 3M-parameter model
_POSITIONS_PER_SLOT = 400


def unsupported_reason(model: PreTrainedModel) -> str | None:
    """Why `LlamaDecoder` cannot decode this model, or None if it can."""
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
    if any(type(linear) is not torch.nn.Linear for linear in _projections(model)):
        return "some of its projections are not plain linear layers"
    if len({(weight.device, weight.dtype) for weight in model.parameters()}) > 1:
        return "its parameters differ in device or dtype"
    return None


def _projections(model: PreTrainedModel) -> list[torch.nn.Module]:
    projections: list[torch.nn.Module] = [model.lm_head]
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        projections += [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
        projections += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    return projections


class LlamaDecoder:
    """Next-token logits of a Llama, Qwen2 or Qwen3 model; implements `layout.Decoder`."""

    def __init__(self, model: PreTrainedModel, *, pad_id: int) -> None:
        if reason := unsupported_reason(model):
            raise ValueError(f"LlamaDecoder cannot decode this model: {reason}; use FallbackDecoder.")
        self._model = model
        self._pad_id = pad_id
        self._layers: list[FusedLayer] = []
        self.refresh()

    @torch.inference_mode()
    def refresh(self) -> None:
        """Retake the fused weights from the module."""
        self._layers = []  # frees the old copies before the new ones are made
        self._layers = [FusedLayer.of(layer) for layer in self._model.model.layers]

    @torch.inference_mode()
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Decoding, Tensor]:
        """Compute prompts once; the decoding and the logits that follow each prompt, shape PV."""
        first = self._layers[0]
        lengths = [len(prompt) for prompt in prompts]
        longest = max(lengths)
        embedding = self._model.model.embed_tokens.weight
        shape = (2, len(prompts), first.key_heads, longest, first.head_width)
        prompt_kv = [embedding.new_empty(shape) for _ in self._layers]
        padded = [[*prompt, *[self._pad_id] * (longest - len(prompt))] for prompt in prompts]
        tokens_PL = torch.tensor(padded, device=embedding.device)
        lengths_P = torch.tensor(lengths, device=embedding.device)
        chunk = max(1, _PROMPT_TOKENS_AT_ONCE // longest)
        logits = [
            self._prompt_logits(
                tokens_PL[begin : begin + chunk],
                lengths_P[begin : begin + chunk],
                [kv[:, begin : begin + chunk] for kv in prompt_kv],
            )
            for begin in range(0, len(prompts), chunk)
        ]
        return LlamaDecoding(self, AttentionCache(prompt_kv, lengths), lengths_P), torch.cat(logits)

    def _prompt_logits(self, tokens_PL: Tensor, lengths_P: Tensor, kv_out: Sequence[Tensor]) -> Tensor:
        prompts, longest = tokens_PL.shape
        positions = torch.arange(longest, device=tokens_PL.device).repeat(prompts)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            heads = kv_out[layer].shape[2]
            by_head = qkv.unflatten(0, (prompts, longest)).transpose(1, 2)
            query, key, value = by_head.split((by_head.shape[1] - 2 * heads, heads, heads), dim=1)
            kv_out[layer][0].copy_(key)
            kv_out[layer][1].copy_(value)
            # padding is on the right, so the causal mask alone hides it from every true position
            mixed = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=1.0, enable_gqa=True
            )
            return mixed.transpose(1, 2).reshape(prompts * longest, -1)

        hidden = self.hidden(tokens_PL.flatten(), positions, attend).view(prompts, longest, -1)
        last = hidden[torch.arange(prompts, device=hidden.device), lengths_P - 1]
        return self.logits(last)

    def hidden(
        self, tokens_N: Tensor, positions_N: Tensor, attend: Callable[[int, Tensor], Tensor]
    ) -> Tensor:
        """Final hidden states of N tokens; `attend(layer, qkv)` maps N(H+2K)D to N(HD)."""
        model = self._model.model
        rotation = self._rotation(positions_N)
        x = F.embedding(tokens_N, model.embed_tokens.weight)
        for index, layer in enumerate(self._layers):
            layer.add_attention_(x, attend(index, layer.qkv(x, rotation)))
            layer.add_mlp_(x)
        return F.rms_norm(x, x.shape[-1:], model.norm.weight, model.norm.variance_epsilon)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits of final hidden states."""
        head = self._model.lm_head
        return F.linear(hidden, head.weight, head.bias)

    def _rotation(self, positions_N: Tensor) -> Tensor:
        """exp(i·angle) for each position and rotary pair, times the attention factor, shape N1(D/2)."""
        like = torch.empty(0, dtype=torch.float32, device=positions_N.device)
        cos, sin = self._model.model.rotary_emb(like, positions_N[None])
        half = cos.shape[-1] // 2
        return torch.complex(cos[0, :, None, :half], sin[0, :, None, :half])


class LlamaDecoding:
    """Responses under way; implements `layout.Decoding`."""

    def __init__(self, decoder: LlamaDecoder, cache: AttentionCache, prompt_lengths_P: Tensor) -> None:
        self._decoder = decoder
        self._cache = cache
        self._prompt_lengths_P = prompt_lengths_P
        self._begin_S = prompt_lengths_P

    @torch.inference_mode()
    def arrange(self, row_prompts: Sequence[int], sources: Sequence[int] | None) -> Layout:
        """Lay out rows anew; see `layout.Decoding`."""
        longest = int(self._prompt_lengths_P.max())
        layout = pack(row_prompts, best_width(row_prompts, longest / _POSITIONS_PER_SLOT))
        self._cache.arrange(layout, sources and [sources[row] for row in layout.rows])
        prompts_B = torch.tensor(layout.block_prompts, device=self._prompt_lengths_P.device)
        self._begin_S = self._prompt_lengths_P[prompts_B].repeat_interleave(layout.width)
        return layout

    @torch.inference_mode()
    def step(self, tokens_S: Tensor) -> Tensor:
        """Append one token per slot; the logits of the next, shape SV."""
        positions_S = self._begin_S + self._cache.length
        self._cache.extend()
        return self._decoder.logits(self._decoder.hidden(tokens_S, positions_S, self._cache.attend))
