"""When each detector reports, and what it then does: worked traces."""

import csv
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.config.schema import LearnerConfig
from prorl.control.decide import ResetReference, decide
from prorl.control.detectors import (
    CONDITION,
    Intervene,
    degraded,
    doubtful,
    good_step,
    intervened,
    interventions,
)
from prorl.control.events import Intervened, Started, Stopped
from prorl.control.plan import Plan, hparams_now
from prorl.control.state import RunState, evolve, fold
from support.defaults import planned, some_detectors, some_plan, some_resets
from support.events import evaluated, reset, stepped, update
from support.events import rollout_stats as stats

DEFAULTS = some_detectors()
START = Started(config_hash="c", reference_hash="h")


def plan(**rows) -> Plan:
    """Detectors by name with changes to their defaults, and no others."""
    detectors = some_detectors(**rows) if rows else {}
    return some_plan(seed=0, steps=10_000, detectors=detectors)


def follow(events, plan: Plan, state: RunState | None = None) -> tuple[list[Intervened], RunState]:
    """Run events through fold and director, performing what only concerns the fold."""
    state = state or fold([START])
    said = []
    for event in events:
        state = evolve(state, event)
        for decision in interventions(plan, state, can_reset=True):
            said.append(intervened(decision, state))
            state = evolve(state, said[-1])
    return said, state


def lengths(*values: float, start: int = 1) -> list:
    return [
        stepped(step, rollout_stats=stats(length=value))
        for step, value in zip(count(start), values, strict=False)
    ]


CALM = [100.0] * 12
AT_ONCE = {"cooldown": 1, "hits": 1, "of_last": 1}
LOWER = {"mode": "act", "action": "lower_lr"}
HOT = 160.0
ONCE = evaluated(0, 0.5)  # it worked once
REFUSED = update(updates=0, skipped=1)
AGREED, ERRING, BROKEN = ({"0": 1.001, "4096": far} for far in (1.002, 1.2, 1.6))

TRACES = {
    "non_finite": [stepped(s, update=REFUSED if s > 2 else update()) for s in range(1, 6)],
    "kl_spike": [stepped(s, update=update(kl=0.1 if s < 12 else 1.0)) for s in range(1, 14)],
    "entropy_collapse": [stepped(s, update=update(entropy=0.5 if s < 4 else 0.02)) for s in range(1, 9)],
    "entropy_surge": [stepped(s, update=update(entropy=0.5 if s < 12 else 1.1)) for s in range(1, 15)],
    "gradient_spike": [stepped(s, update=update(grad_norm=1.0 if s < 12 else 11.0)) for s in range(1, 14)],
    "length_blowup": lengths(*CALM, HOT, HOT, HOT),
    "truncation_blowup": [stepped(s, rollout_stats=stats(truncated=0.1 if s < 12 else 0.4)) for s in range(1, 15)],
    "mismatch": [stepped(s, update=update(mismatch_factors=ERRING if s > 2 else AGREED)) for s in range(1, 6)],
    "broken_engine": [stepped(s, update=update(mismatch_factors=BROKEN if s > 2 else AGREED)) for s in range(1, 8)],
    "verifier_errors": [stepped(1), stepped(2, rollout_stats=stats(draws=10, errors=5))],
    "no_signal": [ONCE, *(stepped(s, rollout_stats=stats(draws=6, accepted=4 if s < 3 else 0)) for s in range(1, 8))],
    "truncated_share": [
        ONCE,
        *(stepped(s, rollout_stats=stats(truncated=0.1 if s < 3 else 1.0)) for s in range(1, 6)),
    ],
    "unanswered_share": [
        ONCE,
        *(stepped(s, rollout_stats=stats(unanswered=0.1 if s < 3 else 1.0)) for s in range(1, 6)),
    ],
    "validation_collapse": [ONCE, evaluated(50, 0.3), evaluated(100, 0.1)],
    "reward_hacking": [
        event
        for s, (trained, validated) in enumerate([(0.3, 0.3), (0.4, 0.4), (0.5, 0.3), (0.6, 0.3)], start=1)
        for event in (stepped(s, rollout_stats=stats(score=trained)), evaluated(s, validated))
    ],
    "stalled_validation": [evaluated(s, 0.5) for s in range(9)],
}  # fmt: skip
"""The shortest trouble that each detector should speak about, at its last event."""


