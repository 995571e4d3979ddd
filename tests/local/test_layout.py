"""Layouts keep every row exactly once, in blocks of one prompt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prorl.local.decoder import best_width, pack

row_prompts = st.lists(st.integers(0, 5), min_size=1, max_size=40)


@given(row_prompts, st.integers(1, 9))
def test_every_row_lives_in_exactly_one_slot_of_a_block_of_its_prompt(prompts: list[int], width: int) -> None:
    layout = pack(prompts, width)
    living = [row for row, live in zip(layout.rows, layout.live, strict=True) if live]
    assert sorted(living) == list(range(len(prompts)))
    assert len(layout.rows) == width * len(layout.block_prompts)
    for slot, row in enumerate(layout.rows):
        assert prompts[row] == layout.block_prompts[slot // width]


@given(row_prompts)
def test_width_one_needs_no_fillers(prompts: list[int]) -> None:
    assert all(pack(prompts, 1).live)


def test_equal_groups_share_their_prompt_and_ragged_groups_avoid_fillers() -> None:
    assert best_width([0] * 8 + [1] * 8, block_cost=0.1) == 8
    assert best_width([0] * 8 + [1], block_cost=0.1) == 1
    assert best_width([0] * 8 + [1], block_cost=100.0) == 8
