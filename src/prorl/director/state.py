"""Everything the driver remembers between steps, and the one function that changes it.

`RunState` is small and JSON; it is a cache that folding the journal from its first event must reproduce.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any

from prorl.director.events import (
    Evaluated,
    Event,
    ReferenceReset,
    Resumed,
    StageEntered,
    Started,
    Stepped,
    Stopped,
    Warned,
)

KL_MEMORY = 32  # steps of KL history kept for the ceiling rule; its window may not be longer
SHARE_MEMORY = 0.8  # weight of the past in the running informative share


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Identity of the reference the KL penalty is paid to."""

    name: str
    birth_step: int
    parent: str | None
    reason: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Driver memory at a step boundary."""

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
    exams_since_best: int = 0
    last_exam: int | None = None
    informative_share: float = 0.5  # running; sizes the first wave of draws
    error_share: float = 0.0  # verifier errors in the last step
    skipped_updates: int = 0  # in a row
    sampled_tokens: int = 0
    trained_tokens: int = 0
    stopped: str | None = None


def evolve(state: RunState, event: Event) -> RunState:
    """The state after an event: pure, total over the union, blind to wall-clock times."""
    match event:
        case Started():
            return replace(state, config_hash=event.config_hash, reference=_first_reference(event))
        case Stepped():
            return _after_step(state, event)
        case Evaluated():
            return _after_exam(state, event)
        case ReferenceReset():
            return replace(
                state,
                reference=Reference(
                    name=event.name,
                    birth_step=event.step,
                    parent=event.parent,
                    reason=event.reason,
                    hash=event.hash,
                ),
                references_born=state.references_born + 1,
                last_reset=event.step,
                recent_kls=(),
                exams_since_best=0,
            )
        case StageEntered():
            return replace(state, stage=event.index)
        case Stopped():
            return replace(state, stopped=event.reason)
        case Resumed():
            return replace(state, config_hash=event.config_hash, stopped=None)
        case Warned():
            return state


def fold(events: Iterable[Event]) -> RunState:
    """The state that a whole journal leads to."""
    return reduce(evolve, events, RunState())


def to_json(state: RunState) -> dict[str, Any]:
    """State as plain JSON data."""
    return asdict(state)


def from_json(data: Mapping[str, Any]) -> RunState:
    """The state that `to_json` wrote."""
    reference = data["reference"]
    return RunState(
        **{
            **data,
            "reference": Reference(**reference) if reference else None,
            "recent_kls": tuple(data["recent_kls"]),
        }
    )


def _first_reference(event: Started) -> Reference | None:
    if event.reference_hash is None:
        return None
    return Reference(name="ref_000", birth_step=0, parent=None, reason="start", hash=event.reference_hash)


def _after_step(state: RunState, event: Stepped) -> RunState:
    tally, update = event.tally, event.update
    judged = tally.draws - tally.errors
    share = state.informative_share
    if judged:
        share = SHARE_MEMORY * share + (1 - SHARE_MEMORY) * tally.informative_share
    kls = (*state.recent_kls, update.kl)[-KL_MEMORY:] if update.updates else state.recent_kls
    return replace(
        state,
        step=event.step,
        cursor=event.cursor,
        version=event.version,
        recent_kls=kls,
        informative_share=share,
        error_share=tally.errors / tally.draws if tally.draws else 0.0,
        skipped_updates=state.skipped_updates + update.skipped if update.skipped else 0,
        sampled_tokens=state.sampled_tokens + tally.sampled_tokens,
        trained_tokens=state.trained_tokens + update.action_tokens,
    )


def _after_exam(state: RunState, event: Evaluated) -> RunState:
    if state.best_score is None or event.score > state.best_score:
        return replace(
            state,
            best_score=event.score,
            best_step=event.step,
            exams_since_best=0,
            last_exam=event.step,
        )
    return replace(state, exams_since_best=state.exams_since_best + 1, last_exam=event.step)
