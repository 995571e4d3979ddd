"""The records of a plan with the recipe's defaults, and what a test changes; no reset, detector or length penalty."""

from dataclasses import replace
from typing import Any

from prorl.config.schema import DetectorConfig, DetectorsConfig, ResetConfig, ValidationConfig
from prorl.control.plan import Plan, hparams_at, make_plan
from prorl.types import HParams
from support.recipes import recipe

_PLAN = make_plan(recipe(length_penalty={"weight": 0}))


def some_hparams(**changes: Any) -> HParams:
    return replace(hparams_at(_PLAN, 0), **({"mixture": {}} | changes))


def some_resets(**changes: Any) -> ResetConfig:
    return _PLAN.config.reset.model_copy(update={"every": 0} | changes)


def some_validations(**changes: Any) -> ValidationConfig:
    return _PLAN.config.validation.model_copy(update=changes)


def some_detectors(**rows: Any) -> dict[str, DetectorConfig]:
    """The detectors named, with changes to their defaults; all of them as they are where none is named."""
    chosen = DetectorsConfig.model_validate(rows)
    return {name: row for name, row in chosen if name in (rows or DetectorsConfig.model_fields)}


def some_plan(**changes: Any) -> Plan:
    return planned(_PLAN, **({"reset": some_resets(), "detectors": {}, "mixture": {}} | changes))


def planned(plan: Plan, **changes: Any) -> Plan:
    """The plan with other hyperparameters or schedules of them, under no stage, and other settings of the recipe."""
    if (rows := changes.get("detectors")) is not None:  # those that are named, and no others
        off = {name: row.model_copy(update={"mode": "off"}) for name, row in DetectorsConfig()}
        changes["detectors"] = DetectorsConfig.model_validate(off | rows)
    hparams = {name: changes.pop(name) for name in plan.settings[0].keys() & changes.keys()}
    config = plan.config.model_copy(update=changes)
    settings = (plan.settings[0] | hparams,) * (len(config.stages) + 1)
    return Plan(config=config, settings=settings, levels=plan.levels)
