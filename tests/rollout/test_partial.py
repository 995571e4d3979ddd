"""Partial rollouts: a response is written over several steps, and is what it would be in one; nothing is lost."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.config.schema import SamplingConfig, SaveConfig
from prorl.control.events import Stepped
from prorl.control.state import fold
from prorl.rollout.batch import collect
from prorl.rollout.partial import IN_HAND, InHand
from prorl.stopwatch import Stopwatch
from support.defaults import planned, some_hparams, some_validations
from support.fake_backend import FakeRenderer
from support.fake_runs import PLAN, Answers, SolutionMixture, events, of, run_in, timeless
from support.rollouts import VERSION, problem, response, scripted_sampler

HPARAMS = some_hparams(prompts_per_step=2, samples_per_prompt=2, response_limit=100, max_draw_factor=4.0)
TEACHES, EASY = ("1", "0"), ("1", "1")
LONG = len(response("1")) + 1  # tokens of a response that earns something
PARTIAL = planned(PLAN, partial=20)


def steps(script, hparams, count, *, share=0.5):
    """Steps after one another on a data order that repeats the script, the policy's version growing."""
    sampler = scripted_sampler(lambda draw, sample: script[draw % len(script)][sample])
    cursor, in_hand, found = 0, (), []
    for step in range(count):
        sampler.engine.version = VERSION + step
        now = hparams(step) if callable(hparams) else hparams
        asked = {"cursor": cursor, "expected_share": share, "seed": 1, "clock": Stopwatch()}
        found.append(collect(sampler, problem, now, **asked, in_hand=in_hand))
        cursor, in_hand = found[-1].cursor, found[-1].in_hand
    return sampler, found


@given(
    st.lists(st.sampled_from([TEACHES, EASY]), min_size=1, max_size=5),
    st.integers(1, LONG + 5),
    st.floats(0.2, 1),
)
def test_every_draw_is_learned_from_or_rejected_once_with_the_text_it_has_in_one_piece(script, piece, share):
    _, found = steps(script, replace(HPARAMS, partial=piece), 5, share=share)
    consumed = [group for batch in found for group in batch.consumed]
    draws = [group.draw for group in consumed]
    waiting = [one.group.draw for one in found[-1].in_hand]
    assert sorted(draws + waiting) == list(range(found[-1].cursor))
    for group in consumed:
        assert not group.unfinished
        assert [rollout.completion.sample for rollout in group.rollouts] == [0, 1]
        for rollout, answer in zip(group.rollouts, script[group.draw % len(script)], strict=True):
            assert rollout.text == response(answer)
            assert len(rollout.completion.logps) == len(rollout.completion.tokens) == len(rollout.text) + 1
    assert {group.draw for batch in found for group in batch.groups} == {
        draw for draw in draws if script[draw % len(script)] is TEACHES
    }


def test_the_tokens_of_a_step_are_those_it_sampled():
    sampler, found = steps([TEACHES, EASY], replace(HPARAMS, partial=10), 4)
    asked = sum(request.samples * request.sampling.limit for request in sampler.engine.requests)
    told = sum(batch.rollout_stats.sampled_tokens for batch in found)
    assert 0 < told <= asked
    held = sum(len(one.tokens) for open_ in found[-1].in_hand for one in open_.group.unfinished)
    ended = [r.completion for b in found for g in b.consumed for r in g.rollouts]
    ended += [r.completion for open_ in found[-1].in_hand for r in open_.group.rollouts]
    assert told == held + sum(len(one.tokens) for one in ended)
    assert sum(batch.rollout_stats.rollouts for batch in found) == len(ended)


def test_nothing_is_surplus_and_the_oldest_policy_is_told():
    _, found = steps([TEACHES], replace(HPARAMS, partial=LONG - 1), 4, share=0.2)
    assert [batch.rollout_stats.surplus for batch in found] == [0] * 4
    assert found[0].rollout_stats.in_hand == len(found[0].in_hand) > 0
    assert [VERSION + step - batch.version for step, batch in enumerate(found)] == [0, 1, 2, 3]


def test_a_response_at_the_limit_is_cut_there_and_judged():
    _, (batch,) = steps([TEACHES], replace(HPARAMS, partial=7, response_limit=20), 1)
    finishes = {r.completion.finish for group in batch.consumed for r in group.rollouts}
    assert finishes == {"length"}
    assert {len(r.completion.tokens) for group in batch.consumed for r in group.rollouts} == {20}


