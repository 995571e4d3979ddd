"""The plan of a run: its recipe, whose rules decide, and every hyperparameter at every step. It never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from prorl.algo.adaptive_levels import level_weights
from prorl.config.fields import RampConfig, Schedule
from prorl.config.recipe import RecipeError, check
from prorl.config.schema import HPARAMS, AdaptiveConfig, DetectorConfig, RunConfig, StageConfig, setting
from prorl.envs.base import ProceduralTask
from prorl.envs.errors import nearest
from prorl.envs.registry import make_task
from prorl.types import HParams

if TYPE_CHECKING:
    from prorl.control.state import RunState

LENGTH_CYCLE = ("length_penalty.on_steps", "length_penalty.off_steps", "length_penalty.start_step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A recipe, and what it says of the hyperparameters at every step."""

    config: RunConfig
    # Hyperparameter → constant or schedule: as the run begins, and from each stage on.
    settings: tuple[Mapping[str, Any], ...]
    # Of tasks with adaptive levels: all that may come into play, lowest first.
    levels: Mapping[str, tuple[int, ...]]

    @property
    def detectors(self) -> dict[str, DetectorConfig]:
        """Those that are on."""
        return {name: row for name, row in self.config.detectors if row.mode != "off"}

    @property
    def adaptive(self) -> dict[str, AdaptiveConfig]:
        """How the levels of tasks are raised, of those whose levels are adaptive."""
        return {name: task.adaptive for name, task in self.config.tasks.items() if task.adaptive}

    @property
    def needs_reference(self) -> bool:
        """Whether a KL penalty is paid at any step; without one no reference is ever loaded."""
        said = [settings["kl_coef"] for settings in self.settings]
        return any(isinstance(coef, Schedule) or coef > 0 for coef in said)


def make_plan(config: RunConfig) -> Plan:
    """The plan of a recipe.

    RecipeError as `staged`, where it resets a reference that it never needs, and for adaptive levels that start
    elsewhere than at one of the task's. A ramp of a stage counts from its own start: one that is over is refused.
    """
    settings = [_settings(config)]
    for number, stage in enumerate(config.stages, start=1):
        source = f"stage at step {stage.at}"
        after = staged(config, config.stages[:number], source)
        for key, ramp in ((key, setting(after, key)) for key in stage.set):
            if isinstance(ramp, RampConfig) and ramp.start_step + ramp.steps <= stage.at:
                raise RecipeError(f"{source}: the ramp of {key} ends before it: say start_step: {stage.at}")
        settings.append(_settings(after))
    plan = Plan(config=config, settings=tuple(settings), levels=_adaptive_levels(config))
    if not plan.needs_reference:
        _require_no_resets(config)
    return plan


def hparams_at(plan: Plan, step: int) -> HParams:
    """Every hyperparameter at a step as planned: constants, schedules, and what the stages entered so far changed."""
    entered = sum(stage.at <= step for stage in plan.config.stages)
    said: dict[str, Any] = dict(plan.settings[entered])
    return HParams(**said | {n: value.at(step) for n, value in said.items() if isinstance(value, Schedule)})


def hparams_now(plan: Plan, state: RunState) -> HParams:
    """Every hyperparameter of the step that begins: the plan, what the operator holds instead, and a lowered rate."""
    hparams = replace(hparams_at(plan, state.step), **state.overrides)
    levels = {}
    for name, rules in plan.adaptive.items():
        highest = highest_level(plan, state, name)
        levels[name] = level_weights(plan.levels[name], highest, window=rules.window, replay=rules.replay)
    return replace(hparams, levels=levels, learning_rate=hparams.learning_rate * state.lr_scale)


def highest_level(plan: Plan, state: RunState, task: str) -> int:
    """The highest level in play of a task with adaptive levels."""
    start, reached = plan.adaptive[task].start, state.levels.get(task)
    return start if reached is None or reached.highest is None else max(start, reached.highest)


def staged(config: RunConfig, stages: Sequence[StageConfig], source: str) -> RunConfig:
    """The recipe as these stages leave it.

    RecipeError where one sets what cannot change during a run, or settings contradict each other.
    """
    data, known = config.model_dump() | {"stages": ()}, (*HPARAMS, *LENGTH_CYCLE)
    for stage in stages:
        for key, value in stage.set.items():
            if key not in known:
                hint = nearest(key, known, f"what can: {', '.join(known)}", cutoff=0.8)
                raise RecipeError(f"stage at step {stage.at}: {key!r} cannot change during a run; {hint}")
            section, name = key.split(".")
            data[section][name] = value
        for task, weight in stage.mixture.items():
            data["tasks"][task]["weight"] = weight
    return check(data, source)


def _adaptive_levels(config: RunConfig) -> dict[str, tuple[int, ...]]:
    found = {}
    for name, task in config.tasks.items():
        if task.adaptive is not None:
            levels = tuple(sorted(level for level, weight in task.levels.items() if weight))
            if not levels:
                made = make_task(name, own=task.use)
                if not isinstance(made, ProceduralTask):
                    raise RecipeError(f"tasks.{name}.adaptive: this task has no levels to choose from")
                levels = made.levels
            found[name] = levels
            if task.adaptive.start not in levels:
                raise RecipeError(
                    f"tasks.{name}.adaptive.start is {task.adaptive.start}, which is none of its levels: "
                    f"{', '.join(map(str, levels))}"
                )
    return found


def _settings(config: RunConfig) -> dict[str, Any]:
    """Every hyperparameter by name: a constant, or a schedule where the recipe says one."""
    settings: dict[str, Any] = {name: setting(config, key) for key, name in HPARAMS.items()}
    settings["mixture"] = {name: task.weight for name, task in config.tasks.items()}
    settings["levels"] = {}
    if config.length_penalty.weight:
        settings["length_weight"] = config.length_penalty
    return settings


def _require_no_resets(config: RunConfig) -> None:
    """For a run without a reference: one whose KL penalty is 0 in the recipe and in every stage."""
    rules = ("every", "stalled_validations", "kl_ceiling")
    resets = [f"reset.{name}" for name in rules if getattr(config.reset, name)]
    resets += [f"stage at step {stage.at}" for stage in config.stages if stage.reset_reference]
    acting = ("act", "reset_reference")
    resets += [f"detectors.{name}" for name, row in config.detectors if (row.mode, row.action) == acting]
    if resets:
        raise RecipeError(
            f"{config.name}: a reference reset means nothing with kl.coef 0 at every step, as no reference is held: "
            f"take out {', '.join(resets)}, or set a kl.coef above 0"
        )
