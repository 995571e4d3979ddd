"""Every decision of the director, and the order they come in."""

import json
from dataclasses import asdict, replace

import pytest

from prorl.config.recipe import RecipeError
from prorl.config.schema import SaveConfig, StageConfig
from prorl.control.decide import TOLD_TO_STOP, ResetReference, decide, save_due, validation_due
from prorl.control.events import LevelRaised, StageEntered, Stopped
from prorl.control.plan import Plan, hparams_now, make_plan
from prorl.control.state import LEVEL_MEMORY, Reference, RunState, evolve, fold, from_json
from support.defaults import planned, some_detectors, some_plan, some_resets, some_validations
from support.events import evaluated, rollout_stats, stepped, update
from support.recipes import recipe

PLAN = some_plan(seed=0, steps=1000)
BASE = Reference(name="ref_000", hash="h")
STATE = RunState(step=300, reference=BASE)


def resets(plan: Plan, state: RunState) -> list[ResetReference]:
    return [decision for decision in decide(plan, state) if isinstance(decision, ResetReference)]


def ruled(**rules) -> Plan:
    return planned(PLAN, reset=some_resets(**rules))


def test_a_stage_comes_before_the_reset_and_the_reset_before_the_end():
    stage = StageConfig(at=1000)
    plan = planned(PLAN, stages=(stage,), reset=some_resets(every=250))
    assert decide(plan, replace(STATE, step=1000)) == (
        StageEntered(step=1000, index=0),
        ResetReference(reason="schedule", target="current", optimizer="keep"),
        Stopped(step=1000, reason="done"),
    )


@pytest.mark.parametrize(
    ("rules", "state", "reason"),
    [
        ({"every": 300}, {}, "schedule"),
        ({"every": 301}, {}, None),
        ({"kl_ceiling": 0.5, "kl_count": 2, "kl_window": 3}, {"recent_kls": (0.6, 0.1, 0.7)}, "kl_ceiling"),
        ({"kl_ceiling": 0.5, "kl_count": 2, "kl_window": 3}, {"recent_kls": (0.9, 0.6, 0.1, 0.1)}, None),
        ({"stalled_validations": 2}, {"validations_since_best": 2}, "stalled_validation"),
        ({"stalled_validations": 3}, {"validations_since_best": 2}, None),
        ({"every": 1, "kl_ceiling": 0.1, "kl_count": 1}, {"recent_kls": (1.0,)}, "kl_ceiling"),
        ({"every": 1, "stalled_validations": 1}, {"validations_since_best": 1}, "stalled_validation"),
    ],
)
def test_each_reason_to_reset(rules, state, reason):
    decided = resets(ruled(**rules), replace(STATE, **state))
    assert [reset.reason for reset in decided] == ([reason] if reason else [])


@pytest.mark.parametrize(("last_reset", "expected"), [(281, 0), (280, 1)])
def test_no_reset_within_the_cooldown_of_the_last_one(last_reset, expected):
    assert len(resets(ruled(every=1, cooldown=20), replace(STATE, last_reset=last_reset))) == expected


def test_a_run_without_reference_and_a_run_without_steps_reset_nothing():
    staged = planned(ruled(every=1, cooldown=0), stages=(StageConfig(at=0, reset_reference=True),))
    assert resets(staged, replace(STATE, reference=None)) == []
    assert resets(staged, replace(STATE, step=0)) == []


@pytest.mark.parametrize(("best_step", "target"), [(250, "best"), (None, "current")])
def test_the_best_validation_is_the_target_once_there_is_one(best_step, target):
    plan = ruled(every=1, target="best", optimizer="clear")
    (reset,) = resets(plan, replace(STATE, best_step=best_step))
    assert (reset.target, reset.optimizer) == (target, "clear")


def test_a_stage_that_resets_does_so_from_the_policy_whatever_the_rules_say():
    stage = StageConfig(at=300, reset_reference=True, optimizer="clear")
    plan = planned(ruled(every=1, cooldown=50, target="best"), stages=(stage,))
    decided = decide(plan, replace(STATE, last_reset=299, best_step=250))
    assert decided == (
        StageEntered(step=300, index=0),
        ResetReference(reason="stage", target="current", optimizer="clear"),
    )