@pytest.mark.parametrize("change", [{"response_limit": 50}, {"temperature": 0.5}, {"samples_per_prompt": 1}])
def test_what_was_begun_otherwise_is_begun_anew(change):
    before = replace(HPARAMS, partial=LONG - 1)
    sampler, found = steps([TEACHES], lambda step: replace(before, **(change if step else {})), 2, share=0.2)
    waiting = {one.group.draw for one in found[0].in_hand}
    first = len(sampler.engine.requests)
    assert waiting
    again = [request for request in sampler.engine.requests if request.draw in waiting]
    assert {request.draw for request in again if not request.begun} == waiting
    assert all(
        one.hparams.response_limit == replace(before, **change).response_limit for one in found[1].in_hand
    )
    assert first > 0


def test_turned_off_what_is_in_hand_is_finished_first():
    _, found = steps([TEACHES], lambda step: replace(HPARAMS, partial=0 if step else LONG - 1), 6, share=0.2)
    assert found[0].in_hand
    draws = [group.draw for batch in found for group in batch.consumed]
    assert draws == list(range(len(draws)))
    assert not found[-1].in_hand
    assert found[-1].rollout_stats.surplus


def test_what_waits_is_the_same_after_it_was_saved(tmp_path):
    answers = Answers()
    tasks, renderer = SolutionMixture(answers), FakeRenderer()
    sampler = scripted_sampler(lambda draw, sample: TEACHES[sample])
    sampler.judge._tasks.update(
        arithmetic=sampler.judge._tasks["score"], word_list=sampler.judge._tasks["score"]
    )
    hparams = replace(HPARAMS, partial=LONG - 1, prompts_per_step=1, max_draw_factor=20.0)
    held = InHand(tasks, renderer)
    for cursor in (0, 10):  # some have ended and were not needed, some have not
        batch = collect(
            sampler,
            lambda draw: tasks.problem(draw, "train"),
            hparams,
            cursor=cursor,
            expected_share=0.2,
            seed=1,
            clock=Stopwatch(),
            in_hand=held.groups,
        )
        held.groups = batch.in_hand
    assert {bool(one.group.unfinished) for one in held.groups} == {False, True}
    held.snapshot()(tmp_path)
    again = InHand(tasks, renderer)
    again.restore(tmp_path)
    assert again.groups == held.groups
    (tmp_path / IN_HAND).unlink()
    again.restore(tmp_path)
    assert again.groups == ()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert run_in(folder, PARTIAL).stopped == "done"
    return folder


def test_a_run_learns_from_what_older_policies_began(finished):
    made = of(finished, Stepped)
    assert max(event.staleness for event in made) >= 2
    assert all(event.rollout_stats.surplus == 0 for event in made)
    consumed = sum(event.rollout_stats.draws for event in made)
    assert consumed + made[-1].rollout_stats.in_hand == made[-1].cursor


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_an_interrupted_run_goes_on_with_the_same_tokens(finished, tmp_path, stop):
    run_in(tmp_path / "run", PARTIAL, until=lambda state: state.step == stop)
    assert (tmp_path / "run" / "checkpoints" / f"step_{stop:06d}" / IN_HAND).exists()
    assert run_in(tmp_path / "run", PARTIAL) == fold(events(finished))
    assert timeless(events(tmp_path / "run")) == timeless(events(finished))


def test_a_roll_back_goes_back_to_what_was_in_hand_there(finished, tmp_path):
    run_in(tmp_path / "run", PARTIAL, commands={8: "roll-back=6"})
    after = {event.step: event for event in of(tmp_path / "run", Stepped)}
    before = {event.step: event for event in of(finished, Stepped)}
    assert after.keys() == before.keys()
    assert after[7].rollout_stats == before[7].rollout_stats


def test_samples_taken_ahead_are_dropped_with_what_they_left_in_hand(tmp_path):
    ahead = planned(
        PARTIAL,
        sampling=SamplingConfig(max_staleness=1),
        save=SaveConfig(every=100),
        validation=some_validations(every=6, per_domain=5, samples=2),
    )
    run_in(tmp_path / "run", ahead, commands={3: "note look"})
    made = of(tmp_path / "run", Stepped)
    consumed = sum(event.rollout_stats.draws for event in made)
    assert consumed + made[-1].rollout_stats.in_hand == made[-1].cursor
