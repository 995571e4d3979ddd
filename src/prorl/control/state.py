"""Everything the driver remembers between steps, and the one function that changes it.

`RunState` is small and JSON; it is a cache that folding the journal from its first event must reproduce.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pydantic import TypeAdapter

from prorl.algo.adaptive_levels import remembered
from prorl.control import detectors, events
from prorl.control.detectors import Signals

LEVEL_MEMORY = 64  # sums of scores on a task's highest level at most, the older ones of several steps
KL_MEMORY = 32  # steps of KL history kept for the ceiling rule; its window may not be longer
SHARE_MEMORY = 0.8  # weight of the past in the running informative share


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the KL penalty is paid to; the event of its birth says more."""

    name: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLevel:
    """How far a task with adaptive levels has come."""

    highest: int | None = None  # level in play; None: where the recipe starts
    # Of that level, by step: judged rollouts and their mean score, newest last.
    recent: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Driver memory between two steps."""

    config_hash: str = ""  # of the recipe the run goes by
    step: int = 0  # completed steps
    cursor: int = 0  # next draw of the data order
    version: int = 0  # policy version
    stage: int = -1  # index of the last stage entered
    reference: Reference | None = None
    references_born: int = 0
    last_reset: int = 0  # step of the last reset, or of the run's birth
    recent_kls: tuple[float, ...] = ()  # since the last reset, newest last
    best_score: float | None = None
    best_step: int | None = None
    validations_since_best: int = 0
    last_validation: int | None = None
    validation_limit: int | None = None  # tokens, of the last one above zero
    levels: Mapping[str, TaskLevel] = field(default_factory=dict)  # of tasks with adaptive levels
    informative_share: float = 0.5  # running; sizes the first wave of draws
    skipped_updates: int = 0  # since the last applied one
    validations_since_gain: int = 0  # since the best validation of the run, whatever was reset meanwhile
    signals: Signals = field(default_factory=Signals)  # what the detectors remember
    lr_scale: float = 1.0  # of the planned learning rate, ...
    lr_until: int = 0  # ... up to this step
    overrides: Mapping[str, Any] = field(default_factory=dict)  # hparams that the operator holds, by name
    asked: tuple[str, ...] = ()  # commands taken in and still to be carried out before the next step
    roll_back_to: int | None = None  # the step that an asked roll back names, if it names one
    paused: str | None = None  # why no step is made
    inbox: int = 0  # bytes of the inbox read
    obeyed: int = 0  # bytes of the inbox that had been obeyed when the run was last rolled back
    stopped: str | None = None


def evolve(state: RunState, event: events.Event) -> RunState:
    """The state after an event: pure, total over the union, blind to wall-clock times."""
    match event:
        case events.Started():
            first = Reference(name="ref_000", hash=event.reference_hash) if event.reference_hash else None
            return replace(state, config_hash=event.config_hash, reference=first)
        case events.Stepped():
            return _after_step(state, event)
        case events.Validated():
            return _after_validation(state, event)
        case events.ReferenceReset():
            return replace(
                state,
                reference=Reference(name=event.name, hash=event.hash),
                references_born=state.references_born + 1,
                last_reset=event.step,
                recent_kls=(),
                validations_since_best=0,
                signals=detectors.forget(state.signals, ("kl",)),
                asked=_without(state.asked, "reset-reference"),
            )
        case events.StageEntered():
            return replace(state, stage=event.index, signals=detectors.forget(state.signals))
        case events.LevelRaised():
            return replace(state, levels={**state.levels, event.task: TaskLevel(highest=event.level)})
        case events.Intervened():
            return _after_intervention(state, event)
        case events.CommandGiven():
            return _after_command(state, event)
        case events.Stopped():
            # Who takes it up again after a stop wants it to go on; what was asked for otherwise is then done.
            paused = None if "stop" in state.asked else state.paused
            owed = _without(_without(state.asked, "stop"), "save")
            return replace(state, stopped=event.reason, paused=paused, asked=owed)
        case events.Resumed():
            return _after_resume(state, event)
        case events.Warned():
            return state


def fold(journal: Iterable[events.Event]) -> RunState:
    """The state that a whole journal leads to."""
    return reduce(evolve, journal, RunState())


def from_json(data: Mapping[str, Any]) -> RunState:
    """The state whose fields these are; ValueError if it is none, or one of another version."""
    if unknown := data.keys() - RunState.__dataclass_fields__.keys():
        raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
    return TypeAdapter(RunState).validate_python(data)


def _after_step(state: RunState, event: events.Stepped) -> RunState:
    rollout_stats, update = event.rollout_stats, event.update
    share = state.informative_share
    if rollout_stats.informative_share is not None:
        share = SHARE_MEMORY * share + (1 - SHARE_MEMORY) * rollout_stats.informative_share
    kls = state.recent_kls
    if update.updates and update.kl is not None:
        kls = (*kls, update.kl)[-KL_MEMORY:]
    skipped = update.skipped_last + (0 if update.updates else state.skipped_updates)
    lowered = event.step < state.lr_until
    levels = dict(state.levels)
    for task, judged in rollout_stats.top_rollouts.items():
        reached = levels.get(task, TaskLevel())
        recent = (*reached.recent, (judged, rollout_stats.top_scores[task]))
        levels[task] = replace(reached, recent=remembered(recent, LEVEL_MEMORY))
    return replace(
        state,
        step=event.step,
        cursor=event.cursor,
        version=event.version,
        recent_kls=kls,
        levels=levels,
        informative_share=share,
        skipped_updates=skipped,
        signals=detectors.after_step(state.signals, event, skipped=skipped),
        lr_scale=state.lr_scale if lowered else 1.0,
        lr_until=state.lr_until if lowered else 0,
        asked=(),
    )


def _after_validation(state: RunState, event: events.Validated) -> RunState:
    # Where nothing passes, no length explains it: that is compared, and found to have collapsed.
    limit = event.response_limit if event.score else state.validation_limit
    if state.validation_limit not in (None, limit):
        state = _without_validations(state)
    gained = state.best_score is None or event.score > state.best_score
    since_gain = 0 if gained else state.validations_since_gain + 1
    return replace(
        state,
        best_score=event.score if gained else state.best_score,
        best_step=event.step if gained else state.best_step,
        validations_since_best=0 if gained else state.validations_since_best + 1,
        validations_since_gain=since_gain,
        last_validation=event.step,
        validation_limit=limit,
        signals=detectors.after_validation(state.signals, event, since_best=since_gain),
        asked=_without(state.asked, "validation"),
    )


def _after_intervention(state: RunState, event: events.Intervened) -> RunState:
    after = replace(
        state,
        asked=_without(state.asked, "roll-back") if event.detector == "command" else state.asked,
        signals=detectors.after_intervention(state.signals, event),
        lr_scale=event.lr_scale,
        lr_until=event.lr_until,
    )
    if event.action == "pause":
        return replace(after, paused=f"{event.detector}: {event.reason}")
    if event.action == "correct_mismatch" or event.corrected:
        after = replace(after, overrides={**state.overrides, **detectors.CORRECTED})
    if event.action == "validation":
        return replace(after, asked=(*_without(state.asked, "validation"), "validation"))
    if event.action == "roll_back":  # the checkpoint may be one that a stop left behind
        # Saved at once: a crash must not forget which commands the roll back has undone.
        return replace(after, stopped=None, obeyed=event.obeyed, asked=("save",), paused=event.paused)
    return after


def _after_command(state: RunState, event: events.CommandGiven) -> RunState:
    after = replace(state, inbox=event.inbox)
    if event.refused is not None:
        return after
    match event.name:
        case "set":
            signals = detectors.after_command(state.signals, state.overrides, event.overrides)
            return replace(after, overrides=event.overrides, signals=signals)
        case "pause":
            return replace(after, paused="told to pause")
        case "resume":
            return replace(after, paused=None)
        case "stop" | "save" | "validation" | "reset-reference" | "roll-back":
            asked = (*_without(state.asked, event.name), event.name)
            return replace(after, asked=asked, roll_back_to=event.settings.get("step"))
        case _:
            return after


def _after_resume(state: RunState, event: events.Resumed) -> RunState:
    after = replace(state, config_hash=event.config_hash, stopped=None)
    if event.branched_from is None:
        return after
    # The branch has an inbox and stages of its own, and holds what its recipe says.
    after = replace(after, signals=Signals(), overrides={}, paused=None, asked=(), inbox=0, obeyed=0)
    after = replace(after, lr_scale=1.0, lr_until=0, validations_since_best=0, validations_since_gain=0)
    after = replace(after, levels={task: replace(level, recent=()) for task, level in state.levels.items()})
    if event.stages is not None:
        after = replace(after, stage=min(state.stage, event.stages - 1))
    if not event.same_validation:
        after = _without_validations(after)
    return after


def _without_validations(state: RunState) -> RunState:
    """The next validation cannot be compared with those until now."""
    signals = replace(state.signals, validations=(), peak=0.0)
    after = replace(state, best_score=None, best_step=None, last_validation=None, signals=signals)
    return replace(after, validations_since_best=0, validations_since_gain=0)


def _without(asked: tuple[str, ...], command: str) -> tuple[str, ...]:
    return tuple(other for other in asked if other != command)