BY_DEFAULT = {"non_finite": "roll_back", "validation_collapse": "roll_back"}
BY_DEFAULT |= dict.fromkeys(("verifier_errors", "broken_engine"), "stop")
BY_DEFAULT |= dict.fromkeys(("truncated_share", "unanswered_share", "no_signal"), "validation")


@pytest.mark.parametrize("name", DEFAULTS)
def test_each_detector_reports_when_trouble_has_lasted_and_not_before_and_most_only_warn(name):
    trace = TRACES[name]
    assert follow(trace[:-1], plan(**{name: {}}))[0] == []
    (said,) = follow(trace, plan(**{name: {}}))[0]
    assert (said.detector, said.action) == (name, BY_DEFAULT.get(name, "warn"))
    assert said.numbers["threshold"] == DEFAULTS[name].threshold
    assert said.reason


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_climb_of_the_kl_after_a_reset_is_no_spike(power):
    climb = [stepped(s, update=update(kl=1e-3 * s**power)) for s in range(1, 200)]
    assert follow([reset(0), *climb], plan(kl_spike={}))[0] == []


@given(st.lists(st.floats(0.85, 1.2), min_size=100, max_size=100))
def test_noise_is_no_trouble(noise):
    steps = [
        stepped(
            step,
            rollout_stats=stats(length=100 * factor, truncated=0.1 * factor),
            update=update(entropy=0.4 * factor, grad_norm=factor, kl=0.2 * factor),
        )
        for step, factor in enumerate(noise, start=1)
    ]
    assert follow(steps, some_plan(seed=0, steps=1000, detectors=DEFAULTS))[0] == []


@pytest.mark.parametrize(
    ("hot", "expected"),
    [("", False), ("1", False), ("11", True), ("101", True), ("110", False), ("1001", False)],
)
def test_two_of_the_last_three_the_newest_among_them(hot, expected):
    chosen = plan(truncated_share={"hits": 2, "of_last": 3})
    steps = [stepped(s, rollout_stats=stats(truncated=float(mark))) for s, mark in enumerate(hot, start=1)]
    assert (degraded(chosen, fold(steps)) != "") is expected


@pytest.mark.parametrize(
    ("between", "cooldown", "steps"),
    [
        (HOT, 1, [13]),
        (130, 1, [13]),  # below the threshold and still above the level of calm
        (100, 1, [13, 15]),
        (100, 2, [13, 15]),
        (100, 3, [13]),
    ],
)
def test_it_reports_once_until_it_has_been_calm_again_and_its_cooldown_is_over(between, cooldown, steps):
    said, _ = follow(lengths(*CALM, HOT, between, HOT), plan(length_blowup=AT_ONCE | {"cooldown": cooldown}))
    assert [one.step for one in said] == steps


def test_what_acts_by_itself_does_so_no_more_often_than_allowed():
    said, state = follow(lengths(*CALM, *[HOT, 100] * 4), plan(length_blowup=AT_ONCE | LOWER | {"max": 2}))
    assert [one.action for one in said] == ["lower_lr", "lower_lr", "warn", "warn"]
    assert state.signals.watch("length_blowup").acted == 2
    assert "used up" in said[-1].reason


def test_lowering_twice_multiplies_and_lasts_from_the_later_one():
    row = AT_ONCE | LOWER | {"factor": 0.5, "steps": 10}
    said, _ = follow(lengths(*CALM, HOT, 100, HOT), plan(length_blowup=row))
    assert [(one.lr_scale, one.lr_until) for one in said] == [(0.5, 23), (0.25, 25)]


def test_lowering_for_a_short_time_does_not_end_a_longer_one():
    long = AT_ONCE | LOWER | {"factor": 0.5, "steps": 500}
    short = {**LOWER, "hits": 1, "of_last": 1, "factor": 0.5, "steps": 10, "threshold": 2, "rearm": 1.5}
    spike = stepped(15, update=update(grad_norm=100.0))
    said, _ = follow([*lengths(*CALM, HOT, 100), spike], plan(length_blowup=long, gradient_spike=short))
    assert [(one.lr_scale, one.lr_until) for one in said] == [(0.5, 513), (0.25, 513)]


