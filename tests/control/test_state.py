"""The run as a fold: what each event changes, and that nothing else does."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.control.detectors import Signals
from prorl.control.events import CommandGiven, Intervened, Resumed, StageEntered, Started, Stopped
from prorl.control.state import KL_MEMORY, Reference, RunState, TaskLevel, evolve, fold, from_json
from support.events import command, evaluated, intervened, one_of_each, reset, rollout_stats, stepped, update

START = Started(config_hash="c", reference_hash="abc")
counts = st.integers(0, 100)
steps = st.builds(
    lambda step, rollout_stats, update: stepped(step, rollout_stats=rollout_stats, update=update),
    counts,
    st.builds(rollout_stats, draws=counts, errors=counts, accepted=counts),
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
        st.builds(
            Intervened,
            step=counts,
            detector=st.sampled_from(["kl_spike", "no_signal"]),
            action=st.sampled_from(["warn", "validation", "lower_lr", "pause", "roll_back"]),
            reason=st.just("so"),
            numbers=st.just({}),
            rearm=st.none() | st.floats(0, 1),
            acted=st.dictionaries(st.sampled_from(["kl_spike", "no_signal"]), counts),
            lr_scale=st.floats(0, 1),
            lr_until=counts,
            obeyed=counts,
        ),
        st.builds(
            CommandGiven,
            step=counts,
            name=st.sampled_from(["set", "pause", "resume", "stop", "save", "validation", "roll-back", "?"]),
            refused=st.none() | st.just("no"),
            overrides=st.dictionaries(st.sampled_from(["kl_coef", "clip_high"]), st.floats(0, 1)),
            inbox=counts,
        ),
        st.builds(Started, config_hash=st.just("c"), reference_hash=st.none() | st.just("h")),
    ),
    max_size=50,
)


@given(journals)
def test_a_state_survives_json(journal):
    state = fold(journal)
    assert from_json(json.loads(json.dumps(asdict(state)))) == state


def test_time_leaves_no_trace_in_the_state():
    slow = [
        replace(event, seconds={"total": 1e6} if event.kind == "stepped" else 1e6)
        if event.kind in ("stepped", "validated")
        else event
        for event in one_of_each()
    ]
    assert fold(slow) == fold(one_of_each())


@given(st.lists(steps, max_size=60))
def test_the_running_share_stays_a_share(journal):
    found = ((event, event.rollout_stats) for event in journal if event.rollout_stats.errors == 0)
    possible = ((event, replace(stats, accepted=min(stats.accepted, stats.draws))) for event, stats in found)
    state = fold(replace(event, rollout_stats=stats) for event, stats in possible)
    assert 0 <= state.informative_share <= 1


def test_the_running_share_approaches_what_is_seen_and_ignores_steps_without_verdicts():
    seen = [stepped(step, rollout_stats=rollout_stats(draws=10, errors=0, accepted=9)) for step in range(40)]
    assert fold(seen).informative_share == pytest.approx(0.9, abs=1e-3)
    blind = stepped(41, rollout_stats=rollout_stats(draws=3, errors=3, accepted=0))
    assert fold([*seen, blind]).informative_share == fold(seen).informative_share


def test_the_oldest_kl_is_forgotten_first():
    kls = fold(stepped(step, update=update(kl=float(step))) for step in range(40)).recent_kls
    assert kls == tuple(float(step) for step in range(40 - KL_MEMORY, 40))


def test_skipped_updates_count_in_a_row():
    bad, good = update(updates=0, skipped=2), update()
    assert fold(stepped(update=u) for u in (bad, bad)).skipped_updates == 4
    assert fold(stepped(update=u) for u in (bad, good, bad)).skipped_updates == 2
    # Three steps of 4 updates of which one is refused: the order within the step decides.
    first, last = (update(updates=3, skipped=1, skipped_last=trailing) for trailing in (0, 1))
    assert fold(stepped(update=first) for _ in range(3)).skipped_updates == 0
    assert fold(stepped(update=last) for _ in range(3)).skipped_updates == 1
    assert fold(stepped(update=u) for u in (last, update(updates=0, skipped=4))).skipped_updates == 5


@pytest.mark.parametrize(
    ("scores", "best", "since"),
    [
        ([0.3], (0.3, 0), 0),
        ([0.3, 0.4], (0.4, 10), 0),
        ([0.3, 0.3], (0.3, 0), 1),
        ([0.3, 0.2, 0.1], (0.3, 0), 2),
    ],
)
def test_only_a_better_validation_is_a_new_best(scores, best, since):
    state = fold(evaluated(10 * number, score) for number, score in enumerate(scores))
    assert ((state.best_score, state.best_step), state.validations_since_best) == (best, since)
    assert state.last_validation == 10 * (len(scores) - 1)


def test_a_reset_gives_birth_to_a_reference_and_starts_the_counts_again():
    before = [START, evaluated(0, 0.5), stepped(1), evaluated(1, 0.4)]
    state = fold([*before, reset(1, name="ref_001", reason="stalled_validation", hash="new")])
    assert state.reference == Reference(name="ref_001", hash="new")
    assert (state.references_born, state.last_reset) == (1, 1)
    assert (state.recent_kls, state.validations_since_best) == ((), 0)
    assert (state.best_score, state.best_step) == (0.5, 0)


def test_a_stopped_run_that_is_resumed_is_not_stopped():
    stopped = fold([START, stepped(1), Stopped(step=1, reason="interrupted")])
    assert stopped.stopped == "interrupted"
    resumed = evolve(stopped, Resumed(step=1, config_hash="d", branched_from="run@1"))
    assert resumed == replace(stopped, stopped=None, config_hash="d", signals=Signals())


def test_a_resumed_run_keeps_what_the_operator_holds_and_a_branch_does_not():
    held = [command("set", overrides={"kl_coef": 0.1}), command("pause", inbox=20)]
    state = fold([START, *held, Resumed(step=1, config_hash="c")])
    assert (state.overrides, state.paused, state.inbox) == ({"kl_coef": 0.1}, "told to pause", 20)
    branch = fold([START, *held, Resumed(step=1, config_hash="d", branched_from="run@1")])
    assert (branch.overrides, branch.paused, branch.inbox) == ({}, None, 0)


def test_a_branch_does_not_take_its_parents_scores_for_mastery_of_its_own_levels():
    reached = replace(RunState(), levels={"t": TaskLevel(highest=4, recent=((300, 0.95),))})
    branch = evolve(reached, Resumed(step=3, config_hash="d", branched_from="run@3"))
    assert branch.levels == {"t": TaskLevel(highest=4)}
    assert evolve(reached, Resumed(step=3, config_hash="d")).levels == reached.levels


def test_a_branch_has_stages_and_a_rate_of_its_own_and_a_best_score_if_it_is_asked_the_same():
    before = [
        START,
        StageEntered(step=1, index=0),
        StageEntered(step=2, index=1),
        evaluated(2, 0.5),
        evaluated(3, 0.4),
    ]
    parent = replace(fold(before), lr_scale=0.5, lr_until=90)
    resumed = Resumed(step=3, config_hash="d", branched_from="run@3", stages=1)
    branch = evolve(parent, resumed)
    assert (branch.stage, branch.lr_scale, branch.lr_until, branch.validations_since_best) == (0, 1.0, 0, 0)
    assert (branch.best_score, branch.best_step) == (0.5, 2)
    assert evolve(parent, replace(resumed, stages=5)).stage == 1
    other = evolve(parent, replace(resumed, same_validation=False))
    assert (other.best_score, other.best_step, other.last_validation) == (None, None, None)
    assert branch.last_validation == 3


def test_a_validation_that_is_cut_off_at_another_length_is_the_first_of_its_kind():
    longer = [evaluated(step, score, response_limit=64) for step, score in ((0, 0.5), (2, 0.9), (3, 0.8))]
    state = fold([START, *longer, evaluated(4, 0.1, response_limit=8)])
    assert (state.best_score, state.best_step, state.last_validation) == (0.1, 4, 4)
    assert (state.validations_since_best, state.validations_since_gain) == (0, 0)
    assert state.signals.peak == 0.1  # nothing has collapsed
    assert fold([START, evaluated(0, 0.5), longer[2]]).best_score == 0.8  # an older version does not say
    assert fold([START, *longer]).best_score == 0.9
    nothing = evaluated(5, 0.0, response_limit=8)
    assert fold([START, *longer, nothing]).signals.peak == 0.9  # at no length would that be
    assert fold([START, *longer, nothing, evaluated(6, 0.1, response_limit=8)]).best_step == 6


def test_a_command_is_carried_out_before_the_next_step_or_not_at_all():
    asked = [command(name) for name in ("save", "validation", "reset-reference", "stop", "save")]
    assert fold(asked).asked == ("validation", "reset-reference", "stop", "save")
    assert fold([*asked, evaluated(0, 0.1), reset(0)]).asked == ("stop", "save")
    assert fold([*asked, stepped(1)]).asked == ()
    assert fold([*asked, Stopped(step=0, reason="told to stop")]).asked == ("validation", "reset-reference")


def test_a_refused_command_moves_the_cursor_and_nothing_else():
    refused = command("pause", inbox=9, refused="nonsense")
    assert evolve(RunState(), refused) == replace(RunState(), inbox=9)


def test_only_a_told_stop_ends_a_pause():
    paused = [command("pause"), Stopped(step=0, reason="interrupted")]
    assert fold(paused).paused == "told to pause"
    assert fold([command("pause"), command("stop"), Stopped(step=0, reason="told to stop")]).paused is None
    assert fold([command("pause"), command("resume")]).paused is None


def test_a_lowered_learning_rate_comes_back_at_its_step():
    lowered = intervened(action="lower_lr", lr_scale=0.25, lr_until=3)
    scales = [fold([lowered, *map(stepped, range(1, last + 1))]).lr_scale for last in (0, 1, 2, 3)]
    assert scales == [0.25, 0.25, 0.25, 1.0]


def test_a_roll_back_is_saved_and_an_validation_that_a_detector_wants_is_sat():
    assert fold([intervened(action="roll_back")]).asked == ("save",)
    asked = fold([command("validation"), command("save"), intervened(action="validation")]).asked
    assert asked == ("save", "validation")


def test_a_run_rolled_back_to_where_it_was_stopped_is_not_stopped():
    assert fold([Stopped(step=3, reason="interrupted"), intervened(action="roll_back")]).stopped is None


def test_a_stall_is_counted_over_resets():
    state = fold([evaluated(0, 0.5), evaluated(1, 0.4), reset(1), evaluated(2, 0.3)])
    assert (state.validations_since_best, state.validations_since_gain) == (1, 2)
