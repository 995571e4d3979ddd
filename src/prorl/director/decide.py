"""The director: looks at the state at a step boundary and says what should be done. It performs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prorl.algo.reference_reset import due
from prorl.director.events import ResetReason
from prorl.director.plan import OptimizerAtReset, Plan
from prorl.director.state import RunState

MAX_SKIPPED_UPDATES = 10  # in a row, before the run is called broken


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterStage:
    """Let the knobs of the next stage hold."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetReference:
    """Make the policy (`current`) or the best exam's checkpoint (`best`) the reference."""

    reason: ResetReason
    target: Literal["current", "best"]
    optimizer: OptimizerAtReset


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the loop, saved."""

    reason: str


Decision = EnterStage | ResetReference | Stop


def exam_due(plan: Plan, state: RunState) -> bool:
    """Exams are sat before the first step, every `every` steps, and after the last one."""
    if not plan.exam.every or state.last_exam == state.step:
        return False
    return state.step % plan.exam.every == 0 or state.step == plan.steps


def save_due(plan: Plan, state: RunState) -> bool:
    """Checkpoints: the base at step 0, every `save_every` steps, at a new best exam, at the end of the loop."""
    return state.step % plan.save_every == 0 or state.best_step == state.step or state.stopped is not None


def decide(plan: Plan, state: RunState, *, interrupted: bool = False) -> tuple[Decision, ...]:
    """What to do at this boundary, in the order in which it is to be done."""
    decisions: list[Decision] = []
    stage = _next_stage(plan, state)
    if stage is not None:
        decisions.append(EnterStage(index=stage))
    reset = _reset(plan, state, stage)
    if reset is not None:
        decisions.append(reset)
    stop = _stop(plan, state, interrupted=interrupted)
    if stop is not None:
        decisions.append(Stop(reason=stop))
    return tuple(decisions)


def _next_stage(plan: Plan, state: RunState) -> int | None:
    following = state.stage + 1
    if following < len(plan.stages) and plan.stages[following].at <= state.step:
        return following
    return None


def _reset(plan: Plan, state: RunState, entered: int | None) -> ResetReference | None:
    rules = plan.reset
    if state.reference is None or state.step == 0:
        return None
    if entered is not None and plan.stages[entered].reset_reference:
        return ResetReference(reason="stage", target="current", optimizer=plan.stages[entered].optimizer)
    reason = due(
        step=state.step,
        last_reset_step=state.last_reset,
        recent_kls=state.recent_kls,
        exams_since_best=state.exams_since_best,
        every=rules.every,
        kl_ceiling=rules.kl_ceiling,
        kl_count=rules.kl_count,
        kl_window=rules.kl_window,
        stalled_exams=rules.stalled_exams,
        cooldown=rules.cooldown,
    )
    if reason is None:
        return None
    target = rules.target if state.best_step is not None else "current"
    return ResetReference(reason=reason, target=target, optimizer=rules.optimizer)


def _stop(plan: Plan, state: RunState, *, interrupted: bool) -> str | None:
    if state.error_share > plan.max_error_share:
        return f"verifiers failed on {state.error_share:.0%} of the last step's groups"
    if state.skipped_updates >= MAX_SKIPPED_UPDATES:
        return f"the last {state.skipped_updates} updates were not finite"
    if state.step >= plan.steps:
        return "done"
    return "interrupted" if interrupted else None
