"""Dynamic sampling: what is drawn, kept, thrown away, and counted."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.rollout.batch import Harvest, collect
from prorl.stopwatch import Stopwatch
from support.defaults import some_knobs
from support.rollouts import BROKEN, SILENT, problem, response, scripted_worker

KNOBS = some_knobs(
    prompts_per_step=2, samples_per_prompt=2, response_limit=100, max_draw_factor=4.0, truncated_scale=1.0
)
TEACHES, EASY, HARD, ERROR = ("1", "0"), ("1", "1"), ("0", "0"), ("1", BROKEN)
scripts = st.lists(st.sampled_from([TEACHES, EASY, HARD, ERROR]), min_size=1, max_size=8)


def harvest(script, knobs=KNOBS, *, cursor=0, share=0.5, shuffle=None, domains=("math",)) -> Harvest:
    """Collect from a data order that repeats the script."""
    worker = scripted_worker(lambda draw, sample: script[draw % len(script)][sample], shuffle=shuffle)
    return collect(
        worker,
        lambda draw: problem(draw, domain=domains[draw % len(domains)]),
        knobs,
        cursor=cursor,
        expected_share=share,
        seed=1,
        clock=Stopwatch(),
    )


def draws(groups) -> list[int]:
    return [group.draw for group in groups]


@given(scripts, st.integers(0, 20), st.floats(0, 1), st.integers(0, 99))
def test_the_first_groups_that_teach_are_taken_in_draw_order(script, cursor, share, shuffle):
    """Neither the size of the waves nor the order in which responses finish changes what is learned from."""
    result = harvest(script, cursor=cursor, share=share, shuffle=shuffle)
    budget = range(cursor, cursor + 8)
    teaching = [draw for draw in budget if script[draw % len(script)] is TEACHES][:2]
    assert draws(result.groups) == teaching
    assert result.cursor == (teaching[-1] + 1 if len(teaching) == 2 else budget.stop)
    assert draws(result.consumed) == list(range(cursor, result.cursor))


@given(scripts, st.floats(0, 1), st.floats(0, 3))
def test_a_margin_draws_more_and_learns_from_the_same(script, share, margin):
    plain, wide = (harvest(script, replace(KNOBS, wave_margin=value), share=share) for value in (0.0, margin))
    assert (wide.groups, wide.cursor) == (plain.groups, plain.cursor)


@given(scripts, st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_steps_after_one_another_neither_skip_nor_repeat_a_draw(script, shares):
    cursor, consumed = 0, []
    for share in shares:
        result = harvest(script, cursor=cursor, share=share)
        consumed += draws(result.consumed)
        cursor = result.cursor
    assert consumed == list(range(cursor))


def test_surplus_is_counted_and_comes_again():
    result = harvest([TEACHES], share=0.25)
    assert (result.cursor, result.tally.draws, result.tally.surplus) == (2, 2, 6)
    assert result.tally.rollouts == 16
    assert draws(harvest([TEACHES], cursor=result.cursor).groups) == [2, 3]


@pytest.mark.parametrize(("share", "generated"), [(1.0, 2), (0.5, 4), (0.2, 8), (0.0, 8)])
def test_the_first_wave_follows_the_share_expected_to_teach(share, generated):
    tally = harvest([TEACHES], share=share).tally
    assert tally.draws + tally.surplus == generated


def test_a_share_near_zero_does_not_ask_for_the_whole_budget_at_once():
    tally = harvest([TEACHES], replace(KNOBS, max_draw_factor=1000.0), share=0.0).tally
    assert tally.draws + tally.surplus == 10


@pytest.mark.parametrize("factor", [1.0, 1.2, 2.5, 4.0])
def test_the_budget_ends_a_search_without_signal(factor):
    result = harvest([HARD], replace(KNOBS, max_draw_factor=factor), cursor=5)
    assert result.groups == ()
    assert result.cursor == 5 + math.ceil(2 * factor)
    assert result.tally.informative_share == 0.0


def test_a_budget_that_ends_half_way_leaves_what_was_found():
    assert draws(harvest([HARD, TEACHES, *[EASY] * 6]).groups) == [1]


def test_a_group_with_a_verifier_error_is_dropped_and_never_scored():
    tally = harvest([ERROR, TEACHES]).tally
    assert (tally.errors, tally.accepted, tally.easy, tally.hard) == (2, 2, 0, 0)
    assert tally.score == 0.5
    assert tally.informative_share == 1.0


def test_the_off_value_accepts_every_group_but_those_with_errors():
    off = replace(KNOBS, min_spread=0.0, prompts_per_step=3)
    assert draws(harvest([HARD, ERROR, EASY, ("0.5", "0.5")], off).groups) == [0, 2, 3]


def test_consolation_scores_do_not_teach():
    assert harvest([("0", "0.05")]).tally.hard == 8


def test_rejected_groups_are_told_apart_by_their_mean():
    tally = harvest([EASY, ("0.5", "0.5"), HARD, ("0.6", "0.6")]).tally
    assert (tally.easy, tally.hard) == (4, 4)


def test_the_tally_counts_everything_consumed():
    script = [("1", "0"), ("1", "1"), (SILENT, "0.5")]
    tally = harvest(script, domains=("math", "code", "math")).tally
    assert (tally.draws, tally.accepted, tally.easy) == (3, 2, 1)
    assert tally.score == pytest.approx(3.5 / 6)
    assert tally.domain_scores == {"code": 1.0, "math": 0.375}
    assert tally.reward == pytest.approx(1.5 / 4)
    assert tally.unanswered == pytest.approx(1 / 6)
    lengths = [len(response(answer)) + 1 for answers in script for answer in answers]
    assert tally.length == pytest.approx(sum(lengths) / 6)
    assert tally.truncated == 0.0


def test_truncation_is_counted_and_costs_reward_but_not_score():
    short = replace(KNOBS, response_limit=3, truncated_scale=0.5)
    tally = harvest([("1", "0")], short).tally
    assert (tally.truncated, tally.length) == (1.0, 3.0)
    assert tally.score == 0.0  # a cut answer is no answer
    fits = replace(KNOBS, response_limit=len(response("1")), truncated_scale=0.5)
    tally = harvest([("1", "0")], fits).tally
    assert (tally.score, tally.reward) == (0.5, 0.25)


def test_nothing_drawn_is_nothing_counted():
    tally = harvest([TEACHES], replace(KNOBS, prompts_per_step=0)).tally
    assert (tally.draws, tally.score, tally.length, tally.domain_scores) == (0, None, None, {})
