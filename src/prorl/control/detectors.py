"""Detectors (docs/operations.md): what they read of a run, and a bounded, declared answer to trouble, or none.

There is one reading per step or validation and detector, free of thresholds and bounded in number: `evolve` folds
them into the state, so folding the journal needs no plan. A relative reading is relative to the median of the last
`HISTORY` steps, which no single spike moves; there is none before `LEAST` of them. Values that are not finite are no
readings: the counter of refused updates tells of them.

A detector reports when its newest reading and enough of those before are beyond the threshold, its cooldown is over,
and it has been calm since its last report. What stops or pauses the run waits for a person, so it needs no calm in
between; what acts by itself does so at most `max` times.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from prorl.config.schema import READINGS, Action, DetectorConfig, is_hot
from prorl.control.events import Intervened, Stepped, Validated
from prorl.control.metrics import WATCHED, ratio
from prorl.control.plan import Plan, hparams_now

if TYPE_CHECKING:
    from prorl.control.state import RunState

MEANING: Mapping[str, str] = {
    "non_finite": "{:.0f} updates in a row were not finite",
    "kl_spike": "the KL to the reference is {:.3g} times what is usual",
    "entropy_collapse": "the entropy is down to {:.3g} nats per token",
    "entropy_surge": "the entropy is {:.3g} times what is usual",
    "gradient_spike": "the gradient norm is {:.3g} times what is usual",
    "length_blowup": "responses are {:.3g} times as long as is usual",
    "truncation_blowup": "the share of truncated responses is {:.1%} above what is usual",
    "mismatch": "engine and learner disagree by a factor of {:.3g} per token at some position",
    "broken_engine": "engine and learner disagree by a factor of {:.3g} per token at some position: the engine "
    "samples from another policy; see docs/cluster.md, and resume with other engine settings",
    "verifier_errors": "{:.0%} of the last step's groups could not be judged: "
    "verifiers failed, or prompts did not fit; samples/ has the reasons",
    "truncated_share": "{:.0%} of responses hit the length limit",
    "unanswered_share": "{:.0%} of responses hold no answer",
    "no_signal": "only {:.1%} of the judged groups teach anything",
    "validation_collapse": "the validation is at most {:.0%} of the best one",  # chance allowed for
    "reward_hacking": "the training score rose and the validation fell by {:.3g} or more since the best validation",
    "stalled_validation": "{:.0f} validations in a row brought no new best",
}
"""What the reading of each detector says."""

CONDITION: tuple[str, ...] = ("validation_collapse", "truncated_share", "unanswered_share", "no_signal")
"""Detectors of a policy that no longer works, by absolute levels or against its best validation."""

HISTORY = 32  # steps a usual value is the median of
LEAST = 8  # of them, before anything can be unusual
VALIDATIONS = 8  # pairs of training and validation score kept

SIGMAS = 4.0  # of a validation's score, by which chance alone is taken to move it at most

MOVES: Mapping[str, tuple[str, ...]] = {
    "temperature": ("entropy", "length", "truncated"),
    **dict.fromkeys(("top_p", "response_limit", "length_weight"), ("length", "truncated")),
    **dict.fromkeys(("kl_coef", "kl_estimator"), ("kl",)),
}
"""Measures that setting a hyperparameter is meant to move; all others keep what is usual of them."""

CORRECTED: Mapping[str, Any] = {"mismatch": "icepop", "mismatch_low": 0.5, "mismatch_high": 5.0}
"""What correcting the mismatch holds, of all hyperparameters; bounds as in both public recipes."""

LIMITS = {"threshold", "hits", "of_last"}  # of a rule, as an intervention reports them


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is remembered of one detector."""

    acted: int = 0  # times in this run, roll backs and what they undid included
    last: int | None = None  # step at which it last warned or acted
    rearm: float | None = None  # it sees nothing until a reading is calm by this level


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Everything the detectors remember, as plain JSON data."""

    history: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # per measure, newest last
    # Detector → (step, reading), newest last.
    readings: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    watches: Mapping[str, Watch] = field(default_factory=dict)
    # (training score since the validation before, validation score)
    validations: tuple[tuple[float, float], ...] = ()
    # Training scores since the last validation: their sum and number, or nothing.
    scores: tuple[float, ...] = ()
    peak: float = 0.0  # score of the best validation under this recipe

    def watch(self, name: str) -> Watch:
        """What is remembered of a detector, which may be nothing."""
        return self.watches.get(name, Watch())


def after_step(signals: Signals, event: Stepped, *, skipped: int) -> Signals:
    """Take in a step; `skipped` counts the refused updates in a row, those of this step included."""
    found = ((metric.name, metric.value(event)) for metric in WATCHED)  # None without updates or verdicts
    measures = {n: value for n, value in found if value is not None and math.isfinite(value)}
    total, number = signals.scores or (0.0, 0.0)
    score = event.rollout_stats.score
    read = _with_readings(signals, event.step, _step_readings(event, signals.history, measures, skipped))
    now = {name: (*signals.history.get(name, ()), value)[-HISTORY:] for name, value in measures.items()}
    return replace(
        read,
        history={**signals.history, **now},
        scores=signals.scores if score is None else (total + score, number + 1.0),
    )


def after_validation(signals: Signals, event: Validated, *, since_best: int) -> Signals:
    """Take in a validation; `since_best` counts those since the best one. One before any step has no pair."""
    validations, peak = signals.validations, max(signals.peak, event.score)
    if signals.scores:
        total, number = signals.scores
        validations = (*validations, (total / number, event.score))[-VALIDATIONS:]
    found: dict[str, float | None] = {
        "reward_hacking": divergence(validations),
        "stalled_validation": float(since_best),
        "validation_collapse": _share_of_peak(event, peak),
    }
    return replace(_with_readings(signals, event.step, found), validations=validations, scores=(), peak=peak)


def after_intervention(signals: Signals, event: Intervened) -> Signals:
    """Remember that a detector reported; the counts of all are the event's, as a roll back forgets its own past."""
    watches = {name: replace(signals.watch(name), acted=count) for name, count in event.acted.items()}
    own = replace(
        watches.get(event.detector, signals.watch(event.detector)), last=event.step, rearm=event.rearm
    )
    return replace(signals, watches={**signals.watches, **watches, event.detector: own})


