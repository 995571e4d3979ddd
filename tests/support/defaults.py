"""The records of a plan with the recipe's defaults, and what a test changes; no reset, detector or length penalty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prorl.control.plan import ExamRules, Plan, ResetRules, Stage
from prorl.planning import make_plan
from prorl.types import Knobs
from support.recipes import recipe

_PLAN = make_plan(recipe(length_penalty={"weight": 0}, stages=[{"at": 0}]))


def some_knobs(**changes: Any) -> Knobs:
    return replace(_PLAN.knobs, **({"mixture": {}} | changes))


def some_resets(**changes: Any) -> ResetRules:
    return replace(_PLAN.reset, **({"every": 0} | changes))


def some_exams(**changes: Any) -> ExamRules:
    return replace(_PLAN.exam, **changes)


def some_stage(**changes: Any) -> Stage:
    return replace(_PLAN.stages[0], **changes)


def some_plan(**changes: Any) -> Plan:
    bare = {"knobs": some_knobs(), "schedules": {}, "stages": (), "reset": some_resets(), "detectors": {}}
    return replace(_PLAN, **(bare | changes))
