"""Attention of new tokens to cached keys and values, for decoding.

Attention is two pairs of batched matrix products around one softmax. On a CPU this is several times faster than
`scaled_dot_product_attention` at one query per sequence; the query heads of a group are folded into the query length,
so keys and values are never repeated. Invariant: the first `length` columns of every suffix are written.

Dimensions: P prompts, B blocks, W slots per block, S = B·W slots, H query heads, K key heads, G = H / K,
L padded prompt length, C capacity of a suffix, D head width, E model width, N tokens. A leading 2 is (keys, values).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

_FIRST_CAPACITY = 16
_SUMMED_AT_ONCE = 128  # positions: longer sums are cut by their length, so padding would change their bits


class AttentionCache:
    """All layers' keys and values, and the attention of one new token per slot to them."""

    def __init__(self, prompt_kv: Sequence[Tensor], lengths_P: Tensor) -> None:
        """`prompt_kv`: per layer, shape 2PKLD, prompts of these lengths padded on the right."""
        self._prompt_kv = prompt_kv
        self._lengths_P = lengths_P
        self._block_kv: list[Tensor] = []  # per layer, 2(BK)LD
        self._own_kv: list[Tensor] = []  # per layer, 2(BKW)CD
        self._heads, self.longest, self._head_width = prompt_kv[0].shape[2:]
        padded_PL = torch.arange(self.longest, device=lengths_P.device) >= lengths_P[:, None]
        # minus infinity on padding, zero elsewhere; added even where nothing is padded, as that gives other bits
        self._pad_bias_PL = prompt_kv[0].new_zeros(padded_PL.shape).masked_fill_(padded_PL, -torch.inf)
        self._pad_bias = self._pad_bias_PL  # (BK)1L
        self._begin_S = lengths_P
        self._width = self._blocks = 1
        self.length = 0

    def arrange(self, block_prompts: Sequence[int], width: int, slots: Sequence[int] | None) -> None:
        """Blocks of `width` slots for these prompts; slot s goes on from slot `slots[s]` of before, None at first."""
        prompts_B = torch.tensor(block_prompts, device=self._lengths_P.device)
        # index_select would copy every prompt; one block for each is the usual start
        one_each = list(block_prompts) == list(range(len(self._lengths_P)))
        self._block_kv = [
            (kv if one_each else kv.index_select(1, prompts_B)).flatten(1, 2) for kv in self._prompt_kv
        ]
        self._pad_bias = self._pad_bias_PL[prompts_B].repeat_interleave(self._heads, 0).unsqueeze(1)
        self._begin_S = self._lengths_P[prompts_B].repeat_interleave(width)
        kept = None if slots is None else self._suffix_index(slots, width)
        self._width, self._blocks = width, len(block_prompts)
        if kept is None:
            self._own_kv = [self._empty(kv, _FIRST_CAPACITY) for kv in self._prompt_kv]
            return
        for layer, old in enumerate(self._own_kv):
            self._own_kv[layer] = new = self._empty(old, old.shape[2])
            torch.index_select(old[:, :, : self.length], 1, kept, out=new[:, :, : self.length])

    def extend(self) -> Tensor:
        """Make room for one more token per slot, to be written by `attend` for each layer; their positions."""
        capacity = self._own_kv[0].shape[2]
        if self.length == capacity:
            for layer, old in enumerate(self._own_kv):
                self._own_kv[layer] = new = self._empty(old, 2 * capacity)
                new[:, :, :capacity].copy_(old)
        self.length += 1
        return self._begin_S + (self.length - 1)

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
        torch.add(shared, self._pad_bias, out=scores[..., :split])
        per_slot[..., split:].copy_(own)
        probs = torch.softmax(scores, -1)
        mixed = torch.bmm(probs[..., : min(split, _SUMMED_AT_ONCE)], prompt_values[:, :_SUMMED_AT_ONCE])
        for begin in range(_SUMMED_AT_ONCE, split, _SUMMED_AT_ONCE):
            end = min(split, begin + _SUMMED_AT_ONCE)
            mixed.baddbmm_(probs[..., begin:end], prompt_values[:, begin:end])
        mixed.view(query.shape[0] * heads * width, group, depth).baddbmm_(
            probs.view_as(per_slot)[..., split:], own_values
        )
        return mixed.view(blocks, heads, width, group * depth).transpose(1, 2).reshape(blocks * width, -1)

    def _empty(self, like: Tensor, capacity: int) -> Tensor:
        return like.new_empty(2, self._blocks * self._heads * self._width, capacity, self._head_width)

    def _suffix_index(self, slots: Sequence[int], new_width: int) -> Tensor:
        """Where the suffixes of `slots` lie now, in the order (block, head, slot) of the new layout."""
        slots_S = torch.tensor(slots, device=self._lengths_P.device)
        block_S = slots_S.div(self._width, rounding_mode="floor")
        head_K = torch.arange(self._heads, device=slots_S.device)
        first_SK = (block_S[:, None] * self._heads + head_K) * self._width + (slots_S % self._width)[:, None]
        return first_SK.view(-1, new_width, self._heads).transpose(1, 2).reshape(-1)
