"""What a wave and a decoder agree on: rows, slots and blocks, and the two protocols of decoding.

A *row* is one response being written. Decoders compute *slots*: rows in blocks of equal width whose rows share
one prompt, so that a block reads the prompt's keys and values once. A block that has fewer rows than the
width is filled by repeating one of its rows; what such a filler slot yields is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Slots in block order: `width` slots per block, `rows[s]` the row of slot s, `live[s]` false for fillers."""

    width: int
    rows: tuple[int, ...]
    live: tuple[bool, ...]
    block_prompts: tuple[int, ...]


class Decoding(Protocol):
    """Responses to some prompts, all at the same number of tokens."""

    def arrange(self, row_prompts: Sequence[int], sources: Sequence[int] | None) -> Layout:
        """Lay out rows anew: row i answers prompt `row_prompts[i]` and goes on from slot `sources[i]`.

        `sources` is None for the first layout, before any token. Rows not named are dropped.
        """

    def step(self, tokens_S: Tensor) -> Tensor:
        """Append one token per slot; the logits of the next, shape SV."""


class Decoder(Protocol):
    """Next-token logits of one model, with cached keys and values."""

    def refresh(self) -> None:
        """Take over weights that changed in place in the module."""

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Decoding, Tensor]:
        """Compute prompts once; the decoding and the logits that follow each prompt, shape PV."""


def pack(row_prompts: Sequence[int], width: int) -> Layout:
    """Blocks of `width` slots, rows of one prompt together, in order of first appearance.

    >>> pack([0, 0, 0, 1], width=2).rows
    (0, 1, 2, 2, 3, 3)
    """
    rows_of: dict[int, list[int]] = {}
    for row, prompt in enumerate(row_prompts):
        rows_of.setdefault(prompt, []).append(row)
    rows: list[int] = []
    live: list[bool] = []
    block_prompts: list[int] = []
    for prompt, members in rows_of.items():
        fillers = -len(members) % width
        rows += members + members[-1:] * fillers
        live += [True] * len(members) + [False] * fillers
        block_prompts += [prompt] * ((len(members) + fillers) // width)
    return Layout(width=width, rows=tuple(rows), live=tuple(live), block_prompts=tuple(block_prompts))


def best_width(row_prompts: Sequence[int], block_cost: float) -> int:
    """The block width of least work, where a slot costs 1 and reading a prompt for a block costs `block_cost`."""
    counts: dict[int, int] = {}
    for prompt in row_prompts:
        counts[prompt] = counts.get(prompt, 0) + 1

    def work(width: int) -> float:
        blocks = sum(-(-count // width) for count in counts.values())
        return blocks * (width + block_cost)

    return min(range(1, max(counts.values()) + 1), key=work)
