"""From readings to interventions (METHOD §8): a bounded, declared answer to trouble, or a warning, or nothing.

A detector speaks when its newest reading and enough of those before are beyond the threshold, its cooldown is
over, and it has been calm since it last spoke. What stops or pauses the run waits for a person, so it needs no
calm in between; what acts by itself does so at most `max` times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from prorl.algo.unusual import lasts
from prorl.control.events import Action, DetectorName, Intervened
from prorl.control.plan import DetectorRule, Plan
from prorl.control.signals import is_hot
from prorl.control.state import RunState

MEANING: Mapping[DetectorName, str] = MappingProxyType(
    {
        "non_finite": "{:.0f} updates in a row were not finite",
        "kl_spike": "the KL to the reference is {:.3g} times what is usual",
        "entropy_collapse": "the entropy is down to {:.3g} nats per token",
        "entropy_surge": "the entropy is {:.3g} times what is usual",
        "gradient_spike": "the gradient norm is {:.3g} times what is usual",
        "length_blowup": "responses are {:.3g} times as long as is usual",
        "truncation_blowup": "the share of truncated responses is {:.1%} above what is usual",
        "verifier_errors": "verifiers failed on {:.0%} of the last step's groups",
        "truncated_share": "{:.0%} of responses hit the length limit",
        "unanswered_share": "{:.0%} of responses hold no answer",
        "no_signal": "only {:.1%} of the judged groups teach anything",
        "exam_collapse": "the exam is at most {:.0%} of the best one",
        "reward_hacking": "the training score rose and the exam fell by {:.3g} or more since the best exam",
        "stalled_exam": "{:.0f} exams in a row brought no new best",
    }
)
"""What the reading of each detector says."""

CONDITION: tuple[DetectorName, ...] = ("exam_collapse", "truncated_share", "unanswered_share", "no_signal")
"""Detectors of a policy that no longer works, by absolute levels or against its best exam."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervene:
    """Warn or act, for a detector or, to roll back, for the operator."""

    detector: DetectorName | Literal["order"]
    action: Action
    reason: str
    good_step: int  # the last step at which the detector was calm
    reading: float = 0.0
    rule: DetectorRule | None = None  # None: an order


def interventions(plan: Plan, state: RunState, *, can_reset: bool) -> tuple[Intervene, ...]:
    """What the detectors of the plan ask for; one that wants a reset holds back while there can be none.

    A roll back undoes whatever else would be done, so it comes alone.
    """
    found = tuple(_interventions(plan, state, can_reset=can_reset))
    return next(((one,) for one in found if one.action == "roll_back"), found)


def good_step(plan: Plan, state: RunState) -> int:
    """The last step at which every detector that may roll back was calm; with exams, at most that of the last one."""
    calm = [
        _last_calm(name, rule, state)
        for name, rule in plan.detectors.items()
        if (rule.mode, rule.action) == ("act", "roll_back") and name in state.signals.readings
    ]
    return min(calm, default=state.step)


def told_to_roll_back(plan: Plan, state: RunState) -> Intervene | None:
    """What the operator's order to roll back amounts to: to the step named, or to the last good one before this."""
    if "roll-back" not in state.asked:
        return None
    good = min(good_step(plan, state), state.step - 1) if state.roll_back_to is None else state.roll_back_to
    return Intervene(detector="order", action="roll_back", reason="told to roll back", good_step=good)


def degraded(plan: Plan, state: RunState) -> str:
    """What says that the policy no longer works, in words; empty while nothing does."""
    for name in CONDITION:
        rule = plan.detectors.get(name)
        if rule is not None and _holds(name, rule, state):
            return MEANING[name].format(state.signals.readings[name][-1][1])
    return ""


def doubtful(plan: Plan, state: RunState) -> bool:
    """Whether the newest reading of a level alone says that a policy that once worked does so no longer.

    Then no rule resets the reference. That nothing teaches says too little: all may be too easy.
    """
    return state.signals.peak > 0 and any(
        is_hot(name, readings[-1][1], plan.detectors[name].threshold)
        for name in CONDITION
        if name != "no_signal" and name in plan.detectors and (readings := state.signals.readings.get(name))
    )


def intervened(decision: Intervene, state: RunState, *, landed: RunState | None = None) -> Intervened:
    """The event of a decision made in `state`; `landed` is the state of the checkpoint after a roll back."""
    rule, action = decision.rule, decision.action
    undoes = landed is not None and landed.overrides != state.overrides
    # What an order broke is mended by undoing it: with the old knobs, at the old rate.
    lowers = action == "lower_lr" or (action == "roll_back" and not undoes)
    acted = {name: watch.acted for name, watch in state.signals.watches.items() if watch.acted}
    if action != "warn":
        acted[decision.detector] = acted.get(decision.detector, 0) + 1
    return Intervened(
        step=landed.step if landed else state.step,
        detector=decision.detector,
        action=action,
        reason=decision.reason + (", and the knobs ordered since then are undone" if undoes else ""),
        numbers={} if rule is None else {"reading": decision.reading, **_limits(rule)},
        rearm=None if rule is None or action in ("stop", "pause", "roll_back") else rule.rearm,
        acted=acted,
        lr_scale=state.lr_scale * rule.factor if rule and lowers else state.lr_scale,
        # Counted from where the trouble was, not from where the run goes on: the way there must not use it up.
        lr_until=state.step + rule.steps if rule and lowers else state.lr_until,
        from_step=state.step if landed else None,
        obeyed=state.inbox if landed else state.obeyed,
    )


def _interventions(plan: Plan, state: RunState, *, can_reset: bool) -> Iterator[Intervene]:
    for name, rule in plan.detectors.items():
        if not _speaks(name, rule, state):
            continue
        action, remark = _action(name, rule, state)
        if action == "reset_reference" and not can_reset:
            continue
        _, reading = state.signals.readings[name][-1]
        yield Intervene(
            detector=name,
            action=action,
            reason=MEANING[name].format(reading) + remark,
            reading=reading,
            rule=rule,
            good_step=_last_calm(name, rule, state),
        )


def _speaks(name: DetectorName, rule: DetectorRule, state: RunState) -> bool:
    watch = state.signals.watch(name)
    if watch.rearm is not None or (watch.last is not None and state.step - watch.last < rule.cooldown):
        return False
    return _holds(name, rule, state)


def _holds(name: DetectorName, rule: DetectorRule, state: RunState) -> bool:
    readings = state.signals.readings.get(name, ())
    hot = [is_hot(name, reading, rule.threshold) for _, reading in readings]
    return lasts(hot, hits=rule.hits, of_last=rule.of_last)


def _limits(rule: DetectorRule) -> Mapping[str, float]:
    return {"threshold": rule.threshold, "hits": rule.hits, "of_last": rule.of_last}


def _action(name: DetectorName, rule: DetectorRule, state: RunState) -> tuple[Action, str]:
    """What is to be done, and a remark where it is not what the rule says first."""
    if rule.mode == "warn" or (rule.action == "exam" and not state.signals.peak):  # nothing to fall from
        return "warn", ""
    acted = state.signals.watch(name).acted
    if acted < rule.max or rule.action in ("warn", "pause", "stop"):
        return rule.action, ""
    if rule.action == "roll_back":
        return "stop", f", and {acted} roll backs did not help"
    return "warn", f", and the {acted} interventions allowed are used up"


def _last_calm(name: DetectorName, rule: DetectorRule, state: RunState) -> int:
    readings = state.signals.readings[name]
    calm = [step for step, reading in readings if not is_hot(name, reading, rule.rearm)]
    return calm[-1] if calm else max(readings[0][0] - 1, 0)