def forget(signals: Signals, measures: Collection[str] | None = None) -> Signals:
    """Let what is usual form anew, of some measures or of all: what changed them is known and wanted."""
    gone = signals.history.keys() if measures is None else measures
    return replace(signals, history={n: values for n, values in signals.history.items() if n not in gone})


def after_command(signals: Signals, before: Mapping[str, Any], after: Mapping[str, Any]) -> Signals:
    """Take in that the operator holds other hyperparameters: only what they are meant to move becomes usual anew."""
    changed = {hparam for hparam, _ in before.items() ^ after.items()}
    return forget(signals, {measure for hparam in changed for measure in MOVES.get(hparam, ())})


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervene:
    """Warn or act, for a detector or, to roll back, for the operator."""

    detector: str
    action: Action
    reason: str
    good_step: int  # the last step at which the detector was calm
    reading: float = 0.0
    rule: DetectorConfig | None = None  # None: a command


def interventions(plan: Plan, state: RunState, *, can_reset: bool) -> tuple[Intervene, ...]:
    """What the detectors of the plan ask for; one that wants a reset holds back while there can be none.

    A roll back undoes whatever else would be done, so it comes alone.
    """
    found = []
    for name, rule in plan.detectors.items():
        watch = state.signals.watch(name)
        calm = watch.rearm is None and (watch.last is None or state.step - watch.last >= rule.cooldown)
        if not (calm and _holds(name, rule, state)):
            continue
        action, remark = _action(name, rule, state, plan)
        if action == "reset_reference" and not can_reset:
            continue
        reading = state.signals.readings[name][-1][1]
        reason, good = MEANING[name].format(reading) + remark, _last_calm(name, rule, state)
        one = Intervene(
            detector=name, action=action, reason=reason, reading=reading, rule=rule, good_step=good
        )
        if action == "roll_back":
            return (one,)
        found.append(one)
    return tuple(found)


