"""Next-token logits in batches: a fast decoder for Llama-family models, and one for any other causal model.

A *row* is one response being written. Decoders compute *slots*: rows in blocks of equal width whose rows share one
prompt, so that a block reads the prompt's keys and values once. A block that has fewer rows than the width is filled
by repeating one of its rows; what such a filler slot yields is ignored.

`LlamaDecoder` works on the transformers module's own parameters. Copies (query/key/value and gate/up as one matrix
each) are the only weights held here and are retaken by `refresh`. Invariant: after `refresh` the logits are those of
the module's forward up to float rounding. `FallbackDecoder` uses the module's own forward.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from prorl.learn.linear import FEWEST_ROWS, padded, prepared
from prorl.learn.llama import Attend, Layer, attended, hidden_states, rotations
from prorl.local.attention import PAD_TO, AttentionCache
from prorl.rollout.pipeline import grouped

# on a CPU, whose cache holds no more, and on a GPU: bounds the activations of prompt computation, not its result
_PROMPT_TOKENS_AT_ONCE = (512, 2**14)
# prompt positions whose attention costs a block as much as one more slot costs; measured on a 3M-parameter model
_POSITIONS_PER_SLOT = 400
_NEEDED = ("input_ids", "attention_mask", "position_ids", "past_key_values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Slots in block order: `rows[s]` the row of slot s, `live[s]` false for fillers."""

    rows: tuple[int, ...]
    live: tuple[bool, ...]
    block_prompts: tuple[int, ...]


