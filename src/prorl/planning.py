"""From a checked recipe to the plan the loop runs by: knobs, schedules, stages, rules."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from prorl.config.detecting import rules
from prorl.config.recipe import RecipeError, check
from prorl.config.schema import KNOBS, RunConfig, StageConfig
from prorl.control.plan import ExamRules, Plan, ResetRules, Stage
from prorl.control.schedules import Cycle, Schedule
from prorl.types import Knobs

LENGTH_CYCLE = ("length_penalty.on_steps", "length_penalty.off_steps", "length_penalty.start_step")


def make_plan(config: RunConfig) -> Plan:
    """The plan of a recipe.

    Raises:
        RecipeError: a stage sets what is not a knob, or its settings contradict each other.
    """
    settings = _settings(config)
    schedules = {name: value for name, value in settings.items() if isinstance(value, Schedule)}
    first = {name: schedule.at(0) for name, schedule in schedules.items()}
    plan = Plan(
        seed=config.seed,
        steps=config.steps,
        knobs=Knobs(**(settings | first)),
        schedules=schedules,
        stages=_stages(config),
        reset=ResetRules(**config.reset.model_dump()),
        exam=ExamRules(**config.exam.model_dump()),
        save_every=config.save.every,
        max_staleness=config.sampling.max_staleness,
        detectors=rules(config.detectors),
        sample_every=config.sample_every,
    )
    if not plan.needs_reference:
        _require_no_resets(config)
    return plan


def _require_no_resets(config: RunConfig) -> None:
    """For a run without a reference: one whose KL penalty is 0 in the recipe and in every stage."""
    reset = config.reset
    if (
        reset.every
        or reset.stalled_exams
        or reset.kl_ceiling is not None
        or any(stage.reset_reference for stage in config.stages)
    ):
        raise RecipeError(
            f"{config.name}: a reference reset means nothing with kl.coef 0 at every step, as no reference is held: "
            "set reset.every=0 reset.stalled_exams=0 reset.kl_ceiling=null, or a kl.coef above 0"
        )
    for name, row in config.detectors:
        if (row.mode, row.action) == ("act", "reset_reference"):
            raise RecipeError(
                f"{config.name}: detectors.{name} resets the reference, which means nothing with kl.coef 0 at every "
                "step: give it another action"
            )


def _settings(config: RunConfig) -> dict[str, Any]:
    """Every knob by name: a constant, or a schedule where the recipe says one."""
    settings: dict[str, Any] = {"mixture": {name: task.weight for name, task in config.tasks.items()}}
    for key, knob in KNOBS.items():
        section, name = key.split(".")
        value = getattr(getattr(config, section), name)
        settings[knob] = value.schedule() if hasattr(value, "schedule") else value
    penalty = config.length_penalty
    if penalty.weight:
        settings["length_weight"] = Cycle(
            on=penalty.weight,
            off=0.0,
            on_steps=penalty.on_steps,
            off_steps=penalty.off_steps,
            start_step=penalty.start_step,
        )
    return settings


def _stages(config: RunConfig) -> tuple[Stage, ...]:
    """Each stage as the knobs that it changes; its settings are checked like a recipe's own."""
    stages: list[Stage] = []
    data = config.model_dump() | {"stages": ()}
    before = _settings(config)
    for stage in config.stages:
        apply_stage(data, stage)
        after = _settings(check(data, f"stage at step {stage.at}"))
        changed = {name: value for name, value in after.items() if value != before[name]}
        stages.append(
            Stage(
                at=stage.at,
                knobs=changed,
                reset_reference=stage.reset_reference,
                optimizer=stage.optimizer,
            )
        )
        before = after
    return tuple(stages)


def apply_stage(data: dict[str, Any], stage: StageConfig) -> None:
    """Change a recipe's plain data in place to what holds from a stage on.

    Raises:
        RecipeError: the stage sets what is not a knob.
    """
    known = (*KNOBS, *LENGTH_CYCLE)
    for key, value in stage.set.items():
        if key not in known:
            near = get_close_matches(key, known, n=1, cutoff=0.8)
            hint = f"did you mean {near[0]!r}?" if near else f"what can: {', '.join(known)}"
            raise RecipeError(f"stage at step {stage.at}: {key!r} cannot change during a run; {hint}")
        section, name = key.split(".")
        data[section][name] = value
    for task, weight in stage.mixture.items():
        data["tasks"][task]["weight"] = weight
