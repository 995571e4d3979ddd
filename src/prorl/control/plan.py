"""The plan of a run: every hyperparameter at every step, and the rules for decisions. It never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from prorl.config.recipe import RecipeError, check, nearest
from prorl.config.schema import (
    HPARAMS,
    DetectorConfig,
    ResetConfig,
    RunConfig,
    Schedule,
    StageConfig,
    ValidationConfig,
    setting,
)
from prorl.types import HParams

if TYPE_CHECKING:
    from prorl.control.state import RunState

LENGTH_CYCLE = ("length_penalty.on_steps", "length_penalty.off_steps", "length_penalty.start_step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """From step `at` on, these hyperparameters are different; entering it may reset the reference, as v1 did."""

    at: int
    hparams: Mapping[str, Any]  # name → constant or Schedule
    reset_reference: bool
    optimizer: Literal["keep", "clear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the loop needs to know about a run, as plain data. Rules are the recipe's own sections."""

    seed: int
    steps: int
    hparams: HParams
    schedules: Mapping[str, Schedule]  # hparam name → schedule over the run
    stages: tuple[Stage, ...]  # by ascending step
    reset: ResetConfig
    validation: ValidationConfig
    save_every: int  # steps
    max_staleness: int  # updates that the policy may be ahead of the weights that sampled; 0 = on-policy
    sample_every: int  # steps between written sample rollouts; 0 = never
    detectors: Mapping[str, DetectorConfig]  # those that are on

    @property
    def needs_reference(self) -> bool:
        """Whether a KL penalty is paid at any step; without one no reference is ever loaded."""
        said = [self.hparams.kl_coef, self.schedules.get("kl_coef", 0)]
        said += [stage.hparams.get("kl_coef", 0) for stage in self.stages]
        return any(isinstance(coef, Schedule) or coef > 0 for coef in said)


def make_plan(config: RunConfig) -> Plan:
    """The plan of a recipe.

    Raises:
        RecipeError: a stage sets what cannot change, or its settings contradict each other; or the recipe resets a
            reference that it never needs.
    """
    settings = _settings(config)
    schedules = {name: value for name, value in settings.items() if isinstance(value, Schedule)}
    plan = Plan(
        seed=config.seed,
        steps=config.steps,
        hparams=HParams(**{name: _value(value, 0) for name, value in settings.items()}),
        schedules=schedules,
        stages=_stages(config, settings),
        reset=config.reset,
        validation=config.validation,
        save_every=config.save.every,
        max_staleness=config.sampling.max_staleness,
        detectors={name: row for name, row in config.detectors if row.mode != "off"},
        sample_every=config.sample_every,
    )
    if not plan.needs_reference:
        _require_no_resets(config)
    return plan


def hparams_at(plan: Plan, step: int) -> HParams:
    """Every hyperparameter at a step as planned: constants, schedules, and what the stages entered so far changed."""
    settings: dict[str, Any] = dict(plan.schedules)
    for stage in plan.stages:
        if stage.at <= step:
            settings |= stage.hparams
    return replace(plan.hparams, **{name: _value(value, step) for name, value in settings.items()})


def hparams_now(plan: Plan, state: RunState) -> HParams:
    """Every hyperparameter of the step that begins: the plan, what the operator holds instead, and a lowered rate."""
    hparams = replace(hparams_at(plan, state.step), **state.overrides)
    return replace(hparams, learning_rate=hparams.learning_rate * state.lr_scale)


def apply_stage(data: dict[str, Any], stage: StageConfig) -> None:
    """Change a recipe's plain data in place to what holds from a stage on.

    Raises:
        RecipeError: the stage sets what cannot change during a run.
    """
    known = (*HPARAMS, *LENGTH_CYCLE)
    for key, value in stage.set.items():
        if key not in known:
            hint = nearest(key, known, f"what can: {', '.join(known)}", cutoff=0.8)
            raise RecipeError(f"stage at step {stage.at}: {key!r} cannot change during a run; {hint}")
        section, name = key.split(".")
        data[section][name] = value
    for task, weight in stage.mixture.items():
        data["tasks"][task]["weight"] = weight


def _settings(config: RunConfig) -> dict[str, Any]:
    """Every hyperparameter by name: a constant, or a schedule where the recipe says one."""
    settings: dict[str, Any] = {name: setting(config, key) for key, name in HPARAMS.items()}
    settings["mixture"] = {name: task.weight for name, task in config.tasks.items()}
    if config.length_penalty.weight:
        settings["length_weight"] = config.length_penalty
    return settings


def _stages(config: RunConfig, before: Mapping[str, Any]) -> tuple[Stage, ...]:
    """Each stage as the hyperparameters that it changes; its settings are checked like a recipe's own."""
    stages: list[Stage] = []
    data = config.model_dump() | {"stages": ()}
    for stage in config.stages:
        apply_stage(data, stage)
        after = _settings(check(data, f"stage at step {stage.at}"))
        changed = {name: value for name, value in after.items() if value != before[name]}
        kept = stage.model_dump(include={"at", "reset_reference", "optimizer"})
        stages.append(Stage(hparams=changed, **kept))
        before = after
    return tuple(stages)


def _require_no_resets(config: RunConfig) -> None:
    """For a run without a reference: one whose KL penalty is 0 in the recipe and in every stage."""
    reset = config.reset
    rules = reset.every or reset.stalled_validations or reset.kl_ceiling is not None
    if rules or any(stage.reset_reference for stage in config.stages):
        raise RecipeError(
            f"{config.name}: a reference reset means nothing with kl.coef 0 at every step, as no reference is held: "
            "set reset.every=0 reset.stalled_validations=0 reset.kl_ceiling=null, or a kl.coef above 0"
        )
    for name, row in config.detectors:
        if (row.mode, row.action) == ("act", "reset_reference"):
            raise RecipeError(
                f"{config.name}: detectors.{name} resets the reference, which means nothing with kl.coef 0 at every "
                "step: give it another action"
            )


def _value(said: Any, step: int) -> Any:
    return said.at(step) if isinstance(said, Schedule) else said