ONLY_WARNED = some_detectors() | some_detectors(validation_collapse={"mode": "warn"})
DETECTED = planned(PLAN, detectors=ONLY_WARNED)
DOUBTS = {
    "the validation is far below the best": [evaluated(250, 0.5), evaluated(300, 0.01)],
    "all is truncated": [evaluated(250, 0.5), stepped(300, rollout_stats=rollout_stats(truncated=1.0))],
    "nothing is answered": [evaluated(250, 0.5), stepped(300, rollout_stats=rollout_stats(unanswered=0.95))],
}


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize(
    ("rules", "state"),
    [
        ({"every": 1}, {}),
        ({"kl_ceiling": 0.1, "kl_count": 1}, {"recent_kls": (1.0,)}),
        ({"stalled_validations": 1}, {"validations_since_best": 1}),
    ],
)
def test_no_rule_makes_a_policy_in_doubt_the_reference(doubt, rules, state):
    plan = planned(DETECTED, reset=some_resets(**rules))
    due = replace(STATE, **state)
    assert len(resets(plan, due)) == 1
    doubted = replace(due, signals=fold(DOUBTS[doubt]).signals)
    assert resets(plan, doubted) == []
    assert len(resets(planned(plan, detectors={}), doubted)) == 1  # a recipe may switch it off
    never_better = replace(due, signals=fold([evaluated(250, 0.0), *DOUBTS[doubt][1:]]).signals)
    assert len(resets(plan, never_better)) == 1
    (told,) = resets(plan, replace(doubted, asked=("reset-reference",)))
    assert (told.reason, told.target) == ("command", "current")


def test_no_detector_resets_to_a_policy_in_doubt():
    acting = ONLY_WARNED | some_detectors(kl_spike={"mode": "act"})
    plan = planned(PLAN, detectors=acting, reset=some_resets(cooldown=0))
    spikes = [stepped(step, update=update(kl=0.1 if step < 12 else 1.0)) for step in range(1, 14)]
    state = replace(fold(spikes), reference=BASE)
    assert [reset.reason for reset in resets(plan, state)] == ["kl_spike"]
    assert resets(plan, evolve(evolve(state, evaluated(12, 0.5)), evaluated(13, 0.0))) == []


def test_a_stage_that_resets_a_policy_in_doubt_takes_the_best_one():
    plan = planned(DETECTED, stages=(StageConfig(at=300, reset_reference=True),))
    doubted = replace(STATE, best_step=250, signals=fold(DOUBTS["all is truncated"]).signals)
    (reset,) = resets(plan, doubted)
    assert (reset.reason, reset.target) == ("stage", "best")


@pytest.mark.parametrize(("named", "good"), [(None, 250), (120, 120), (0, 0)])
def test_a_told_roll_back_comes_alone_and_before_all_else(named, good):
    state = fold(DOUBTS["all is truncated"])
    asked = replace(state, asked=("stop", "roll-back"), roll_back_to=named)
    defaults = planned(PLAN, detectors=some_detectors())
    (only,) = decide(defaults, asked, interrupted=True)
    assert (only.detector, only.action, only.good_step) == ("command", "roll_back", good)
    unwatched = decide(PLAN, replace(asked, roll_back_to=None))
    assert unwatched[0].good_step == 299  # one step back


def test_stages_are_entered_one_at_a_time_and_once():
    plan = planned(PLAN, stages=tuple(StageConfig(at=at) for at in (0, 100, 301)))
    entered = [decide(plan, replace(STATE, stage=stage)) for stage in (-1, 0, 1, 2)]
    first, second = (StageEntered(step=300, index=index) for index in (0, 1))
    assert entered == [(first,), (second,), (), ()]


@pytest.mark.parametrize(
    ("state", "interrupted", "reason"),
    [
        ({"step": 999}, False, None),
        ({"step": 1000}, False, "done"),
        ({"step": 1001}, False, "done"),
        ({"asked": ("stop",)}, False, TOLD_TO_STOP),
        ({"step": 1000, "asked": ("stop",)}, False, "done"),
        ({}, True, "interrupted"),
        ({"step": 1000}, True, "done"),
    ],
)
def test_each_reason_to_stop(state, interrupted, reason):
    decisions = decide(PLAN, replace(STATE, **state), interrupted=interrupted)
    stops = [decision.reason for decision in decisions if isinstance(decision, Stopped)]
    assert stops == ([reason] if reason else [])


