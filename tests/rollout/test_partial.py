"""Partial rollouts: a response is written over several steps, and is what it would be in one; nothing is lost."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prorl.config.schema import SamplingConfig, SaveConfig
from prorl.control.events import Stepped
from prorl.control.state import fold
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task
from prorl.rollout.batch import collect
from prorl.rollout.partial import IN_HAND, InHand
from prorl.stopwatch import Stopwatch
from support.defaults import planned, some_hparams, some_validations
from support.fake_backend import FakeRenderer
from support.fake_runs import PLAN, Answers, SolutionMixture, events, of, run_in, timeless
from support.rollouts import VERSION, problem, response, scripted_sampler

HPARAMS = some_hparams(prompts_per_step=2, samples_per_prompt=2, response_limit=100, max_draw_factor=8.0)
TEACHES, EASY = ("1", "0"), ("1", "1")
PARTIAL = planned(PLAN, sampling=PLAN.config.sampling.model_copy(update={"partial": 1.0}))


def steps(script, hparams, count, *, share=0.5, shuffle=None, partial=1.0, max_age=100, order=None):
    """Steps after one another on a data order that repeats the script, the policy's version growing."""
    sampler = scripted_sampler(lambda draw, sample: script[draw % len(script)][sample], shuffle=shuffle)
    sampler.engine.order = order or sampler.engine.order
    cursor, in_hand, found = 0, (), []
    for step in range(count):
        sampler.engine.version = VERSION + step
        now, more = (given(step) if callable(given) else given for given in (hparams, partial))
        asked = {"cursor": cursor, "expected_share": share, "seed": 1, "clock": Stopwatch()}
        asked |= {"partial": more, "max_age": max_age}
        found.append(collect(sampler, problem, now, **asked, in_hand=in_hand))
        cursor, in_hand = found[-1].cursor, found[-1].in_hand
    return sampler, found


@given(
    st.lists(st.sampled_from([TEACHES, EASY]), min_size=1, max_size=5),
    st.floats(0.1, 3),
    st.floats(0.2, 1),
    st.integers(0, 99),
    st.sampled_from([1, 2, 100]),
)
@example([TEACHES], 1.0, 0.5, 88, 2)  # one that is too old meets a step that needs nothing more
def test_every_draw_is_learned_from_or_rejected_once_with_the_text_it_has_at_once(
    script, partial, share, shuffle, max_age
):
    _, found = steps(script, HPARAMS, 8, share=share, partial=partial, shuffle=shuffle, max_age=max_age)
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


def test_a_step_stops_when_it_has_what_it_needs_and_the_next_goes_on():
    sampler, found = steps([TEACHES], HPARAMS, 3, share=1.0)
    assert [[group.draw for group in batch.groups] for batch in found] == [[0, 1], [2, 3], [4, 5]]
    assert [[one.group.draw for one in batch.in_hand] for batch in found] == [[2, 3], [4, 5], [6, 7]]
    begun = [request for request in sampler.engine.requests if request.begun]
    assert {request.draw for request in begun} == {2, 3, 4, 5}
    assert [batch.rollout_stats.surplus for batch in found] == [0] * 3
    assert [batch.rollout_stats.in_hand for batch in found] == [2] * 3


def test_every_part_of_a_response_is_told_by_its_oldest_policy():
    _, found = steps([TEACHES], HPARAMS, 4, share=1.0)
    assert [VERSION + step - batch.version for step, batch in enumerate(found)] == [0, 1, 1, 1]


def test_the_tokens_of_all_steps_are_those_that_were_sampled():
    _, found = steps([TEACHES, EASY], HPARAMS, 4)
    told = sum(batch.rollout_stats.sampled_tokens for batch in found)
    held = sum(len(one.tokens) for open_ in found[-1].in_hand for one in open_.group.unfinished)
    ended = [r.completion for b in found for g in b.consumed for r in g.rollouts]
    ended += [r.completion for open_ in found[-1].in_hand for r in open_.group.rollouts]
    assert told == held + sum(len(one.tokens) for one in ended)
    assert sum(batch.rollout_stats.rollouts for batch in found) == len(ended)


