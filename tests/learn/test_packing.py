import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.learn.packing import Row, Tiles, gather_rows, micro_batch, plan_rows
from prorl.types import Action, PromptActions, log_probs, token_ids
from support.learners import action_of, seen_in

CPU = torch.device("cpu")


def action(*tokens, advantage=1.0):
    logps = log_probs(-0.1 * token for token in tokens)
    return Action(tokens=token_ids(tokens), engine_logps=logps, advantage=advantage)


def group(prompt, *lengths):
    actions = tuple(action(*range(10 * k, 10 * k + length)) for k, length in enumerate(lengths, start=1))
    return PromptActions(prompt=tuple(range(prompt)), actions=actions)


groups_of_any_shape = st.lists(
    st.builds(
        lambda prompt, lengths: group(prompt, *lengths),
        st.integers(1, 12),
        st.lists(st.integers(0, 9), max_size=6),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(groups_of_any_shape, st.integers(1, 80), st.sampled_from([None, 0.0, 0.01, 1.0]))
def test_every_action_is_in_exactly_one_row_and_micro_batches_keep_the_budget(groups, budget, pair_cost):
    rows = plan_rows(groups, budget=budget, pair_cost=pair_cost)
    batches = gather_rows(rows, budget=budget)
    wanted = [(g.prompt, a) for g in groups for a in g.actions if a.tokens]
    assert [(row.prompt, a) for row in rows for a in row.actions] == wanted
    assert sorted(map(id, rows)) == sorted(id(row) for batch in batches for row in batch)
    for batch in batches:
        shared = any(len(row.actions) > 1 for row in batch)  # computed without padding
        positions = [row.positions for row in batch]
        assert (sum(positions) if shared else len(batch) * max(positions)) <= budget or (
            len(batch) == 1 and len(batch[0].actions) == 1
        )


@settings(max_examples=60, deadline=None)
@given(
    groups_of_any_shape.filter(lambda groups: any(g.action_tokens for g in groups)),
    st.sampled_from([None, 0.0]),
)
def test_tensors_predict_every_action_token_from_its_own_context(groups, pair_cost):
    rows = plan_rows(groups, budget=200, pair_cost=pair_cost)
    batch = micro_batch(rows, pad_id=99, device=CPU)
    width = batch.tokens_RS.shape[1]
    mask = seen_in(batch.tiles) if batch.tiles else torch.ones(width, width, dtype=torch.bool).tril()
    contexts = [
        [*row.prompt, *a.tokens[:t]] for row in rows for a in row.actions for t in range(len(a.tokens))
    ]
    for source, context in zip(batch.sources_N.tolist(), contexts, strict=True):
        row, at = divmod(source, width)
        seen = mask[at].nonzero()[:, 0]
        assert batch.tokens_RS[row, seen].tolist() == context
        if batch.tiles:
            assert batch.tiles.texts_N[seen].tolist() == list(range(len(context)))
    actions = [a for row in rows for a in row.actions]
    assert batch.targets_N.tolist() == [token for a in actions for token in a.tokens]
    assert batch.mask_BT.sum(1).tolist() == [len(a.tokens) for a in actions]
    expected = [logp for a in actions for logp in a.engine_logps]
    torch.testing.assert_close(batch.engine_logps_BT[batch.mask_BT], torch.tensor(expected))
    assert not batch.advantages_BT[~batch.mask_BT].any()


def test_a_shared_row_by_hand():
    (row,) = plan_rows([group(2, 3, 1, 2)], budget=100, pair_cost=0.0)
    batch = micro_batch([row], pad_id=99, device=CPU)
    assert batch.tokens_RS.tolist() == [[0, 1, 10, 11, 30]]
    assert batch.tiles.texts_N.tolist() == [0, 1, 2, 3, 2]
    assert batch.sources_N.tolist() == [1, 2, 3, 1, 1, 4]
    assert batch.targets_N.tolist() == [10, 11, 12, 20, 30, 31]
    assert seen_in(batch.tiles).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


def test_sharing_switches_itself_off_for_long_responses():
    def shares(length, budget=10**6):
        groups = [PromptActions(prompt=(1,) * 30, actions=(action_of(range(length)),) * 8)]
        return [len(row.actions) for row in plan_rows(groups, budget=budget, pair_cost=0.001)]

    assert shares(12) == [8]
    assert shares(12, budget=30 + 3 * 11) == [3, 3, 2]
    assert shares(244) == [8]  # half of 244² pairs cost 29.8 positions
    assert shares(245) == [1] * 8


def test_short_rows_do_not_pad_up_to_long_ones():
    rows = plan_rows([group(5, 96, 90, 10, 9)], budget=1000, pair_cost=None)
    assert [[row.positions for row in part] for part in gather_rows(rows, budget=1000)] == [
        [100, 94],
        [14, 13],
    ]


def test_rows_that_share_prompts_are_computed_without_padding():
    rows = plan_rows([group(5, 60, 60), group(5, 9, 9)], budget=144, pair_cost=0.0)
    assert [[row.positions for row in part] for part in gather_rows(rows, budget=144)] == [[123, 21]]


def test_the_keys_of_a_long_text_are_not_copied_for_many_short_ones():
    unlike = [group(1000, 1000, 2), *[group(10, *[4] * 8)] * 400]
    behind_one_prompt = [group(4000, *[3] * 300)]
    for groups, count in (unlike, 2), (behind_one_prompt, 5):
        parts = gather_rows(plan_rows(groups, budget=16_384, pair_cost=1e-9), budget=16_384)
        assert len(parts) == count
        assert max(len(Tiles.of(part).keys_M) for part in parts) < 2**19


def test_rows_of_equal_length_keep_their_order():
    rows = [Row(prompt=(k,), actions=(action(1, 2),)) for k in range(4)]
    assert gather_rows(rows, budget=4) == [rows[:2], rows[2:]]
