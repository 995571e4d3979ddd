"""Keys and values of a wave: computed once per prompt, and one growing suffix per slot.

Attention is two pairs of batched matrix products around one softmax. On a CPU this is several times faster
than `scaled_dot_product_attention` at one query per sequence; the query heads of a group are folded into the
query length, so keys and values are never repeated. Invariant: the first `length` columns of every suffix
are written.

Dimensions: P prompts, B blocks, W slots per block, S = B·W slots, H query heads, K key heads, G = H / K,
L padded prompt length, C capacity of a suffix, D head width. A leading 2 is (keys, values).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from prorl.local.layout import Layout

_FIRST_CAPACITY = 16


class AttentionCache:
    """All layers' keys and values, and the attention of one new token per slot to them."""

    def __init__(self, prompt_kv: Sequence[Tensor], prompt_lengths: Sequence[int]) -> None:
        """`prompt_kv`: per layer, shape 2PKLD, prompts padded on the right."""
        self._prompt_kv = prompt_kv
        self._block_kv: list[Tensor] = []  # per layer, 2(BK)LD
        self._own_kv: list[Tensor] = []  # per layer, 2(BKW)CD
        self._heads, longest, self._head_width = prompt_kv[0].shape[2:]
        self._pad_bias_PL = _pad_bias(prompt_lengths, longest, like=prompt_kv[0])
        self._pad_bias: Tensor | None = None  # (BK)1L, None where no prompt is padded
        self._width = 1
        self._blocks = 0
        self.length = 0

    def arrange(self, layout: Layout, slots: Sequence[int] | None) -> None:
        """Take over a layout whose slot s goes on from the present slot `slots[s]`; None before any token."""
        device = self._prompt_kv[0].device
        prompts_B = torch.tensor(layout.block_prompts, device=device)
        # index_select would copy every prompt; one block for each is the usual start
        one_each = layout.block_prompts == tuple(range(self._prompt_kv[0].shape[1]))
        self._block_kv = [
            (kv if one_each else kv.index_select(1, prompts_B)).flatten(1, 2) for kv in self._prompt_kv
        ]
        if self._pad_bias_PL is not None:
            bias_BL = self._pad_bias_PL[prompts_B]
            self._pad_bias = bias_BL.repeat_interleave(self._heads, 0).unsqueeze(1)
        kept = None if slots is None else self._suffix_index(torch.tensor(slots, device=device), layout.width)
        self._width = layout.width
        self._blocks = len(layout.block_prompts)
        if kept is None:
            self._own_kv = [self._empty(kv, _FIRST_CAPACITY) for kv in self._prompt_kv]
            return
        for layer, old in enumerate(self._own_kv):
            self._own_kv[layer] = new = self._empty(old, old.shape[2])
            torch.index_select(old[:, :, : self.length], 1, kept, out=new[:, :, : self.length])

    def extend(self) -> None:
        """Make room for one more token per slot; `attend` then writes it for each layer."""
        capacity = self._own_kv[0].shape[2]
        if self.length == capacity:
            for layer, old in enumerate(self._own_kv):
                self._own_kv[layer] = new = self._empty(old, 2 * capacity)
                new[:, :, :capacity].copy_(old)
        self.length += 1

    def attend(self, layer: int, qkv: Tensor) -> Tensor:
        """Write the newest keys and values and attend: `qkv` S(H+2K)D, queries already scaled, to S(HD)."""
        blocks, width, heads, depth = self._blocks, self._width, self._heads, self._head_width
        qkv = qkv.unflatten(0, (blocks, width))
        own_kv = self._own_kv[layer]
        newest = own_kv.view(2, blocks, heads, width, -1, depth)[..., self.length - 1, :]
        queries_BWHD, kv_BWCD = qkv.split((qkv.shape[2] - 2 * heads, 2 * heads), dim=2)
        newest.permute(1, 3, 0, 2, 4).copy_(kv_BWCD.unflatten(2, (2, heads)))
        query = queries_BWHD.unflatten(2, (heads, -1)).transpose(1, 2).contiguous()  # BKWGD
        group = query.shape[3]
        prompt_keys, prompt_values = self._block_kv[layer]
        own_keys, own_values = own_kv[:, :, : self.length]

        shared = torch.bmm(query.view(blocks * heads, width * group, depth), prompt_keys.transpose(1, 2))
        own = torch.bmm(query.view(blocks * heads * width, group, depth), own_keys.transpose(1, 2))
        split = shared.shape[2]
        scores = shared.new_empty(blocks * heads, width * group, split + self.length)
        per_slot = scores.view(blocks * heads * width, group, split + self.length)
        if self._pad_bias is None:
            scores[..., :split].copy_(shared)
        else:
            torch.add(shared, self._pad_bias, out=scores[..., :split])
        per_slot[..., split:].copy_(own)
        probs = torch.softmax(scores, -1)
        mixed = torch.bmm(probs[..., :split], prompt_values)
        mixed.view(query.shape[0] * heads * width, group, depth).baddbmm_(
            probs.view_as(per_slot)[..., split:], own_values
        )
        return mixed.view(blocks, heads, width, group * depth).transpose(1, 2).reshape(blocks * width, -1)

    def _empty(self, like: Tensor, capacity: int) -> Tensor:
        suffixes = self._blocks * self._heads * self._width
        return like.new_empty(2, suffixes, capacity, self._head_width)

    def _suffix_index(self, slots_S: Tensor, new_width: int) -> Tensor:
        """Where the suffixes of `slots_S` lie now, in the order (block, head, slot) of the new layout."""
        block_S = slots_S.div(self._width, rounding_mode="floor")
        head_K = torch.arange(self._heads, device=slots_S.device)
        first_SK = (block_S[:, None] * self._heads + head_K) * self._width + (slots_S % self._width)[:, None]
        return first_SK.view(-1, new_width, self._heads).transpose(1, 2).reshape(-1)


def _pad_bias(lengths: Sequence[int], longest: int, *, like: Tensor) -> Tensor | None:
    """Minus infinity on padding, zero elsewhere, shape PL; None where there is no padding."""
    if min(lengths) == longest:
        return None
    columns = torch.arange(longest, device=like.device)
    padded = columns >= torch.tensor(lengths, device=like.device)[:, None]
    return torch.zeros(padded.shape, dtype=like.dtype, device=like.device).masked_fill_(padded, -torch.inf)