def good_step(plan: Plan, state: RunState) -> int:
    """The last step at which every detector that may roll back was calm, one of validations at the last of these."""
    calm = [
        _last_calm(name, rule, state)
        for name, rule in plan.detectors.items()
        if (rule.mode, rule.action) == ("act", "roll_back") and name in state.signals.readings
    ]
    return min(calm, default=state.step)


def degraded(plan: Plan, state: RunState) -> str:
    """What says that the policy no longer works, in words; empty while nothing does."""
    for name in CONDITION:
        rule = plan.detectors.get(name)
        if rule is not None and _holds(name, rule, state):
            return MEANING[name].format(state.signals.readings[name][-1][1])
    return ""


def doubtful(plan: Plan, state: RunState) -> bool:
    """Whether the newest reading of a level alone says that a policy that once worked does so no longer.

    Then no rule resets the reference. That no group is informative says too little: all may be too easy.
    """
    return state.signals.peak > 0 and any(
        is_hot(name, readings[-1][1], plan.detectors[name].threshold)
        for name in CONDITION
        if name != "no_signal" and name in plan.detectors and (readings := state.signals.readings.get(name))
    )


def intervened(decision: Intervene, state: RunState, landed: RunState | None = None) -> Intervened:
    """The event of a decision made in `state`; `landed` is the state of the checkpoint after a roll back."""
    rule, action = decision.rule, decision.action
    corrected, held = CORRECTED.items(), state.overrides.items()
    undoes = landed is not None and landed.overrides.items() - corrected != held - corrected
    # What a command broke is mended by undoing it: with the old hyperparameters, at the old rate.
    lowers = action == "lower_lr" or (action == "roll_back" and not undoes)
    acted = {name: watch.acted for name, watch in state.signals.watches.items() if watch.acted}
    if action != "warn":
        acted[decision.detector] = acted.get(decision.detector, 0) + 1
    return Intervened(
        step=landed.step if landed else state.step,
        detector=decision.detector,
        action=action,
        reason=decision.reason + (", and the hyperparameters set since then are undone" if undoes else ""),
        numbers={} if rule is None else {"reading": decision.reading, **rule.model_dump(include=LIMITS)},
        rearm=None if rule is None or action in ("stop", "pause", "roll_back") else rule.rearm,
        acted=acted,
        lr_scale=state.lr_scale * rule.factor if rule and lowers else state.lr_scale,
        # Counted from where the trouble was, not from where the run goes on: the way there must not use it up.
        lr_until=max(state.lr_until, state.step + rule.steps) if rule and lowers else state.lr_until,
        from_step=state.step if landed else None,
        obeyed=state.inbox if landed else state.obeyed,
        paused=state.paused if landed else None,
        corrected=landed is not None and held >= corrected,
    )


def divergence(pairs: Sequence[tuple[float, float]]) -> float:
    """How far training went up while the validation went down, of (training, validation) scores, oldest first.

    Both changes are those since the best validation among the pairs, the earliest of equals; the smaller one counts,
    so it is positive only where both happened. Zero for fewer than two pairs.
    """
    if len(pairs) < 2:
        return 0.0
    trained, validated = pairs[-1]
    best_trained, best_validated = max(pairs, key=lambda pair: pair[1])
    return min(trained - best_trained, best_validated - validated)


