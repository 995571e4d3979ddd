"""The run as a fold: what each event changes, and that nothing else does."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.director.events import Resumed, StageEntered, Started, Stopped
from prorl.director.state import KL_MEMORY, RunState, evolve, fold, from_json, to_json
from support.events import evaluated, one_of_each, reset, stepped, tally, update

START = Started(config_hash="c", reference_hash="abc")
counts = st.integers(0, 100)
steps = st.builds(
    lambda step, tally, update: stepped(step, tally=tally, update=update),
    counts,
    st.builds(tally, draws=counts, errors=counts, accepted=counts),
    st.builds(update, kl=st.floats(0, 1), updates=st.integers(0, 2), skipped=st.integers(0, 2)),
)
journals = st.lists(
    st.one_of(
        steps,
        st.builds(evaluated, counts, st.floats(0, 1)),
        st.builds(reset, counts),
        st.builds(StageEntered, step=counts, index=counts),
        st.builds(Stopped, step=counts, reason=st.sampled_from(["done", "interrupted"])),
        st.builds(Resumed, step=counts, config_hash=st.just("c")),
        st.builds(Started, config_hash=st.just("c"), reference_hash=st.none() | st.just("h")),
    ),
    max_size=50,
)


@given(journals, st.integers(0, 50))
def test_folding_a_journal_in_two_parts_is_folding_it(journal, cut):
    state = fold(journal[:cut])
    for event in journal[cut:]:
        state = evolve(state, event)
    assert state == fold(journal)


@given(journals)
def test_a_state_survives_json(journal):
    state = fold(journal)
    assert from_json(json.loads(json.dumps(to_json(state)))) == state


def test_the_state_of_an_empty_journal_is_that_of_a_run_unborn():
    assert fold([]) == RunState()


def test_time_leaves_no_trace_in_the_state():
    slow = [
        replace(event, seconds={"total": 1e6} if event.kind == "stepped" else 1e6)
        if event.kind in ("stepped", "evaluated")
        else event
        for event in one_of_each()
    ]
    assert fold(slow) == fold(one_of_each())


def test_a_run_starts_with_the_reference_it_was_given():
    reference = fold([START]).reference
    assert (reference.name, reference.birth_step, reference.parent, reference.hash) == (
        "ref_000",
        0,
        None,
        "abc",
    )
    assert fold([Started(config_hash="c", reference_hash=None)]).reference is None


def test_a_step_moves_the_counters():
    state = fold([START, stepped(1), stepped(2)])
    assert (state.step, state.cursor, state.version) == (2, 20, 2)
    assert (state.sampled_tokens, state.trained_tokens) == (9600, 4000)
    assert state.error_share == 0.1
    assert state.recent_kls == (0.02, 0.02)


@given(st.lists(steps, max_size=60))
def test_the_running_share_stays_a_share_and_the_memory_bounded(journal):
    journal = [
        replace(event, tally=replace(event.tally, accepted=min(event.tally.accepted, event.tally.draws)))
        for event in journal
        if event.tally.errors == 0
    ]
    state = fold(journal)
    assert 0 <= state.informative_share <= 1
    assert len(state.recent_kls) <= KL_MEMORY


def test_the_running_share_approaches_what_is_seen_and_ignores_steps_without_verdicts():
    seen = [stepped(step, tally=tally(draws=10, errors=0, accepted=9)) for step in range(40)]
    assert fold(seen).informative_share == pytest.approx(0.9, abs=1e-3)
    blind = stepped(41, tally=tally(draws=3, errors=3, accepted=0))
    assert fold([*seen, blind]).informative_share == fold(seen).informative_share
    assert fold([*seen, blind]).error_share == 1.0


def test_a_step_that_drew_nothing_has_no_errors():
    assert fold([stepped(1, tally=tally(draws=0, errors=0))]).error_share == 0.0


def test_a_step_without_update_has_no_kl():
    assert fold([stepped(1), stepped(2, update=update(updates=0, kl=0.0))]).recent_kls == (0.02,)


def test_the_oldest_kl_is_forgotten_first():
    kls = fold(stepped(step, update=update(kl=float(step))) for step in range(40)).recent_kls
    assert kls == tuple(float(step) for step in range(40 - KL_MEMORY, 40))


def test_skipped_updates_count_in_a_row():
    bad, good = update(skipped=2), update()
    assert fold(stepped(update=u) for u in (bad, bad)).skipped_updates == 4
    assert fold(stepped(update=u) for u in (bad, good, bad)).skipped_updates == 2


@pytest.mark.parametrize(
    ("scores", "best", "since"),
    [
        ([0.3], (0.3, 0), 0),
        ([0.3, 0.4], (0.4, 10), 0),
        ([0.3, 0.3], (0.3, 0), 1),
        ([0.3, 0.2, 0.1], (0.3, 0), 2),
    ],
)
def test_only_a_better_exam_is_a_new_best(scores, best, since):
    state = fold(evaluated(10 * number, score) for number, score in enumerate(scores))
    assert ((state.best_score, state.best_step), state.exams_since_best) == (best, since)
    assert state.last_exam == 10 * (len(scores) - 1)


def test_a_reset_gives_birth_to_a_reference_and_starts_the_counts_again():
    before = [START, evaluated(0, 0.5), stepped(1), evaluated(1, 0.4)]
    state = fold([*before, reset(1, name="ref_001", reason="stalled_exam", hash="new")])
    assert (state.reference.name, state.reference.parent) == ("ref_001", "ref_000")
    assert (state.reference.birth_step, state.reference.reason, state.reference.hash) == (
        1,
        "stalled_exam",
        "new",
    )
    assert (state.references_born, state.last_reset) == (1, 1)
    assert (state.recent_kls, state.exams_since_best) == ((), 0)
    assert (state.best_score, state.best_step) == (0.5, 0)


def test_a_stopped_run_that_is_resumed_is_not_stopped():
    stopped = fold([START, stepped(1), Stopped(step=1, reason="interrupted")])
    assert stopped.stopped == "interrupted"
    resumed = evolve(stopped, Resumed(step=1, config_hash="d", branched_from="run@1"))
    assert resumed == replace(stopped, stopped=None, config_hash="d")


def test_entering_a_stage_changes_nothing_else():
    assert evolve(RunState(), StageEntered(step=0, index=2)) == replace(RunState(), stage=2)