def test_a_command_resets_whatever_the_rules_say_and_only_a_reference_that_can_be():
    asked = replace(STATE, asked=("reset-reference",), last_reset=299)
    (reset,) = resets(ruled(cooldown=50, optimizer="clear"), asked)
    assert (reset.reason, reset.target, reset.optimizer) == ("command", "current", "clear")
    assert resets(PLAN, replace(asked, reference=None)) == []


def test_an_validation_is_due_when_told_to_unless_it_was_just_sat_or_there_are_none():
    asked = replace(STATE, step=301, last_validation=300, asked=("validation",))
    assert validation_due(PLAN, asked)
    assert not validation_due(PLAN, replace(asked, last_validation=301))
    assert not validation_due(
        PLAN, replace(asked, asked=("validation", "roll-back"))
    )  # which undoes the step
    assert not validation_due(planned(PLAN, validation=some_validations(every=0)), asked)


@pytest.mark.parametrize(
    ("step", "last_validation", "due"),
    [
        (0, None, True),
        (51, None, True),
        (0, 0, False),
        (49, 0, False),
        (50, 0, True),
        (50, 50, False),
        (70, 50, True),
    ],
)
def test_validations_are_due_at_the_start_every_few_steps_and_at_the_end(step, last_validation, due):
    plan = planned(PLAN, steps=70, validation=some_validations(every=50))
    assert validation_due(plan, replace(STATE, step=step, last_validation=last_validation)) is due


@pytest.mark.parametrize(
    ("state", "due"),
    [
        ({"step": 0}, True),
        ({"step": 1}, False),
        ({"step": 40}, True),
        ({"step": 41, "best_step": 41}, True),
        ({"step": 41, "best_step": 40}, False),
        ({"step": 41, "stopped": "interrupted"}, True),
        ({"step": 41, "asked": ("save",)}, True),
        ({"step": 41, "asked": ("validation",)}, False),
        ({"step": 41, "paused": "told to pause"}, True),
    ],
)
def test_a_checkpoint_is_due_at_its_step_at_a_new_best_and_at_the_end(state, due):
    assert save_due(planned(PLAN, save=SaveConfig(every=40)), replace(STATE, **state)) is due


# -- adaptive levels

CLIMBING = make_plan(
    recipe(
        tasks={
            "arithmetic": {
                "levels": {1: 1, 2: 1, 3: 0, 4: 1},
                "adaptive": {"start": 2, "window": 1, "rollouts": 8},
            }
        }
    )
)
REACHED = rollout_stats(top_rollouts={"arithmetic": 8}, top_scores={"arithmetic": 0.6})


def test_a_mastered_level_brings_the_next_one_into_play_and_the_last_one_none():
    state, seen = RunState(), []
    for step in range(1, 4):
        state = evolve(state, stepped(step, rollout_stats=REACHED))
        seen.append(hparams_now(CLIMBING, state).levels["arithmetic"])
        for decision in decide(CLIMBING, state):
            assert decision == LevelRaised(step=step, task="arithmetic", level=4)
            state = evolve(state, decision)
            assert decide(CLIMBING, state) == (), "it has no rollouts of its new level"
    shares = [[(level, round(share, 3)) for level, share in levels] for levels in seen]
    assert shares[0] == [(1, 0.05), (2, 0.95)]
    assert shares[1] == shares[2] == [(1, 0.033), (2, 0.033), (4, 0.933)]


def test_what_a_level_is_judged_by_is_bounded_and_survives_json():
    state = RunState()
    for step in range(1, 200):
        state = evolve(state, stepped(step, rollout_stats=REACHED))
        assert len(state.levels["arithmetic"].recent) <= LEVEL_MEMORY
    judged = REACHED.top_rollouts["arithmetic"]
    assert sum(rollouts for rollouts, _ in state.levels["arithmetic"].recent) == 199 * judged
    assert from_json(json.loads(json.dumps(asdict(state)))) == state


def test_levels_start_at_one_of_the_tasks():
    with pytest.raises(
        RecipeError, match=r"tasks.arithmetic.adaptive.start is 9, which is none of its levels: 1, 2, 3"
    ):
        make_plan(recipe(tasks={"arithmetic": {"adaptive": {"start": 9}}}))