def _step_readings(
    event: Stepped, history: Mapping[str, tuple[float, ...]], measures: Mapping[str, float], skipped: int
) -> dict[str, float | None]:
    floors = {metric.name: metric.usual or 0.0 for metric in WATCHED}
    usual = {n: max(median(values), floors[n]) for n, values in history.items() if len(values) >= LEAST}
    times = {name: value / usual[name] for name, value in measures.items() if usual.get(name)}
    above = {name: value - usual[name] for name, value in measures.items() if name in usual}
    stats = event.rollout_stats
    factors = () if event.staleness else event.update.mismatch_factors.values()  # only of the same weights
    return {
        "non_finite": float(skipped),
        "kl_spike": times.get("kl"),
        "entropy_collapse": measures.get("entropy"),
        "entropy_surge": times.get("entropy"),
        "gradient_spike": times.get("grad_norm"),
        "length_blowup": times.get("length"),
        "truncation_blowup": above.get("truncated"),
        **dict.fromkeys(("mismatch", "broken_engine"), max(factors, default=None)),
        "verifier_errors": ratio(stats.errors, stats.draws),
        "truncated_share": stats.truncated,
        "unanswered_share": stats.unanswered,
        "no_signal": stats.informative_share,
    }


def _share_of_peak(event: Validated, peak: float) -> float | None:
    """The largest share of the best score that a validation of this score may stand for, chance allowed for.

    The problems are the same every time, so that only sampling moves the score: at most by the standard error of a
    share of so many responses. None where nothing can have fallen.
    """
    if not (peak and event.responses):
        return None
    return (event.score + SIGMAS * math.sqrt(peak * (1 - peak) / event.responses)) / peak


def _with_readings(signals: Signals, step: int, found: Mapping[str, float | None]) -> Signals:
    """Append readings, and let the detectors that they calm look out again."""
    new = {name: (step, reading) for name, reading in found.items() if reading is not None}
    watches = dict(signals.watches)
    for name, (_, reading) in new.items():
        rearm = signals.watch(name).rearm
        if rearm is not None and not is_hot(name, reading, rearm):
            watches[name] = replace(watches[name], rearm=None)
    kept = {name: (*signals.readings.get(name, ()), reading)[-READINGS:] for name, reading in new.items()}
    return replace(signals, readings={**signals.readings, **kept}, watches=watches)


def _holds(name: str, rule: DetectorConfig, state: RunState) -> bool:
    since = state.last_reset if name == "kl_spike" else -1  # what was far from another reference is no spike
    readings = [reading for step, reading in state.signals.readings.get(name, ()) if step > since]
    hot = [is_hot(name, reading, rule.threshold) for reading in readings[-rule.of_last :]]
    return bool(hot) and hot[-1] and sum(hot) >= rule.hits


def _action(name: str, rule: DetectorConfig, state: RunState, plan: Plan) -> tuple[Action, str]:
    """What is to be done, and a remark where it is not what the rule says first."""
    pointless = rule.action == "validation" and not state.signals.peak  # nothing to fall from
    if rule.action == "correct_mismatch":
        # The bounds of a sequence's mean are too narrow for tokens: they would leave next to none.
        pointless = hparams_now(plan, state).mismatch in ("icepop", "sequence_mask")
        pointless |= plan.config.learner.old_logprobs == "engine"  # nothing to correct by
    if rule.mode == "warn" or pointless:
        return "warn", ""
    acted = state.signals.watch(name).acted
    if acted < rule.max or rule.action in ("warn", "pause", "stop"):
        return rule.action, ""
    if rule.action == "roll_back":
        return "stop", f", and {acted} roll backs did not help"
    return "warn", f", and the {acted} interventions allowed are used up"


def _last_calm(name: str, rule: DetectorConfig, state: RunState) -> int:
    readings = state.signals.readings[name]
    calm = [step for step, reading in readings if not is_hot(name, reading, rule.rearm)]
    if calm:
        return calm[-1]
    before, last = max(readings[0][0] - 1, 0), state.signals.watch(name).last
    if name == "validation_collapse" and state.best_step is not None:  # all that are remembered are in doubt
        before = min(before, state.best_step)
    return before if last is None else min(before, last)  # where its last roll back led to, at most
