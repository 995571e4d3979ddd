"""Decoding of any other causal language model through its own transformers forward and `DynamicCache`.

Correct first: prompts are padded on the left as `generate` does, every row holds its own copy of the prompt's
cache, and blocks are one slot wide. The interface, sampling and order of rows are those of the native decoder.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from prorl.local.layout import Decoding, Layout, pack

_NEEDED = ("input_ids", "attention_mask", "position_ids", "past_key_values")


class FallbackDecoder:
    """Next-token logits by the module's forward; implements `layout.Decoder`."""

    def __init__(self, model: PreTrainedModel, *, pad_id: int) -> None:
        accepted = inspect.signature(model.forward).parameters
        if missing := [name for name in _NEEDED if name not in accepted]:
            raise ValueError(
                f"{type(model).__name__} cannot be decoded in batches: its forward takes no {' or '.join(missing)}."
            )
        self._model = model
        self._pad_id = pad_id
        # without it a model computes, and keeps, logits at every prompt position
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    def refresh(self) -> None:
        """Nothing to do: the module's parameters are read in place."""

    @torch.inference_mode()
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Decoding, Tensor]:
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
        with _evaluating(self._model):
            output = self._model(
                input_ids=tokens_RN,
                attention_mask=mask_RL,
                position_ids=positions_RL[:, -tokens_RN.shape[1] :],
                past_key_values=cache,
                use_cache=True,
                **self._options,
            )
        logits: Tensor = output.logits[:, -1]
        return logits


class FallbackDecoding:
    """Responses under way; implements `layout.Decoding`."""

    def __init__(self, decoder: FallbackDecoder, cache: DynamicCache, mask_PL: Tensor) -> None:
        self._decoder = decoder
        self._cache = cache
        self._mask_RL = mask_PL

    @torch.inference_mode()
    def arrange(self, row_prompts: Sequence[int], sources: Sequence[int] | None) -> Layout:
        """Lay out rows anew; see `layout.Decoding`."""
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


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch off dropout and gradient checkpointing (which drops the cache) for a while."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
