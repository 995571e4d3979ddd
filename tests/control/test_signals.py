"""What detectors see of a run."""

import json
import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.config.schema import READINGS
from prorl.control.detectors import HISTORY, LEAST, VALIDATIONS, divergence
from prorl.control.events import StageEntered
from prorl.control.state import evolve, fold
from support.events import blind, command, evaluated, intervened, reset, rollout_stats, stepped, update

STEADY = [stepped(step) for step in range(1, HISTORY + 1)]
USUAL = update()


def readings(events, name: str) -> list[float]:
    return [reading for _, reading in fold(events).signals.readings.get(name, ())]


def after_steady(step, name: str) -> float:
    """The reading that a step gets after a steady run."""
    (*_, last) = readings([*STEADY, step], name)
    return last


@pytest.mark.parametrize(
    ("name", "step", "reading"),
    [
        ("kl_spike", stepped(33, update=update(kl=2.0)), 20.0),  # the usual 0.02 counts as 0.1
        ("entropy_surge", stepped(33, update=update(entropy=1.2)), 2.0),
        ("entropy_collapse", stepped(33, update=update(entropy=0.01)), 0.01),
        ("gradient_spike", stepped(33, update=update(grad_norm=15.0)), 10.0),
        ("length_blowup", stepped(33, rollout_stats=rollout_stats(length=150.0)), 1.5),
        ("truncation_blowup", stepped(33, rollout_stats=rollout_stats(truncated=0.625)), 0.5),
        ("verifier_errors", stepped(33, rollout_stats=rollout_stats(draws=10, errors=6)), 0.6),
        ("no_signal", stepped(33, rollout_stats=rollout_stats(draws=10, errors=0, accepted=0)), 0.0),
        ("truncated_share", stepped(33, rollout_stats=rollout_stats(truncated=0.625)), 0.625),
        ("unanswered_share", stepped(33, rollout_stats=rollout_stats(unanswered=0.75)), 0.75),
        ("validation_collapse", evaluated(33, 0.5), 1.0 + 4 * (0.25 / 800) ** 0.5 / 0.5),
        ("non_finite", stepped(33, update=update(updates=0, skipped=2)), 2.0),
    ],
)
def test_each_reading_of_a_step(name, step, reading):
    assert after_steady(step, name) == pytest.approx(reading)


def test_a_step_that_measured_nothing_leaves_no_reading():
    before, after = fold(STEADY), fold([*STEADY, blind(33)])
    assert after.signals.history == before.signals.history
    changed = {n for n, r in after.signals.readings.items() if r != before.signals.readings[n]}
    assert changed == {"non_finite", "verifier_errors"}
    assert after.signals.scores == before.signals.scores


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_no_measure(value):
    broken = stepped(33, update=replace(USUAL, entropy=value, grad_norm=value, kl=value))
    assert fold([*STEADY, broken]).signals.history["entropy"] == fold(STEADY).signals.history["entropy"]


@pytest.mark.parametrize(
    ("scores", "responses", "reading"),
    [
        ((0.5, 0.5), 1600, 1.1),  # 4 standard errors of 0.0125, of 0.5
        ((0.5, 0.0), 1600, 0.1),
        ((0.5, 0.0), 16, 1.0),  # chance can explain it
        ((0.1, 0.5, 0.2), 1600, 0.5),
        ((0.0, 0.0), 1600, None),
        ((0.5, 0.0), 0, None),  # a validation of an earlier version, which did not say how many
    ],
)
def test_an_validation_is_read_as_the_share_of_the_best_that_chance_allows(scores, responses, reading):
    validations = [evaluated(s, x, responses=responses) for s, x in enumerate(scores)]
    found = readings(validations, "validation_collapse")
    assert found[-1:] == ([] if reading is None else [pytest.approx(reading)])


@pytest.mark.parametrize(("name", "calm"), [("length_blowup", 1.0), ("truncation_blowup", 0.0)])
def test_nothing_relative_is_read_before_something_is_usual(name, calm):
    early = STEADY[:LEAST]
    assert readings(early, name) == []
    assert readings([*early, stepped(LEAST + 1)], name) == [calm]


def spike(*norms: float) -> float:
    """The last reading of gradient norms."""
    return readings([stepped(update=update(grad_norm=norm)) for norm in norms], "gradient_spike")[-1]


norms = st.lists(st.floats(0.1, 100), min_size=LEAST, max_size=20)