def test_a_pause_is_repeated_as_long_as_the_trouble_lasts():
    row = {"mode": "act", "action": "pause", "cooldown": 1}
    bad = [stepped(s, rollout_stats=stats(draws=10, errors=0, accepted=0)) for s in range(1, 9)]
    said, state = follow(bad, plan(no_signal=row))
    assert [one.step for one in said] == [5, 6, 7, 8]
    assert state.paused == f"no_signal: {said[0].reason}"


def test_a_stop_carries_the_detectors_words_and_is_said_again_after_a_resume_that_changed_nothing():
    chosen = plan(verifier_errors={})
    broken = replace(fold([START, *TRACES["verifier_errors"]]))
    warned, stop = decide(chosen, broken)
    assert stop == Stopped(step=2, reason=warned.reason)
    assert stop.reason.startswith("50% of the last step's groups could not be judged: ")
    stopped = evolve(broken, intervened(warned, broken))
    assert decide(chosen, stopped) == ()  # the same state, after a resume
    assert decide(chosen, evolve(stopped, stepped(3))) == ()  # repaired
    still = evolve(stopped, stepped(3, rollout_stats=stats(draws=10, errors=5)))
    assert [type(decision) for decision in decide(chosen, still)] == [Intervene, Stopped]


def test_a_detector_resets_the_reference_by_the_rules_of_resets():
    acting = {"mode": "act", "action": "reset_reference"}
    chosen = planned(plan(kl_spike=acting), reset=some_resets(cooldown=5, optimizer="clear"))
    state = fold([START, *TRACES["kl_spike"]])
    reported, done = decide(chosen, state)
    assert isinstance(reported, Intervene)
    assert done == ResetReference(reason="kl_spike", target="current", optimizer="clear")
    assert decide(chosen, replace(state, last_reset=9)) == ()  # it holds back until there can be one
    again = planned(plan(kl_spike=acting), reset=some_resets(cooldown=0))
    assert (
        decide(again, evolve(state, reset(state.step))) == ()
    )  # what is far from an older reference is no spike
    assert decide(chosen, replace(state, reference=None)) == ()


def test_an_validation_is_asked_for_where_one_was_above_zero_and_else_it_only_warns():
    trace, chosen = TRACES["truncated_share"], plan(truncated_share={})
    assert follow(trace, chosen)[1].asked == ("validation",)
    for never_better in (trace[1:], [evaluated(0, 0.0), *trace[1:]]):
        said, state = follow(never_better, chosen)
        assert ([one.action for one in said], state.asked) == (["warn"], ())


@pytest.mark.parametrize(
    ("recipe", "corrected"),
    [
        ({"mismatch": "tis", "learner": LearnerConfig(old_logprobs="learner")}, True),
        ({"mismatch": "icepop", "learner": LearnerConfig(old_logprobs="learner")}, False),
        ({"mismatch": "sequence_mask", "learner": LearnerConfig(old_logprobs="learner")}, False),
        ({"mismatch": "none", "learner": LearnerConfig(old_logprobs="engine")}, False),
    ],
)
def test_an_engine_that_errs_is_corrected_for_from_the_next_step_where_that_is_possible(recipe, corrected):
    chosen = some_plan(seed=0, steps=10_000, detectors=some_detectors(mismatch={"mode": "act"}), **recipe)
    (said,), state = follow(TRACES["mismatch"], chosen)
    assert said.action == ("correct_mismatch" if corrected else "warn")
    assert "factor of 1.2 per token" in said.reason
    now = hparams_now(chosen, state)
    assert now.mismatch == ("icepop" if corrected else recipe["mismatch"])
    assert now.mismatch_high == (5.0 if corrected else 2.0), "the bound of icepop is not that of tis"


def test_what_may_be_rolled_back_to_is_never_past_the_last_good_validation():
    chosen = plan(non_finite={}, validation_collapse={})
    validations = [evaluated(0, 0.5), stepped(1), evaluated(50, 0.45), stepped(51)]
    assert good_step(chosen, fold(validations)) == 50
    worse = [*validations, evaluated(51, 0.3)]  # no collapse, and not good either
    assert good_step(chosen, fold(worse)) == 50
    assert good_step(plan(non_finite={}), fold(validations)) == 51
    # more of them than are remembered
    doubtful = [evaluated(50 * at, 0.3) for at in range(2, 40)]
    assert good_step(chosen, fold([evaluated(0, 0.1), evaluated(50, 0.5), *doubtful])) == 50


