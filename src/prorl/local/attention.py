"""Attention of new tokens to cached keys and values, for decoding.

Attention is two pairs of batched matrix products around one softmax. On a CPU this is several times faster than
`scaled_dot_product_attention` at one query per sequence; the query heads of a group are folded into the query length,
so keys and values are never repeated. Invariant: the first `length` columns of every suffix are written, the others
zero. Small operations are half of a small model's time, so what layers share, and every view, is made once.

Dimensions: P prompts, B blocks, W slots per block, S = B·W slots, H query heads, K key heads, G = H / K, Y layers,
L padded prompt length, C capacity of a suffix, D head width, N tokens. A leading 2 is (keys, values).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from prorl.learn.linear import filled

# Positions that AVX-512 adds up side by side: prompts and suffixes are filled up to a multiple, lest bits change.
# Suffixes grow by so many, or an eighth: all of their capacity is computed, as products of matrices that follow each
# other in memory are up to three times as fast as with gaps between them.
PAD_TO = 16
_SUMMED_AT_ONCE = 128  # positions: longer sums are cut by their length, so padding would change their bits


class AttentionCache:
    """All layers' keys and values, and the attention of one new token per slot to them."""

    def __init__(
        self, prompt_kv: Tensor, lengths_P: Tensor, groups: int, rotations: Callable[[Tensor], Tensor]
    ) -> None:
        """`prompt_kv`: shape Y2PKLD, prompts of these lengths padded on the right.

        `groups`: query heads for each key head; `rotations`: factors of rotary pairs at positions, N to N(D/2).
        """
        self._prompt_kv = prompt_kv
        self._lengths_P = lengths_P
        self.groups = groups
        self._rotations = rotations
        self._heads, self.longest, self._head_width = prompt_kv.shape[3:]
        padded_PL = torch.arange(self.longest, device=lengths_P.device) >= lengths_P[:, None]
        # minus infinity on padding, zero elsewhere; added even where nothing is padded, as that gives other bits
        self._pad_bias_PL = prompt_kv.new_zeros(padded_PL.shape).masked_fill_(padded_PL, -torch.inf)
        # per layer, 2(BKW)CD
        self._own_kv = [kv.new_empty(2, 0, PAD_TO, self._head_width) for kv in prompt_kv]
        self._width = self._blocks = 1
        self.length = 0

    def arrange(self, block_prompts: Sequence[int], width: int, slots: Sequence[int] | None) -> None:
        """Blocks of `width` slots for these prompts; slot s goes on from slot `slots[s]` of before, None at first."""
        prompts_B = torch.tensor(block_prompts, device=self._lengths_P.device)
        # index_select would copy every prompt; one block for each is the usual start
        one_each = list(block_prompts) == list(range(len(self._lengths_P)))
        block_kv = self._prompt_kv if one_each else self._prompt_kv.index_select(2, prompts_B)
        keys, values = block_kv.flatten(2, 3).unbind(1)  # Y(BK)LD
        self._prompt_keys = keys.transpose(2, 3).unbind()
        self._prompt_values = [layer.split(_SUMMED_AT_ONCE, dim=1) for layer in values.unbind()]
        self._pad_bias = self._pad_bias_PL[prompts_B].repeat_interleave(self._heads, 0).unsqueeze(1)  # (BK)1L
        self._begin_S = self._lengths_P[prompts_B].repeat_interleave(width)
        kept = None if slots is None else self._suffix_index(slots, width)
        self._width, self._blocks = width, len(block_prompts)
        self._renew(self._own_kv[0].shape[2], kept)
        # Queries are written by slot and read by block or slot.
        shape = (self._blocks, self._heads, width, self.groups, self._head_width // 2)
        query = torch.empty(shape, dtype=torch.complex64, device=keys.device)
        self._query_BWKGR = query.transpose(1, 2)
        query_BKWGD = torch.view_as_real(query).flatten(-2)
        self._query_of_block = query_BKWGD.flatten(2, 3).flatten(0, 1)
        self._query_of_slot = query_BKWGD.flatten(0, 2)
        # Mixed values are written by block and read by slot, with rows of zeros after them.
        features = self._heads * self.groups * self._head_width
        self._mixed = keys.new_zeros(filled(self._blocks * width), features)
        mixed = self._mixed[: self._blocks * width].view(self._blocks, width, self._heads, -1)
        self._mixed_BKWE = mixed.transpose(1, 2)

    def extend(self) -> None:
        """Make room for one more token per slot, to be written by `attend` for each layer."""
        capacity = self._own_kv[0].shape[2]
        if self.length == capacity:
            self._renew(capacity + max(PAD_TO, capacity // 8 // PAD_TO * PAD_TO))
        rotation = self._table_CR.index_select(0, self._begin_S + self.length)
        self._rotation_BW1R = rotation.view(self._blocks, self._width, 1, -1)
        self._own_bias_C[self.length] = 0.0
        self.length += 1

    def _renew(self, capacity: int, kept: Tensor | None = None) -> None:
        """Suffixes of another capacity, or those of `kept`, and all that depends on their shape."""
        blocks, rows = self._blocks * self._heads, self._width * self.groups
        suffixes, length, depth = blocks * self._width, self.length, self._head_width
        for layer, old in enumerate(self._own_kv):
            self._own_kv[layer] = new = old.new_empty(2, suffixes, capacity, depth)
            new[:, :, length:].zero_()
            if kept is not None:
                torch.index_select(old[:, :, :length], 1, kept, out=new[:, :, :length])
            elif length:
                new[:, :, :length].copy_(old[:, :, :length])
        by_slot = [kv.view(2, self._blocks, self._heads, self._width, capacity, depth) for kv in self._own_kv]
        slots = [kv.transpose(2, 3).unbind() for kv in by_slot]  # BWKCD
        self._key_slots = [torch.view_as_complex(keys.unflatten(-1, (-1, 2))) for keys, _ in slots]
        self._value_slots = [values for _, values in slots]
        self._own = [(keys.transpose(1, 2), values) for keys, values in self._own_kv]
        positions = torch.arange(self.longest + capacity, device=self._lengths_P.device)
        self._table_CR = self._rotations(positions)
        self._own_bias_C = self._pad_bias.new_full((capacity,), -torch.inf)
        self._own_bias_C[:length] = 0.0
        scores = self._pad_bias.new_empty(2, blocks, rows, self.longest + capacity)
        self._scores, self._probs = scores.unbind()
        of_slot = scores.view(2, suffixes, self.groups, -1)[..., self.longest :]
        self._scores_of_slot, self._probs_of_slot = of_slot.unbind()
        self._scores_of_block = self._scores[..., : self.longest]
        self._probs_of_block = self._probs[..., : self.longest].split(_SUMMED_AT_ONCE, dim=2)

    def attend(self, layer: int, pairs: Tensor, values: Tensor) -> Tensor:
        """Write the newest keys and values and attend; S or more rows of `prorl.learn.llama.Attend`."""
        slots = (self._blocks, self._width)
        pairs_BWhR = pairs[: len(self._begin_S)].unflatten(0, slots)
        heads = pairs_BWhR.shape[2] - self._heads
        queries, keys = pairs_BWhR.split_with_sizes((heads, self._heads), dim=2)
        grouped = queries.unflatten(2, (self._heads, -1))
        torch.mul(grouped, self._rotation_BW1R.unsqueeze(2), out=self._query_BWKGR)
        newest = self.length - 1
        torch.mul(keys, self._rotation_BW1R, out=self._key_slots[layer].select(3, newest))
        self._value_slots[layer].select(3, newest).copy_(values[: len(self._begin_S)].unflatten(0, slots))
        shared = torch.bmm(self._query_of_block, self._prompt_keys[layer])
        torch.add(shared, self._pad_bias, out=self._scores_of_block)
        own_keys, own_values = self._own[layer]
        own = torch.bmm(self._query_of_slot, own_keys)
        torch.add(own, self._own_bias_C, out=self._scores_of_slot)
        torch.softmax(self._scores, -1, out=self._probs)
        first, *others = zip(self._probs_of_block, self._prompt_values[layer], strict=True)
        mixed = torch.bmm(*first)
        for part in others:
            mixed.baddbmm_(*part)
        mixed.view_as(self._query_of_slot).baddbmm_(self._probs_of_slot, own_values)
        self._mixed_BKWE.copy_(mixed.view(self._mixed_BKWE.shape))
        return self._mixed

    def _suffix_index(self, slots: Sequence[int], new_width: int) -> Tensor:
        """Where the suffixes of `slots` lie now, in the order (block, head, slot) of the new layout."""
        slots_S = torch.tensor(slots, device=self._lengths_P.device)
        block_S = slots_S.div(self._width, rounding_mode="floor")
        head_K = torch.arange(self._heads, device=slots_S.device)
        first_SK = (block_S[:, None] * self._heads + head_K) * self._width + (slots_S % self._width)[:, None]
        return first_SK.view(-1, new_width, self._heads).transpose(1, 2).reshape(-1)