def test_a_response_at_the_limit_is_cut_there_and_judged():
    _, found = steps([TEACHES], replace(HPARAMS, response_limit=20), 3, share=1.0)
    rollouts = [
        rollout.completion for batch in found for group in batch.consumed for rollout in group.rollouts
    ]
    assert {done.finish for done in rollouts} == {"length"}
    assert {len(done.tokens) for done in rollouts} == {20}


@pytest.mark.parametrize("change", [{"response_limit": 50}, {"temperature": 0.5}, {"top_p": 0.5}])
def test_what_was_begun_otherwise_is_begun_anew(change):
    sampler, found = steps([TEACHES], lambda step: replace(HPARAMS, **(change if step else {})), 2, share=1.0)
    assert {one.group.draw for one in found[0].in_hand} == {2, 3}
    assert not [request for request in sampler.engine.requests if request.begun]
    assert len([request for request in sampler.engine.requests if request.draw == 2]) == 2


@pytest.mark.parametrize(("max_age", "ages"), [(2, range(1, 3)), (100, range(3, 6))])
def test_what_is_too_old_is_begun_anew(max_age, ages):
    """Of a problem that is never among the first to end."""
    last = {"order": lambda draw: draw == 0}
    _, found = steps([TEACHES], HPARAMS, 6, share=1.0, max_age=max_age, **last)
    oldest = [
        VERSION + step - one.policy_version
        for step, batch in enumerate(found)
        for open_ in batch.in_hand
        for one in open_.group.unfinished
    ]
    assert max(oldest) in ages


def test_turned_off_what_is_in_hand_is_finished_first():
    _, found = steps([TEACHES], HPARAMS, 6, share=0.5, partial=lambda step: 0.0 if step else 2.0)
    assert found[0].in_hand
    draws = [group.draw for batch in found for group in batch.consumed]
    assert draws == list(range(len(draws)))
    assert not found[-1].in_hand


def test_what_waits_is_the_same_after_it_was_saved(tmp_path):
    answers = Answers()
    tasks, renderer = SolutionMixture(answers), FakeRenderer()
    sampler = scripted_sampler(lambda draw, sample: TEACHES[sample], shuffle=1)
    verifiers = sampler.judge._tasks
    verifiers.update(arithmetic=verifiers["score"], word_list=verifiers["score"])
    held = InHand(tasks, renderer)
    batch = collect(
        sampler,
        lambda draw: tasks.problem(draw, "train"),
        replace(HPARAMS, prompts_per_step=8),
        cursor=0,
        expected_share=0.5,
        seed=1,
        clock=Stopwatch(),
        partial=1.0,
    )
    held.groups = batch.in_hand
    assert {bool(one.group.unfinished) for one in held.groups} == {False, True}
    held.snapshot()(tmp_path)
    again = InHand(tasks, renderer)
    assert again.restore(tmp_path) == 0
    assert again.groups == held.groups
    others = InHand(Mixture([(make_task("word_list"), 1.0)], seed=3), renderer)
    kept = {one.group.draw for one in held.groups if one.group.problem.task == "word_list"}
    assert others.restore(tmp_path) == len(held.groups) - len(others.groups) > 0
    assert {one.group.draw for one in others.groups} <= kept
    rows = pq.read_table(tmp_path / IN_HAND)
    older = pa.array([json.dumps({"of": "another version"})] * len(rows))
    pq.write_table(rows.set_column(rows.column_names.index("hparams"), "hparams", older), tmp_path / IN_HAND)
    assert again.restore(tmp_path) == len(held.groups)
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
    assert max(event.staleness for event in made) >= 1
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
        sampling=SamplingConfig(max_staleness=1, partial=1.0),
        save=SaveConfig(every=100),
        validation=some_validations(every=6, per_domain=5, samples=2),
    )
    run_in(tmp_path / "run", ahead, commands={3: "note look"})
    made = of(tmp_path / "run", Stepped)
    consumed = sum(event.rollout_stats.draws for event in made)
    assert consumed + made[-1].rollout_stats.in_hand == made[-1].cursor