@pytest.mark.parametrize("name", CONDITION)
def test_a_run_is_degraded_as_long_as_trouble_lasts(name):
    trace, chosen = TRACES[name], plan(**{name: {}})
    assert degraded(chosen, fold(trace[:-1])) == ""
    said, state = follow(trace, chosen)
    assert degraded(chosen, state) == said[0].reason
    assert doubtful(chosen, state) is (name != "no_signal"), "all problems may be too easy"
    better = evaluated(200, 0.5) if name == "validation_collapse" else stepped(200)
    assert degraded(chosen, evolve(state, better)) == ""
    assert degraded(plan(), state) == ""


def test_a_roll_back_that_undoes_hparams_leaves_the_rate_as_it_was():
    chosen = plan(validation_collapse={})
    state = replace(fold(TRACES["validation_collapse"]), overrides={"learning_rate": 5.0})
    (decision,) = interventions(chosen, state, can_reset=True)
    landed = fold(TRACES["validation_collapse"][:1])
    undone = intervened(decision, state, landed=landed)
    assert (undone.lr_scale, undone.reason.endswith("set since then are undone")) == (1.0, True)
    held = intervened(decision, state, landed=replace(landed, overrides=state.overrides))
    assert (held.lr_scale, held.reason) == (0.5, decision.reason)


def test_a_roll_back_comes_alone_and_knows_the_last_good_step():
    chosen = planned(plan(non_finite={}, verifier_errors={}), steps=5)
    broken = stats(draws=10, errors=9)
    steps = [*TRACES["non_finite"][:-1], replace(TRACES["non_finite"][-1], rollout_stats=broken)]
    (only,) = decide(chosen, fold([START, *steps]), interrupted=True)
    assert (only.action, only.good_step) == ("roll_back", 2)


def test_the_last_good_step_is_before_everything_remembered_where_nothing_was_calm():
    steps = [stepped(s, update=update(updates=0, skipped=1)) for s in range(1, 30)]
    (only,) = interventions(plan(non_finite={}), fold([START, *steps]), can_reset=True)
    assert only.good_step == 13
    (only,) = interventions(plan(non_finite={}), fold([START, *steps[:3]]), can_reset=True)
    assert only.good_step == 0
    rolled = Intervened(
        step=5, detector="non_finite", action="roll_back", reason="r", numbers={}, from_step=9
    )
    (only,) = interventions(plan(non_finite={}), fold([START, rolled, *steps]), can_reset=True)
    assert only.good_step == 5  # where the last one led to


def test_a_roll_back_carries_over_what_the_checkpoint_does_not_know():
    state = replace(fold([START, *TRACES["non_finite"]]), inbox=70, lr_scale=0.5, lr_until=9)
    (decision,) = interventions(plan(non_finite={}), state, can_reset=True)
    event = intervened(decision, state, landed=fold([START, stepped(1)]))
    assert (event.step, event.from_step, event.obeyed) == (1, 5, 70)
    assert (event.lr_scale, event.lr_until) == (0.25, 55)
    assert event.acted == {"non_finite": 1}


def demo(path: Path) -> list:
    """A run of the demo from the columns kept of its journal: steps, validations of 800 responses, resets."""
    told = []
    for row in csv.DictReader(path.read_text().splitlines()):
        step = int(row.pop("step"))
        validation = row.pop("validation")
        if validation:
            told.append(reset(step) if validation == "reset" else evaluated(step, float(validation)))
            continue
        numbers = {name: float(value) if value else None for name, value in row.items()}
        learned = {name: numbers.pop(name) for name in ("kl", "entropy", "grad_norm")}
        counts = {name: int(numbers.pop(name)) for name in ("draws", "accepted", "errors")}
        told.append(stepped(step, rollout_stats=stats(**counts, **numbers), update=update(**learned)))
    return told


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).with_name("journals").glob("*.csv")), ids=lambda p: p.stem
)
def test_on_runs_of_the_demo_no_detector_says_a_word(path):
    chosen, state = some_plan(seed=0, steps=10_000, detectors=DEFAULTS), fold([START])
    for event in demo(path):
        state = evolve(state, event)
        assert interventions(chosen, state, can_reset=True) == ()
        assert (degraded(chosen, state), doubtful(chosen, state)) == ("", False)
    assert state.step == 320
    assert state.signals.readings.keys() >= DEFAULTS.keys() - {"kl_spike"}  # plain GRPO pays no KL penalty
