"""The records of a plan with the recipe's defaults, and what a test changes; no reset, detector or length penalty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prorl.config.schema import DetectorConfig, DetectorsConfig, ResetConfig, ValidationConfig
from prorl.control.plan import Plan, Stage, make_plan
from prorl.types import HParams
from support.recipes import recipe

_PLAN = make_plan(recipe(length_penalty={"weight": 0}, stages=[{"at": 0}]))


def some_hparams(**changes: Any) -> HParams:
    return replace(_PLAN.hparams, **({"mixture": {}} | changes))


def some_resets(**changes: Any) -> ResetConfig:
    return _PLAN.reset.model_copy(update={"every": 0} | changes)


def some_validations(**changes: Any) -> ValidationConfig:
    return _PLAN.validation.model_copy(update=changes)


def some_stage(**changes: Any) -> Stage:
    return replace(_PLAN.stages[0], **changes)


def some_detectors(**rows: Any) -> dict[str, DetectorConfig]:
    """The detectors named, with changes to their defaults; all of them as they are where none is named."""
    chosen = DetectorsConfig.model_validate(rows)
    return {name: row for name, row in chosen if name in (rows or DetectorsConfig.model_fields)}


def some_plan(**changes: Any) -> Plan:
    bare = {"hparams": some_hparams(), "schedules": {}, "stages": (), "reset": some_resets(), "detectors": {}}
    return replace(_PLAN, **(bare | changes))
