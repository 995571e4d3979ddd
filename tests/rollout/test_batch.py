"""Dynamic sampling, and from judged groups to rewards, advantages and records for people."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.rollout.batch import (
    SHOWN_ERRORS,
    SHOWN_GROUPS,
    SHOWN_ROLLOUTS,
    RolloutBatch,
    collect,
    make_batch,
    sample_records,
    shaped_rewards,
)
from prorl.stopwatch import Stopwatch
from support.defaults import some_hparams
from support.events import rollout_stats
from support.rollouts import BROKEN, SILENT, group, problem, response, scripted_sampler

HPARAMS = some_hparams(
    prompts_per_step=2, samples_per_prompt=2, response_limit=100, max_draw_factor=4.0, truncated_scale=1.0
)
TEACHES, EASY, HARD, ERROR = ("1", "0"), ("1", "1"), ("0", "0"), ("1", BROKEN)
scripts = st.lists(st.sampled_from([TEACHES, EASY, HARD, ERROR]), min_size=1, max_size=8)


def rollout_batch(script, hparams=HPARAMS, *, cursor=0, share=0.5, shuffle=None, domains=("math",)):
    """Collect from a data order that repeats the script."""
    sampler = scripted_sampler(lambda draw, sample: script[draw % len(script)][sample], shuffle=shuffle)
    return collect(
        sampler,
        lambda draw: problem(draw, domain=domains[draw % len(domains)]),
        hparams,
        cursor=cursor,
        expected_share=share,
        seed=1,
        clock=Stopwatch(),
    )


def draws(groups):
    return [group.draw for group in groups]


@given(scripts, st.integers(0, 20), st.floats(0, 1), st.floats(0, 3), st.integers(0, 99))
def test_the_first_groups_that_teach_are_taken_in_draw_order(script, cursor, share, margin, shuffle):
    """Neither the size of the waves nor the order in which responses finish changes what is learned from."""
    hparams = replace(HPARAMS, wave_margin=margin)
    result = rollout_batch(script, hparams, cursor=cursor, share=share, shuffle=shuffle)
    budget = range(cursor, cursor + 8)
    teaching = [draw for draw in budget if script[draw % len(script)] is TEACHES][:2]
    assert draws(result.groups) == teaching
    assert result.cursor == (teaching[-1] + 1 if len(teaching) == 2 else budget.stop)
    assert draws(result.consumed) == list(range(cursor, result.cursor))


def test_surplus_is_counted_and_comes_again():
    result = rollout_batch([TEACHES], share=0.25)
    assert (result.cursor, result.rollout_stats.draws, result.rollout_stats.surplus) == (2, 2, 6)
    assert result.rollout_stats.rollouts == 16
    assert draws(rollout_batch([TEACHES], cursor=result.cursor).groups) == [2, 3]


@pytest.mark.parametrize(("share", "generated"), [(1.0, 2), (0.5, 4), (0.2, 8), (0.0, 8)])
def test_the_first_wave_follows_the_share_expected_to_teach(share, generated):
    stats = rollout_batch([TEACHES], share=share).rollout_stats
    assert stats.draws + stats.surplus == generated


@pytest.mark.parametrize("factor", [1.0, 1.2, 2.5, 4.0])
def test_the_budget_ends_a_search_without_signal(factor):
    result = rollout_batch([HARD], replace(HPARAMS, max_draw_factor=factor), cursor=5)
    assert result.groups == ()
    assert result.cursor == 5 + math.ceil(2 * factor)
    assert result.rollout_stats.informative_share == 0.0


def test_a_group_with_a_verifier_error_is_dropped_and_never_scored():
    stats = rollout_batch([ERROR, TEACHES]).rollout_stats
    assert (stats.errors, stats.accepted, stats.easy, stats.hard) == (2, 2, 0, 0)
    assert stats.score == 0.5
    assert stats.informative_share == 1.0


def test_the_off_value_accepts_every_group_but_those_with_errors():
    off = replace(HPARAMS, min_spread=0.0, prompts_per_step=3)
    assert draws(rollout_batch([HARD, ERROR, EASY, ("0.5", "0.5")], off).groups) == [0, 2, 3]


def test_rejected_groups_are_told_apart_by_their_mean():
    """Consolation scores are not informative."""
    stats = rollout_batch([EASY, ("0.5", "0.5"), ("0", "0.05"), ("0.6", "0.6")]).rollout_stats
    assert (stats.easy, stats.hard) == (4, 4)


def test_the_rollout_stats_counts_everything_consumed():
    script = [("1", "0"), ("1", "1"), (SILENT, "0.5")]
    stats = rollout_batch(script, domains=("math", "code", "math")).rollout_stats
    assert (stats.draws, stats.accepted, stats.easy) == (3, 2, 1)
    assert stats.score == pytest.approx(3.5 / 6)
    assert stats.domain_scores == {"code": 1.0, "math": 0.375}
    assert stats.reward == pytest.approx(1.5 / 4)
    assert stats.unanswered == pytest.approx(1 / 6)
    lengths = [len(response(answer)) + 1 for answers in script for answer in answers]
    assert stats.length == pytest.approx(sum(lengths) / 6)
    assert stats.truncated == 0.0


def test_truncation_is_counted_and_costs_reward_but_not_score():
    short = replace(HPARAMS, response_limit=3, truncated_scale=0.5)
    stats = rollout_batch([("1", "0")], short).rollout_stats
    assert (stats.truncated, stats.length) == (1.0, 3.0)
    assert stats.score == 0.0  # a cut answer is no answer
    fits = replace(HPARAMS, response_limit=len(response("1")), truncated_scale=0.5)
    stats = rollout_batch([("1", "0")], fits).rollout_stats
    assert (stats.score, stats.reward) == (0.5, 0.25)


def test_nothing_drawn_is_nothing_counted():
    stats = rollout_batch([TEACHES], replace(HPARAMS, prompts_per_step=0)).rollout_stats
    assert (stats.draws, stats.score, stats.length, stats.domain_scores) == (0, None, None, {})


OFF = {"length_weight": 0.0, "truncated_scale": 1.0}
WHOLE = len(response("1")) + 1  # tokens of a response that ended itself
answers = st.lists(st.sampled_from(["0", "0.25", "0.5", "1"]), min_size=2, max_size=4)


def rewards(answers, *, limit=1000, **hparams):
    shaped = shaped_rewards(
        group(answers, limit=limit), some_hparams(response_limit=limit, **(OFF | hparams))
    )
    return [pytest.approx(reward) for reward in shaped]


@given(answers)
def test_the_off_values_leave_the_scores_alone(answers):
    assert shaped_rewards(group(answers), some_hparams(**OFF)) == [float(answer) for answer in answers]


def eta(length, limit):
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


@pytest.mark.parametrize(("scale", "right"), [(0.0, 0.0), (0.5, 0.5 - 0.1)])
def test_a_right_response_that_was_cut_off_is_not_worth_less_than_a_wrong_one(scale, right):
    only = {"length_weight": 0.1, "length_applies_to": "correct", "truncated_scale": scale}
    assert rewards(["1", "0"], limit=WHOLE - 1, **only) == [right, 0]


@given(st.lists(answers, min_size=1, max_size=4), st.sampled_from(["token", "sequence", "group"]))
def test_a_batch_keeps_every_rollout_in_its_place(scripts, level):
    groups = [group(script, draw) for draw, script in enumerate(scripts)]
    batch = make_batch(groups, some_hparams(**OFF, advantage_level=level))
    for before, after in zip(groups, batch, strict=True):
        assert after.prompt == before.prompt
        for rollout, action in zip(before.rollouts, after.actions, strict=True):
            assert action.tokens == rollout.completion.tokens
            assert action.engine_logps == rollout.completion.logps
    assert sum(prompt.action_tokens for prompt in batch) == sum(
        len(r.completion.tokens) for g in groups for r in g.rollouts
    )


@given(st.lists(answers, min_size=1, max_size=4))
def test_the_advantages_of_the_tokens_of_a_batch_have_mean_zero(scripts):
    batch = make_batch([group(script) for script in scripts], some_hparams(**OFF))
    actions = [action for prompt in batch for action in prompt.actions]
    total = sum(action.advantage * len(action.tokens) for action in actions)
    assert total == pytest.approx(0, abs=1e-6 * sum(len(action.tokens) for action in actions))


def test_advantages_come_from_the_shaped_rewards():
    same = group(["1", "1"])
    even = make_batch([same], some_hparams(**OFF))[0].actions
    assert [action.advantage for action in even] == [0, 0]
    longer = group(["1", "1.0000"])
    hparams = some_hparams(response_limit=50, **(OFF | {"length_weight": 0.1}))
    short, long = make_batch([longer], hparams)[0].actions
    assert short.advantage > 0 > long.advantage


def test_the_level_chooses_whose_deviation_scales():
    wide, narrow = group(["1", "0"]), group(["0.5", "0.25"])
    by_group = make_batch([wide, narrow], some_hparams(**OFF, advantage_level="group"))
    by_batch = make_batch([wide, narrow], some_hparams(**OFF, advantage_level="sequence"))
    assert by_group[0].actions[0].advantage == pytest.approx(by_group[1].actions[0].advantage, rel=1e-5)
    ratio = by_batch[0].actions[0].advantage / by_batch[1].actions[0].advantage
    assert ratio == pytest.approx(4)


def test_the_best_of_k_counts_scores_and_not_the_length_term():
    costs = {"length_weight": 0.1, "length_eta_min": -1.0, "length_eta_max": -1.0}
    of = group(["1", "0", "0", "0"])
    assert shaped_rewards(of, some_hparams(**(OFF | costs), pass_at_k=2)) == pytest.approx(
        [1 - 0.1, 1 / 3 - 0.1, 1 / 3 - 0.1, 1 / 3 - 0.1]
    )


def test_pass_at_k_draws_past_problems_that_k_tries_nearly_always_solve():
    often, once = ("1", "1", "1", "0"), ("1", "0", "0", "0")
    for k, taken in ((1, 0), (3, 1)):
        hparams = some_hparams(**OFF, samples_per_prompt=4, prompts_per_step=1, pass_at_k=k)
        assert draws(rollout_batch([often, once], hparams).groups) == [taken]


def test_no_groups_make_an_empty_batch():
    assert make_batch([], some_hparams()) == ()


def records(consumed, accepted=()):
    rollout_batch = RolloutBatch(
        groups=tuple(accepted), consumed=tuple(consumed), cursor=99, version=0, rollout_stats=rollout_stats()
    )
    return sample_records(7, rollout_batch)


def test_a_record_says_what_was_asked_answered_and_judged():
    used, easy = group(["1", "0"], draw=5), group(["1", "1"], draw=6)
    first, second, *rejected = records([used, easy], accepted=[used])
    assert first == {
        "step": 7,
        "draw": 5,
        "task": "score",
        "domain": "math",
        "level": 1,
        "trained": True,
        "prompt": "problem 5",
        "answer": "",
        "response": response("1"),
        "score": 1.0,
        "status": "ok",
        "note": "",
        "tokens": len(response("1")) + 1,
        "finish": "stop",
    }
    assert (second["response"], second["status"], second["trained"]) == (response("0"), "wrong", True)
    assert [(record["draw"], record["trained"]) for record in rejected] == [(6, False)] * 2


def test_a_large_step_shows_a_few_of_its_first_groups_as_plain_json():
    shown = records([group(["1", "0", "1"], draw) for draw in range(50)])
    assert len(shown) == SHOWN_GROUPS * SHOWN_ROLLOUTS
    assert {record["draw"] for record in shown} == set(range(SHOWN_GROUPS))
    assert json.loads(json.dumps(shown)) == shown


def test_beside_them_are_some_later_groups_that_could_not_be_judged_with_the_reason():
    answers = {draw: ["1", "0", BROKEN] for draw in range(20, 30)}
    shown = records([group(answers.get(draw, ["1", "0"]), draw) for draw in range(50)])
    later = [record for record in shown if record["draw"] >= SHOWN_GROUPS]
    assert [record["draw"] for record in later[::SHOWN_ROLLOUTS]] == list(range(20, 20 + SHOWN_ERRORS))
    assert {record["note"] for record in later[::SHOWN_ROLLOUTS]} == {"the verifier failed"}
    assert len(later) == SHOWN_ERRORS * SHOWN_ROLLOUTS