@given(norms, st.floats(0, 100), st.floats(0.1, 10))
def test_the_unit_plays_no_part(earlier, value, unit):
    scaled = spike(*(unit * norm for norm in (*earlier, value)))
    assert scaled == pytest.approx(spike(*earlier, value))


@given(norms, st.floats(1e3, 1e9))
def test_one_spike_does_not_raise_the_bar(earlier, high):
    assert spike(*[1.0] * len(earlier), high, 5.0) == 5.0


def test_next_to_nothing_counts_as_the_floor():
    assert spike(*[0.0] * LEAST, 0.5) == 500.0


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], 0),
        ([(0.2, 0.3)], 0),
        ([(0.2, 0.3), (0.5, 0.4)], 0),  # both rise
        ([(0.5, 0.4), (0.3, 0.2)], -0.2),  # both fall
        ([(0.2, 0.4), (0.5, 0.3)], 0.1),
        ([(0.2, 0.4), (0.25, 0.1)], 0.05),
        ([(0.2, 0.4), (0.3, 0.4), (0.5, 0.3)], 0.1),  # of equal validations the earliest
    ],
)
def test_divergence_is_the_smaller_of_rise_and_fall_since_the_best_validation(pairs, expected):
    assert divergence(pairs) == pytest.approx(expected)


def test_memory_is_bounded():
    events = [e for step in range(1, 200) for e in (stepped(step), evaluated(step, 0.5))]
    signals = fold(events).signals
    assert {len(values) for values in signals.history.values()} == {HISTORY}
    assert {len(values) for values in signals.readings.values()} == {READINGS}
    assert len(signals.validations) == VALIDATIONS
    assert len(json.dumps(asdict(signals))) < 16_000


def test_validations_are_paired_with_the_training_score_since_the_one_before():
    scores = {1: 0.2, 2: 0.4, 3: 0.6}
    steps = [stepped(step, rollout_stats=rollout_stats(score=score)) for step, score in scores.items()]
    state = fold([evaluated(0, 0.1), *steps[:2], evaluated(2, 0.5), steps[2], evaluated(3, 0.45)])
    assert state.signals.validations == ((pytest.approx(0.3), 0.5), (0.6, 0.45))
    assert readings([evaluated(0, 0.1)], "reward_hacking") == [0.0]
    assert state.signals.readings["reward_hacking"][-1] == (3, pytest.approx(0.05))


def test_a_stall_is_read_at_every_validation():
    validations = [evaluated(s, x) for s, x in enumerate((0.5, 0.4, 0.6, 0.5, 0.5))]
    assert readings(validations, "stalled_validation") == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("event", "forgotten"),
    [
        (reset(32), {"kl"}),
        (StageEntered(step=32, index=0), {"kl", "entropy", "grad_norm", "length", "truncated"}),
        (command("set", overrides={"learning_rate": 5.0}), set()),
        (command("set", overrides={"clip_low": 0.1, "kl_coef": 1e-4}), {"kl"}),
        (command("set", overrides={"response_limit": 99}), {"length", "truncated"}),
        (command("set", overrides={"temperature": 0.5}), {"entropy", "length", "truncated"}),
        (command("set", refused="no"), set()),
        (command("note"), set()),
    ],
)
def test_what_changes_on_purpose_becomes_usual_anew(event, forgotten):
    before = fold(STEADY)
    assert before.signals.history.keys() - evolve(before, event).signals.history.keys() == forgotten


LONG, SHORT = (stepped(33, rollout_stats=rollout_stats(length=length)) for length in (125.0, 124.0))
LOW, HIGH = (stepped(33, update=update(entropy=entropy)) for entropy in (0.05, 0.06))


@pytest.mark.parametrize(
    ("name", "rearm", "hot", "calm"),
    [("length_blowup", 1.25, LONG, SHORT), ("entropy_collapse", 0.05, LOW, HIGH)],
)
def test_a_detector_that_reported_sees_again_when_it_has_been_calm(name, rearm, hot, calm):
    spoke = [*STEADY, intervened(step=32, detector=name, rearm=rearm, acted={name: 1})]
    assert fold([*spoke, hot]).signals.watch(name).rearm == rearm
    watch = fold([*spoke, calm]).signals.watch(name)
    assert (watch.rearm, watch.acted, watch.last) == (None, 1, 32)


def test_an_intervention_tells_the_counts_of_all_detectors():
    told = intervened(detector="non_finite", action="roll_back", acted={"non_finite": 2, "kl_spike": 1})
    watches = fold([told]).signals.watches
    assert {name: watch.acted for name, watch in watches.items()} == {"non_finite": 2, "kl_spike": 1}