def pack(row_prompts: Sequence[int], width: int) -> Layout:
    """Blocks of `width` slots, rows of one prompt together, in order of first appearance.

    >>> pack([0, 0, 0, 1], width=2).rows
    (0, 1, 2, 2, 3, 3)
    """
    rows: list[int] = []
    live: list[bool] = []
    block_prompts: list[int] = []
    for prompt, members in grouped(range(len(row_prompts)), row_prompts.__getitem__).items():
        fillers = -len(members) % width
        rows += members + members[-1:] * fillers
        live += [True] * len(members) + [False] * fillers
        block_prompts += [prompt] * ((len(members) + fillers) // width)
    return Layout(rows=tuple(rows), live=tuple(live), block_prompts=tuple(block_prompts))


def best_width(row_prompts: Sequence[int], block_cost: float, *, least: int = 1) -> int:
    """The block width, from `least` on, of least work: a slot costs 1, to read a block's prompt `block_cost`."""
    counts = Counter(row_prompts)

    def blocks(width: int) -> int:
        return sum(-(-count // width) for count in counts.values())

    widths = range(least, max(least, *counts.values()) + 1)
    return min(widths, key=lambda width: blocks(width) * (width + block_cost))


class LlamaDecoder:
    """Next-token logits of a model that `unsupported_reason` accepts; its fused weights are a copy."""

    def __init__(self, model: PreTrainedModel, *, pad_id: int) -> None:
        self._model = model
        self._pad_id = pad_id
        self.refresh()

    @torch.inference_mode()
    def refresh(self) -> None:
        """Retake the fused weights from the module."""
        head = self._model.lm_head
        # Frees the old copies before the new ones are made.
        self._layers: list[Layer] = []
        self._head: Callable[[Tensor], Tensor] = head
        self._layers = [Layer(layer, fused=True) for layer in self._model.model.layers]
        self._head = prepared(head.weight, head.bias)

    @torch.inference_mode()
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[LlamaDecoding, Tensor]:
        """Compute prompts once; the decoding and the logits that follow each prompt, shape PV."""
        first = self._layers[0]
        head = self._model.lm_head.weight
        # by padded length, so that what is computed for a prompt is its own
        buckets = grouped(range(len(prompts)), lambda index: -(-len(prompts[index]) // PAD_TO) * PAD_TO)
        prompt_kv = head.new_zeros(
            len(self._layers), 2, len(prompts), first.key_heads, max(buckets), first.head_width
        )
        lengths_P = torch.tensor([len(prompt) for prompt in prompts], device=head.device)
        logits_PV = head.new_empty(len(prompts), len(head))
        for longest, members in buckets.items():
            at_once = max(1, _PROMPT_TOKENS_AT_ONCE[head.is_cuda] // longest)
            for some in (members[begin : begin + at_once] for begin in range(0, len(members), at_once)):
                chosen = torch.tensor(some, device=head.device)
                fillers = {index: [self._pad_id] * (longest - len(prompts[index])) for index in some}
                filled = [[*prompts[index], *fillers[index]] for index in some]
                tokens_PL = torch.tensor(filled, device=head.device)
                logits_PV[chosen] = self._prompt_logits(tokens_PL, lengths_P[chosen], chosen, prompt_kv)
        groups = self._model.model.layers[0].self_attn.num_key_value_groups
        cache = AttentionCache(prompt_kv, lengths_P, groups, partial(rotations, self._model))
        return LlamaDecoding(self, cache), logits_PV

    def _prompt_logits(
        self, tokens_PL: Tensor, lengths_P: Tensor, chosen_P: Tensor, kv_out: Tensor
    ) -> Tensor:
        """Logits after each prompt; its keys and values go to `chosen_P` of the caches."""
        prompts, longest = tokens_PL.shape
        rotation = rotations(self._model, torch.arange(longest, device=tokens_PL.device)).repeat(prompts, 1)

        def attend(layer: int, pairs: Tensor, values: Tensor) -> Tensor:
            # padding is on the right, so the causal mask alone hides it from every true position
            mixed, *key_value = attended(pairs, values, rotation, prompts)
            for kept, computed in zip(kv_out[layer], key_value, strict=True):
                kept[chosen_P, :, :longest] = computed
            return mixed

        hidden = hidden_states(self._model, self._layers, tokens_PL.flatten(), attend)
        last_P = torch.arange(prompts, device=hidden.device) * longest + lengths_P - 1
        return self.logits(hidden[last_P])

    def next_logits(self, tokens_S: Tensor, attend: Attend) -> Tensor:
        """Logits after one more token per slot, shape SV."""
        hidden = hidden_states(self._model, self._layers, padded(tokens_S), attend)
        return self.logits(hidden)[: len(tokens_S)]

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits of final hidden states."""
        return self._head(padded(hidden))[: len(hidden)]


class LlamaDecoding:
    """Responses to some prompts under way, all at the same number of tokens."""

    def __init__(self, decoder: LlamaDecoder, cache: AttentionCache) -> None:
        self._decoder = decoder
        self._cache = cache

    @torch.inference_mode()
    def arrange(self, row_prompts: Sequence[int], sources: Sequence[int] | None) -> Layout:
        """Lay out rows anew: row i answers prompt `row_prompts[i]` and goes on from slot `sources[i]`.

        `sources` is None for the first layout, before any token. Rows not named are dropped.
        """
        least = -(-FEWEST_ROWS // self._cache.groups)
        width = best_width(row_prompts, self._cache.longest / _POSITIONS_PER_SLOT, least=least)
        layout = pack(row_prompts, width)
        kept = sources and [sources[row] for row in layout.rows]
        self._cache.arrange(layout.block_prompts, width, kept)
        return layout

    @torch.inference_mode()
    def step(self, tokens_S: Tensor) -> Tensor:
        """Append one token per slot; the logits of the next, shape SV."""
        self._cache.extend()
        return self._decoder.next_logits(tokens_S, self._cache.attend)


class FallbackDecoder:
    """Next-token logits by the module's own forward and `DynamicCache`, for every model that `LlamaDecoder` refuses.

    Prompts are padded on the left as `generate` does, every row holds its own copy of the prompt's cache, and blocks
    are one slot wide.
    """

    def __init__(self, model: PreTrainedModel, *, pad_id: int) -> None:
        accepted = inspect.signature(model.forward).parameters
        if missing := [name for name in _NEEDED if name not in accepted]:
            raise ValueError(
                f"{type(model).__name__} cannot be decoded in batches: its forward takes no {' or '.join(missing)}."
            )
        layers = DynamicCache(config=model.config).layers
        if any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers):
            raise ValueError(
                f"{type(model).__name__} cannot be decoded in batches: it has layers that are no softmax attention"
            )
        self._model = model
        self._pad_id = pad_id
        # without it a model computes, and keeps, logits at every prompt position
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    def refresh(self) -> None:
        """Nothing to do: the module's parameters are read in place."""

    @torch.inference_mode()
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[FallbackDecoding, Tensor]:
        """Compute prompts once; the decoding and the logits that follow each prompt, shape PV."""
        longest = max(map(len, prompts))
        device = self._model.get_input_embeddings().weight.device
        fillers = [longest - len(prompt) for prompt in prompts]
        padded = [[*[self._pad_id] * count, *prompt] for count, prompt in zip(fillers, prompts, strict=True)]
        tokens_PL = torch.tensor(padded, device=device)
        columns_L = torch.arange(longest, device=device)
        mask_PL = (columns_L >= torch.tensor(fillers, device=device)[:, None]).long()
        cache = DynamicCache(config=self._model.config)
        logits_PV = self.forward(tokens_PL, mask_PL, cache)
        return FallbackDecoding(self, cache, mask_PL), logits_PV

    def forward(self, tokens_RN: Tensor, mask_RL: Tensor, cache: DynamicCache) -> Tensor:
        """Next-token logits after the last N columns of a left-padded context of L columns, shape RV."""
        positions_RL = (mask_RL.cumsum(-1) - 1).clamp_(min=0)
        training = [module for module in self._model.modules() if module.training]
        self._model.eval()  # neither dropout nor gradient checkpointing, which drops the cache
        try:
            output = self._model(
                input_ids=tokens_RN,
                attention_mask=mask_RL,
                position_ids=positions_RL[:, -tokens_RN.shape[1] :],
                past_key_values=cache,
                use_cache=True,
                **self._options,
            )
        finally:
            # A layer may be in training mode in a model that is not: the learner's, to checkpoint activations.
            for module in training:
                module.training = True
        logits: Tensor = output.logits[:, -1]
        return logits


class FallbackDecoding:
    """As `LlamaDecoding`."""

    def __init__(self, decoder: FallbackDecoder, cache: DynamicCache, mask_PL: Tensor) -> None:
        self._decoder = decoder
        self._cache = cache
        self._mask_RL = mask_PL

    @torch.inference_mode()
    def arrange(self, row_prompts: Sequence[int], sources: Sequence[int] | None) -> Layout:
        """As `LlamaDecoding.arrange`."""
        layout = pack(row_prompts, width=1)
        origins = row_prompts if sources is None else sources
        kept = torch.tensor([origins[row] for row in layout.rows], device=self._mask_RL.device)
        self._cache.batch_select_indices(kept)
        self._mask_RL = self._mask_RL[kept]
        return layout

    @torch.inference_mode()
    def step(self, tokens_S: Tensor) -> Tensor:
        """Append one token per slot; the logits of the next, shape SV."""
        self._mask_RL = torch.cat((self._mask_RL, self._mask_RL.new_ones(len(tokens_S), 1)), dim=-1)
        return self._decoder.forward(tokens_S[:, None], self._mask_RL, self._cache)


Decoder = LlamaDecoder | FallbackDecoder
Decoding = LlamaDecoding | FallbackDecoding
