"""The plan of a run: what every knob is at every step, and the rules the director decides by. Never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from prorl.control.events import Action, DetectorName
from prorl.control.schedules import Cycle, Piecewise, Ramp, Schedule
from prorl.types import Knobs

OptimizerAtReset = Literal["keep", "clear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """From step `at` on, these knobs are different; entering it may reset the reference, as in v1's runs."""

    at: int
    knobs: Mapping[str, Any]  # knob name → constant or Schedule
    reset_reference: bool
    optimizer: OptimizerAtReset


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRules:
    """When the policy becomes the new reference (METHOD §7). The zeros switch each reason off."""

    every: int  # steps since the last reset
    kl_ceiling: float | None
    kl_count: int  # m of the last ...
    kl_window: int  # ... n steps above the ceiling
    stalled_exams: int  # exams without a new best
    cooldown: int  # steps
    target: Literal["current", "best"]
    optimizer: OptimizerAtReset


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamRules:
    """How often held-out problems of every domain are sat, and how many."""

    every: int  # steps; 0 = never
    per_domain: int  # problems
    samples: int  # per problem


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorRule:
    """When a detector speaks and the one thing that it then does (METHOD §8)."""

    mode: Literal["warn", "act"]
    threshold: float  # of its reading, inclusive
    rearm: float  # having spoken, it sees nothing until a reading is better than this
    hits: int  # so many ...
    of_last: int  # ... of the last readings beyond the threshold, the newest among them
    cooldown: int  # steps
    max: int  # times it may act by itself; then it only warns, and one that rolls back stops the run
    action: Action
    factor: float  # of the learning rate, where that is lowered
    steps: int  # for which it stays so


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything the loop and the director need to know about a run, as plain data."""

    seed: int
    steps: int
    knobs: Knobs
    schedules: Mapping[str, Schedule]  # knob name → schedule over the run
    stages: tuple[Stage, ...]  # by ascending step
    reset: ResetRules
    exam: ExamRules
    save_every: int  # steps
    max_staleness: int  # updates that the policy may be ahead of the weights that sampled; 0 = on-policy
    sample_every: int  # steps between written sample rollouts; 0 = never
    detectors: Mapping[DetectorName, DetectorRule]  # those that are on

    @property
    def needs_reference(self) -> bool:
        """Whether a KL penalty is paid at any step; without one no reference is ever loaded."""
        constants = [self.knobs, *(replace(self.knobs, **_constants(stage)) for stage in self.stages)]
        scheduled = [self.schedules, *(stage.knobs for stage in self.stages)]
        return any(knobs.kl_coef > 0 for knobs in constants) or any(
            isinstance(knobs.get("kl_coef"), Schedule) for knobs in scheduled
        )


def knobs_at(plan: Plan, step: int) -> Knobs:
    """Every dial at a step as planned: constants, then schedules, then what the stages entered so far changed."""
    settings: dict[str, Any] = dict(plan.schedules)
    for stage in plan.stages:
        if stage.at <= step:
            settings |= stage.knobs
    return replace(plan.knobs, **{name: _value(name, setting, step) for name, setting in settings.items()})


def _constants(stage: Stage) -> dict[str, Any]:
    return {name: value for name, value in stage.knobs.items() if not isinstance(value, Schedule)}


def _value(name: str, setting: Any, step: int) -> Any:
    if not isinstance(setting, (Piecewise, Ramp, Cycle)):
        return setting
    value = setting.at(step)
    return round(value) if name in INTEGER_KNOBS else value


INTEGER_KNOBS = frozenset(knob.name for knob in fields(Knobs) if knob.type == "int")
