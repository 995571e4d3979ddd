"""What the detectors see (METHOD §8): one reading per step or exam and detector, free of thresholds, bounded.

A reading says how unusual something is; what is too much is a rule of the plan, so that folding the journal
needs no plan. Where a reading is relative, it is so to the median of the last `HISTORY` steps, and there is
none before `LEAST` of them. Values that are not finite leave no trace: the counter of refused updates tells of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from prorl.algo.unusual import above_usual, divergence, times_usual
from prorl.director.events import DetectorName, Intervened, Stepped

HISTORY = 32  # steps a usual value is the median of
LEAST = 8  # of them, before anything can be unusual
READINGS = 16  # kept per detector; no rule may look further back
EXAMS = 8  # pairs of training and exam score kept

FLOORS: Mapping[str, float] = MappingProxyType(
    {"kl": 0.1, "entropy": 0.05, "grad_norm": 1e-3, "length": 8.0}  # nats, nats, norm, tokens
)
"""What a usual value counts as at least: ten times next to nothing is still next to nothing.

After a reset the KL climbs from zero, many times its recent median; a floor far above that keeps the climb silent.
"""

LOW_IS_BAD: frozenset[DetectorName] = frozenset({"entropy_collapse", "no_signal"})
"""Detectors that look out for readings at or below their threshold; all others, for those at or above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is remembered of one detector."""

    acted: int = 0  # times in this run, roll backs and what they undid included
    last: int | None = None  # step at which it last warned or acted
    rearm: float | None = None  # it sees nothing until a reading is calm by this level


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Everything the detectors remember, as plain JSON data."""

    history: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # per measure, newest last
    readings: Mapping[str, tuple[tuple[int, float], ...]] = field(
        default_factory=dict
    )  # detector → (step, reading), newest last
    watches: Mapping[str, Watch] = field(default_factory=dict)
    exams: tuple[tuple[float, float], ...] = ()  # (training score since the exam before, exam score)
    scores: tuple[float, ...] = ()  # training scores since the last exam: their sum and number, or nothing

    def watch(self, name: str) -> Watch:
        """What is remembered of a detector, which may be nothing."""
        return self.watches.get(name, Watch())


def is_hot(name: str, reading: float, level: float) -> bool:
    """Whether a reading is as bad as `level` or worse."""
    return reading <= level if name in LOW_IS_BAD else reading >= level


def after_step(signals: Signals, event: Stepped, *, skipped: int) -> Signals:
    """Take in a step; `skipped` counts the refused updates in a row, those of this step included."""
    measures = {name: value for name, value in _measures(event) if math.isfinite(value)}
    total, number = signals.scores or (0.0, 0.0)
    read = _with_readings(
        signals, event.step, dict(_step_readings(event, signals.history, measures, skipped))
    )
    return replace(
        read,
        history={**signals.history, **{n: _push(signals.history, n, v) for n, v in measures.items()}},
        scores=(total + event.tally.score, number + 1.0) if event.tally.rollouts else signals.scores,
    )


def after_exam(signals: Signals, step: int, score: float, *, since_best: int) -> Signals:
    """Take in an exam; `since_best` counts those since the best one. One before any step has no pair."""
    exams = signals.exams
    if signals.scores:
        total, number = signals.scores
        exams = (*exams, (total / number, score))[-EXAMS:]
    read = _with_readings(
        signals, step, {"reward_hacking": divergence(exams), "stalled_exam": float(since_best)}
    )
    return replace(read, exams=exams, scores=())


def after_intervention(signals: Signals, event: Intervened) -> Signals:
    """Remember that a detector spoke; the counts of all are the event's, as a roll back forgets its own past."""
    watches = {name: replace(signals.watch(name), acted=count) for name, count in event.acted.items()}
    own = replace(
        watches.get(event.detector, signals.watch(event.detector)), last=event.step, rearm=event.rearm
    )
    return replace(signals, watches={**signals.watches, **watches, event.detector: own})


def forget(signals: Signals, *measures: str) -> Signals:
    """Let what is usual form anew, of some measures or of all: what changed them is known and wanted."""
    kept = {name: values for name, values in signals.history.items() if measures and name not in measures}
    return replace(signals, history=kept)


def from_json(data: Mapping[str, Any]) -> Signals:
    """The signals that `dataclasses.asdict` turned into plain data."""
    return Signals(
        history={name: tuple(values) for name, values in data["history"].items()},
        readings={name: tuple((at, value) for at, value in r) for name, r in data["readings"].items()},
        watches={name: Watch(**watch) for name, watch in data["watches"].items()},
        exams=tuple((trained, examined) for trained, examined in data["exams"]),
        scores=tuple(data["scores"]),
    )


def _measures(event: Stepped) -> Iterator[tuple[str, float]]:
    """What a step measured; a step without updates or verdicts says nothing about what they would have been."""
    tally, update = event.tally, event.update
    if update.updates:
        yield "entropy", update.entropy
        yield "grad_norm", update.grad_norm
    if update.updates and event.kl_coef > 0:
        yield "kl", update.kl
    if tally.draws > tally.errors:
        yield "length", tally.length
        yield "truncated", tally.truncated


def _step_readings(
    event: Stepped, history: Mapping[str, tuple[float, ...]], measures: Mapping[str, float], skipped: int
) -> Iterator[tuple[DetectorName, float | None]]:
    def times(measure: str) -> float | None:
        if measure not in measures:
            return None
        earlier = history.get(measure, ())
        return times_usual(measures[measure], earlier, floor=FLOORS[measure], least=LEAST)

    tally = event.tally
    yield "non_finite", float(skipped)
    yield "kl_spike", times("kl")
    yield "entropy_collapse", measures.get("entropy")
    yield "entropy_surge", times("entropy")
    yield "gradient_spike", times("grad_norm")
    yield "length_blowup", times("length")
    if "truncated" in measures:
        yield (
            "truncation_blowup",
            above_usual(measures["truncated"], history.get("truncated", ()), least=LEAST),
        )
    if tally.draws:
        yield "verifier_errors", tally.errors / tally.draws
    if tally.draws > tally.errors:
        yield "no_signal", tally.informative_share


def _with_readings(signals: Signals, step: int, found: Mapping[DetectorName, float | None]) -> Signals:
    """Append readings, and let the detectors that they calm look out again."""
    new: dict[str, tuple[int, float]] = {
        name: (step, reading) for name, reading in found.items() if reading is not None
    }
    watches = dict(signals.watches)
    for name, (_, reading) in new.items():
        rearm = signals.watch(name).rearm
        if rearm is not None and not is_hot(name, reading, rearm):
            watches[name] = replace(watches[name], rearm=None)
    kept = {name: (*signals.readings.get(name, ()), reading)[-READINGS:] for name, reading in new.items()}
    return replace(signals, readings={**signals.readings, **kept}, watches=watches)


def _push(history: Mapping[str, tuple[float, ...]], name: str, value: float) -> tuple[float, ...]:
    return (*history.get(name, ()), value)[-HISTORY:]
