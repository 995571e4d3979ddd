"""One learner over several ranks is the same learner: real processes, gloo, float32."""

import dataclasses
import math
import pickle
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prorl.learn.optim import FILE
from prorl.learn.packing import Row, deal, deal_batch, deal_rounds, gather_rows, lockstep
from prorl.learn.parallel import WEIGHTS
from prorl.types import PromptActions
from support.learners import COMPILING, FUSED, HPARAMS, PLAIN, action_of, batch, learner, with_advantage
from support.ranks import ranks
from support.sharded import memory_to_begin, on_ranks, probe, train, write_when_there_is_room

TIGHT = dataclasses.replace(HPARAMS, clip_low=0.05, clip_high=0.05, grad_clip=0.05, learning_rate=1.0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with ranks(2, tmp_path_factory.mktemp("pair")) as everywhere:
        yield everywhere


def flat(weights):
    return [value for values in weights.values() for value in values]


def assert_agree(found, expected):
    weights, stats = found
    assert weights.keys() == expected[0].keys()
    assert flat(weights) == pytest.approx(flat(expected[0]), rel=0, abs=1e-6)
    for one, other in zip(stats, expected[1], strict=True):
        assert without_positions(one) == pytest.approx(without_positions(other), rel=1e-4, abs=1e-6)


def without_positions(stats):
    return {name: value for name, value in stats.items() if name != "tokens"}  # padding differs


def long_and_short():
    """One response longer than all others together, so that the split cannot be even."""
    long = action_of(range(1, 29), -3.4, 0.7)
    return (PromptActions(prompt=(5, 6), actions=(long,)), *batch(groups=2, samples=1))


def single():
    """One row in all: the other rank has nothing."""
    return batch(groups=1, samples=1)


CASES = {
    "even": ([batch(seed=seed) for seed in range(2)], {}, {}),
    "uneven": ([long_and_short(), batch(seed=1)], {}, {}),
    "an empty rank": ([single(), batch(seed=1, groups=1, samples=1)], {}, {}),
    "many micro-batches": ([batch(seed=seed) for seed in range(2)], {}, {"micro_batch_tokens": 25}),
    "untied": ([batch(), long_and_short()], {"tie_word_embeddings": False}, {}),
    "checkpointed": ([batch(), long_and_short()], {}, {"activation_checkpointing": True, "logits_elements": 100}),
    "offloaded": ([batch()], {}, {"offload": True}),
    "fused": ([single(), batch(seed=1)], {}, {"fused_head": True, "logits_elements": 100}),
    "compiled": ([batch(), long_and_short()], {}, {"compile": True, "activation_checkpointing": True}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "old_logprobs"),
    [
        *((case, "engine") for case in CASES if case not in ("fused", "compiled")),
        pytest.param("fused", "learner", marks=FUSED),
        pytest.param("compiled", "engine", marks=COMPILING),
        ("uneven", "learner"),
        ("untied", "learner"),
    ],
)
def test_two_ranks_update_as_one_does(pair, case, old_logprobs):
    batches, model, settings = CASES[case]
    hparams = dataclasses.replace(TIGHT, mismatch="sequence_mask", updates_per_step=2)
    work = {
        "model": model,
        "settings": {**PLAIN, **settings, "old_logprobs": old_logprobs},
        "steps": [(data, hparams) for data in batches],
    }
    first, second = pair(on_ranks, work)
    expected = train(**work, alone=True)
    assert first == second
    assert_agree(first, expected)
    if len(batches) > 1:
        assert expected[1][-1]["kl"] > 0
        assert expected[1][-1]["grad_norm"] > hparams.grad_clip


@pytest.mark.parametrize("settings", [{}, {"offload": True}], ids=["plain", "offloaded"])
def test_at_birth_a_rank_holds_one_whole_model_and_not_the_reference_as_well(pair, settings):
    assert all(1 <= models < 1.1 for models in pair(memory_to_begin, settings))


@pytest.mark.parametrize("settings", [{}, {"offload": True}], ids=["plain", "offloaded"])
def test_ranks_that_make_room_in_between_learn_the_same(pair, settings):
    work = {"model": {}, "settings": settings, "steps": STEPS}
    assert pair(on_ranks, work | {"turns": True}) == pair(on_ranks, work)


def test_bfloat16_products_over_ranks_stay_close(pair):
    work = {"model": {}, "settings": PLAIN, "steps": [(batch(), HPARAMS)]}
    low = pair(on_ranks, work | {"settings": {**PLAIN, "dtype": "bfloat16"}})[0]
    high = train(**work, alone=True)
    assert low[1][0]["loss"] == pytest.approx(high[1][0]["loss"], abs=0.01)
    assert flat(low[0]) == pytest.approx(flat(high[0]), rel=0, abs=1e-3)
    assert flat(low[0]) != flat(high[0])


def test_what_one_rank_cannot_compute_all_refuse(pair):
    broken = (with_advantage(batch()[0], math.nan), *batch(seed=3)[:1])
    steps = [(batch(seed=1), HPARAMS), (broken, HPARAMS)]
    first, second = pair(on_ranks, {"model": {}, "settings": PLAIN, "steps": steps})
    assert first[1][-1]["skipped"] == second[1][-1]["skipped"] == 1
    assert_agree((first[0], first[1][:1]), train({}, PLAIN, steps[:1], alone=True))


def test_all_ranks_say_the_same_about_a_response(pair):
    expected = learner().score((3, 1, 4), (1, 5, 9))
    for found in pair(probe, (3, 1, 4), (1, 5, 9)):
        assert found == pytest.approx(expected, abs=1e-6)


STEPS = [(batch(seed=seed), HPARAMS) for seed in range(3)]


@pytest.mark.parametrize(("before", "after"), [("one", "two"), ("two", "one"), ("two", "two")])
def test_a_state_goes_on_over_another_number_of_ranks(pair, tmp_path, before, after):
    """The stored numbers are exact; what is computed from them afterwards agrees to rounding."""
    run = {"one": lambda work: train(**work, alone=True), "two": lambda work: pair(on_ranks, work)[0]}
    common = {"model": {}, "settings": PLAIN | {"betas": (0.9, 0.95)}}
    saved, _ = run[before]({**common, "steps": STEPS[:2], "save": tmp_path})
    loaded, _ = run[after]({**common, "steps": [], "restore": tmp_path})
    assert loaded == saved
    whole = train(**common, steps=STEPS, alone=True)
    rest = run[after]({**common, "steps": STEPS[2:], "restore": tmp_path})
    assert_agree(rest, (whole[0], whole[1][2:]))


def test_a_state_that_changed_hands_twice_is_the_same(pair, tmp_path):
    common = {"model": {}, "settings": {}}
    train(**common, steps=STEPS[:1], alone=True, save=tmp_path / "first")
    pair(on_ranks, {**common, "steps": [], "restore": tmp_path / "first", "save": tmp_path / "second"})
    train(**common, steps=[], alone=True, restore=tmp_path / "second", save=tmp_path / "third")
    for name in (WEIGHTS, "config.json"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "third" / name).read_bytes()
    first, third = (torch.load(tmp_path / folder / FILE)["state"] for folder in ("first", "third"))
    assert first.keys() == third.keys()
    for index, moments in first.items():
        assert moments.keys() == third[index].keys()
        assert all(torch.equal(moment, third[index][name]) for name, moment in moments.items())


def test_a_state_of_a_learner_that_has_not_learnt_yet(pair, tmp_path):
    pair(on_ranks, {"model": {}, "settings": PLAIN, "steps": [], "save": tmp_path})
    weights, _ = train({}, PLAIN, [], alone=True, restore=tmp_path)
    assert weights == train({}, PLAIN, [], alone=True)[0]


def test_a_disk_that_is_full_for_one_rank_holds_up_nobody(pair, tmp_path):
    assert pair(write_when_there_is_room, tmp_path) == [["no space left", "written"], ["written", "written"]]


def test_weights_of_another_model_are_refused(tmp_path):
    train({}, PLAIN, [], alone=True, save=tmp_path)
    with pytest.raises(ValueError, match="does not hold the weights"):
        train({"num_hidden_layers": 1}, PLAIN, [], alone=True, restore=tmp_path)


@pytest.mark.slow
def test_a_state_of_two_ranks_goes_on_over_three(pair, tmp_path):
    common = {"model": {}, "settings": {}}
    saved = pair(on_ranks, {**common, "steps": STEPS[:1], "save": tmp_path})[0]
    with ranks(3, tmp_path) as everywhere:
        results = everywhere(on_ranks, {**common, "steps": [], "restore": tmp_path})
    assert all(result[0] == saved[0] for result in results)


def rows_of(lengths):
    return [Row(prompt=(1,) * length, actions=()) for length in lengths]


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 6))
def test_rows_are_dealt_evenly_and_each_once(lengths, ranks):
    hands = deal(rows_of(lengths), ranks)
    assert sorted(row.positions for hand in hands for row in hand) == sorted(lengths)
    loads = [sum(row.positions for row in hand) for hand in hands]
    assert max(loads) - min(loads) <= max(lengths, default=0)
    assert deal(rows_of(lengths), ranks) == hands


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 6))
def test_rounds_hold_each_row_once_and_the_largest_passes_first(lengths, ranks):
    plans = deal_rounds(rows_of(lengths), ranks, budget=60)
    assert sorted(row.positions for plan in plans for part in plan for row in part) == sorted(lengths)
    assert lockstep(plans) == lockstep(plans[:1])  # the first rank has the largest of each round


