"""What should be done between two steps: pure functions of plan and state. `loop.py` does it.

A decision that only has to be recorded is the event itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from prorl.algo.adaptive_levels import is_mastered
from prorl.algo.reference_reset import due
from prorl.control.detectors import Intervene, doubtful, good_step, interventions
from prorl.control.events import LevelRaised, StageEntered, Stopped
from prorl.control.plan import Plan, highest_level
from prorl.control.state import RunState

TOLD_TO_STOP = "told to stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetReference:
    """Make the policy (`current`) or the best validation's checkpoint (`best`) the reference."""

    reason: str
    target: Literal["current", "best"]
    optimizer: Literal["keep", "clear"]


Decision = StageEntered | LevelRaised | ResetReference | Intervene | Stopped


def validation_due(plan: Plan, state: RunState) -> bool:
    """Validations are sat where there is none to compare with (before the first step, where a branch that asks
    otherwise begins), every `every` steps, after the last one, and when told to.
    """
    every = plan.config.validation.every
    if not every or state.last_validation == state.step or "roll-back" in state.asked:
        return False
    asked = state.last_validation is None or "validation" in state.asked
    return asked or state.step % every == 0 or state.step == plan.config.steps


def save_due(plan: Plan, state: RunState) -> bool:
    """Checkpoints: every `save.every` steps, at a new best validation, when told to, at a pause and at the end."""
    return (
        state.step % plan.config.save.every == 0
        or state.best_step == state.step
        or "save" in state.asked
        or state.paused is not None
        or state.stopped is not None
    )


def decide(plan: Plan, state: RunState, *, interrupted: bool = False) -> tuple[Decision, ...]:
    """What to do between two steps, in the order in which it is to be done; a roll back comes alone."""
    if "roll-back" in state.asked:
        good = state.roll_back_to
        if good is None:  # no step was named: to the last good one before this
            good = min(good_step(plan, state), state.step - 1)
        told = Intervene(detector="command", action="roll_back", reason="told to roll back", good_step=good)
        return (told,)
    decisions: list[Decision] = []
    stages, following = plan.config.stages, state.stage + 1
    stage = following if following < len(stages) and stages[following].at <= state.step else None
    if stage is not None:
        decisions.append(StageEntered(step=state.step, index=stage))
    decisions += _raised(plan, state)
    doubted = doubtful(plan, state)
    reset = _reset(plan, state, stage, doubted=doubted)
    can_reset = reset is None and not doubted and _can_reset(state)
    can_reset &= state.step - state.last_reset >= plan.config.reset.cooldown
    asked_for = interventions(plan, state, can_reset=can_reset)
    if any(intervention.action == "roll_back" for intervention in asked_for):
        return asked_for
    for intervention in asked_for:
        decisions.append(intervention)
        if intervention.action == "reset_reference" and reset is None:
            reset = _from_rules(plan, state, intervention.detector)
    if reset is not None:
        decisions.append(reset)
    stop = _stop(plan, state, asked_for, interrupted=interrupted)
    if stop is not None:
        decisions.append(Stopped(step=state.step, reason=stop))
    return tuple(decisions)


def is_quiet(plan: Plan, state: RunState) -> bool:
    """Whether nothing is to be done between two steps with this state: no validation, checkpoint or decision."""
    return not (validation_due(plan, state) or save_due(plan, state) or decide(plan, state))


def _raised(plan: Plan, state: RunState) -> Iterator[LevelRaised]:
    """Tasks that have mastered their highest level in play, if they have a higher one."""
    for task, rules in plan.adaptive.items():
        highest, found = highest_level(plan, state, task), state.levels.get(task)
        higher = [level for level in plan.levels[task] if level > highest]
        if higher and found and is_mastered(found.recent, rollouts=rules.rollouts, raise_at=rules.raise_at):
            yield LevelRaised(step=state.step, task=task, level=higher[0])


def _can_reset(state: RunState) -> bool:
    return state.reference is not None and state.step > 0


def _reset(plan: Plan, state: RunState, entered: int | None, *, doubted: bool) -> ResetReference | None:
    """A policy in doubt becomes the reference by command alone: a stage takes the best one, and the rules wait."""
    rules = plan.config.reset
    if not _can_reset(state):
        return None
    if entered is not None and (stage := plan.config.stages[entered]).reset_reference:
        target: Literal["current", "best"] = "best" if doubted and state.best_step is not None else "current"
        return ResetReference(reason="stage", target=target, optimizer=stage.optimizer)
    if "reset-reference" in state.asked:
        return ResetReference(reason="command", target="current", optimizer=rules.optimizer)
    reason = due(
        since_reset=state.step - state.last_reset,
        recent_kls=state.recent_kls,
        validations_since_best=state.validations_since_best,
        **rules.model_dump(exclude={"target", "optimizer"}),
    )
    return None if reason is None or doubted else _from_rules(plan, state, reason)


def _from_rules(plan: Plan, state: RunState, reason: str) -> ResetReference:
    rules = plan.config.reset
    target = rules.target if state.best_step is not None else "current"
    return ResetReference(reason=reason, target=target, optimizer=rules.optimizer)


def _stop(plan: Plan, state: RunState, asked_for: Sequence[Intervene], *, interrupted: bool) -> str | None:
    for intervention in asked_for:
        if intervention.action == "stop":
            return intervention.reason
    if state.step >= plan.config.steps:
        return "done"
    if interrupted:
        return "interrupted"
    return TOLD_TO_STOP if "stop" in state.asked else None
