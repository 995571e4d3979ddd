"""From judged groups to rewards and advantages."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.rollout.batch import make_batch, shaped_rewards
from support.defaults import some_knobs
from support.rollouts import group, response

OFF = {"length_weight": 0.0, "truncated_scale": 1.0}
WHOLE = len(response("1")) + 1  # tokens of a response that ended itself
answers = st.lists(st.sampled_from(["0", "0.25", "0.5", "1"]), min_size=2, max_size=4)


def rewards(answers, *, limit=1000, **knobs):
    shaped = shaped_rewards(group(answers, limit=limit), some_knobs(response_limit=limit, **(OFF | knobs)))
    return [pytest.approx(reward) for reward in shaped]


@given(answers)
def test_the_off_values_leave_the_scores_alone(answers):
    assert shaped_rewards(group(answers), some_knobs(**OFF)) == [float(answer) for answer in answers]


def test_a_truncated_response_keeps_a_share_of_its_score():
    assert rewards(["1", "0"], limit=WHOLE - 1, truncated_scale=0.25) == [0.25, 0]
    assert rewards(["1", "0"], limit=WHOLE, truncated_scale=0.25) == [1, 0]


def eta(length: int, limit: int) -> float:
    return -1 + 0.5 * (1 + math.cos(math.pi * length / limit))


def test_length_costs_by_the_cosine():
    assert rewards(["1", "0"], limit=2 * WHOLE, length_weight=0.1) == [1 - 0.05, -0.05]
    assert rewards(["1"], limit=100, length_weight=0.1) == [1 + 0.1 * eta(WHOLE, 100)]


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("weight", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("limit", [WHOLE - 1, WHOLE])
def test_truncation_and_length_add_up_and_neither_switches_the_other_off(scale, weight, limit):
    expected = (scale if limit < WHOLE else 1.0) - weight
    assert rewards(["1"], limit=limit, truncated_scale=scale, length_weight=weight) == [expected]


def test_length_may_cost_correct_responses_only():
    shaped = rewards(["1", "0.5", "0"], limit=WHOLE, length_weight=0.1, length_applies_to="correct")
    assert shaped == [1 - 0.1, 0.5, 0]


@given(st.lists(answers, min_size=1, max_size=4), st.sampled_from(["token", "sequence", "group"]))
def test_a_batch_keeps_every_rollout_in_its_place(scripts, level):
    groups = [group(script, draw) for draw, script in enumerate(scripts)]
    batch = make_batch(groups, some_knobs(**OFF, advantage_level=level))
    for before, after in zip(groups, batch.groups, strict=True):
        assert after.prompt == before.prompt
        for rollout, action in zip(before.rollouts, after.actions, strict=True):
            assert action.tokens == rollout.completion.tokens
            assert action.engine_logps == rollout.completion.logps
    assert batch.action_tokens == sum(len(r.completion.tokens) for g in groups for r in g.rollouts)


@given(st.lists(answers, min_size=1, max_size=4))
def test_the_advantages_of_the_tokens_of_a_batch_have_mean_zero(scripts):
    batch = make_batch([group(script) for script in scripts], some_knobs(**OFF))
    actions = [action for prompt in batch.groups for action in prompt.actions]
    total = sum(action.advantage * len(action.tokens) for action in actions)
    assert total == pytest.approx(0, abs=1e-6 * batch.action_tokens)


def test_advantages_come_from_the_shaped_rewards():
    same = group(["1", "1"])
    even = make_batch([same], some_knobs(**OFF)).groups[0].actions
    assert [action.advantage for action in even] == [0, 0]
    longer = group(["1", "1.0000"])
    knobs = some_knobs(response_limit=50, **(OFF | {"length_weight": 0.1}))
    short, long = make_batch([longer], knobs).groups[0].actions
    assert short.advantage > 0 > long.advantage


def test_the_level_chooses_whose_deviation_scales():
    wide, narrow = group(["1", "0"]), group(["0.5", "0.25"])
    by_group = make_batch([wide, narrow], some_knobs(**OFF, advantage_level="group")).groups
    by_batch = make_batch([wide, narrow], some_knobs(**OFF, advantage_level="sequence")).groups
    assert by_group[0].actions[0].advantage == pytest.approx(by_group[1].actions[0].advantage, rel=1e-5)
    ratio = by_batch[0].actions[0].advantage / by_batch[1].actions[0].advantage
    assert ratio == pytest.approx(4)


def test_no_groups_make_an_empty_batch():
    assert make_batch([], some_knobs()).action_tokens == 0