def test_ranks_wait_for_each_other_as_little_as_either_way_allows():
    """Many rows of very different lengths in rounds; a few short ones, which one pass would hold, on all ranks."""
    draw = Random(0)
    many = rows_of([3 + min(82, int(draw.lognormvariate(3.4, 0.8))) for _ in range(2048)])
    by_rank = [gather_rows(dealt, budget=164) for dealt in deal(many, 32)]
    work = sum(row.positions for row in many) / 32
    assert work / lockstep(by_rank) < 0.92
    assert work / lockstep(deal_rounds(many, 32, budget=164)) > 0.96
    group = PromptActions(prompt=(1, 2), actions=tuple(action_of(range(9)) for _ in range(8)))
    hands = deal_batch((group,), updates=1, ranks=4, budget=4000, pair_cost=None)
    assert [sum(map(len, share.passes)) for (share,) in hands] == [2, 2, 2, 2]


@given(st.integers(0, 5), st.integers(1, 4), st.integers(1, 4), st.sampled_from([None, 0.001]))
def test_each_action_is_dealt_to_one_rank_and_all_make_as_many_passes(groups, updates, ranks, pair_cost):
    data = batch(groups=groups)
    hands = deal_batch(data, updates=updates, ranks=ranks, budget=25, pair_cost=pair_cost)
    assert len(hands) == ranks
    dealt = [
        (row.prompt, action)
        for hand in hands
        for share in hand
        for rows in share.passes
        for row in rows
        for action in row.actions
    ]
    wanted = [(group.prompt, action) for group in data for action in group.actions]
    assert sorted(dealt, key=repr) == sorted(wanted, key=repr)
    for shares in zip(*hands, strict=True):  # of one mini-batch
        assert len({len(share.passes) for share in shares}) == 1
        assert len({(share.action_tokens, share.positions) for share in shares}) == 1
    assert sum(share.action_tokens for share in hands[0]) == sum(group.action_tokens for group in data)
    assert len(hands[0]) == min(updates, groups)


def test_a_rank_is_sent_its_own_rows_only():
    long = PromptActions(prompt=(1, 2), actions=tuple(action_of(range(1000)) for _ in range(8)))
    hands = deal_batch((long,), updates=1, ranks=4, budget=4000, pair_cost=None)
    whole = len(pickle.dumps(long))
    assert all(whole / 4 <= len(pickle.dumps(hand)) < 1.1 * whole / 4 for hand in hands)
