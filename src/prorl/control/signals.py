"""What the detectors see (METHOD §8): one reading per step or exam and detector, free of thresholds, bounded.

A reading says how unusual something is; what is too much is a rule of the plan, so that folding the journal
needs no plan. Where a reading is relative, it is so to the median of the last `HISTORY` steps, and there is
none before `LEAST` of them. Values that are not finite leave no trace: the counter of refused updates tells of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from prorl.algo.unusual import above_usual, divergence, times_usual
from prorl.control.events import DetectorName, Evaluated, Intervened, Stepped
from prorl.control.metrics import WATCHED

HISTORY = 32  # steps a usual value is the median of
LEAST = 8  # of them, before anything can be unusual
READINGS = 16  # kept per detector; no rule may look further back
EXAMS = 8  # pairs of training and exam score kept

SIGMAS = 4.0  # of an exam's score, by which chance alone is taken to move it at most

MOVES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"temperature": ("entropy", "length", "truncated")}
    | dict.fromkeys(("top_p", "response_limit", "length_weight"), ("length", "truncated"))
    | dict.fromkeys(("kl_coef", "kl_estimator"), ("kl",))
)
"""Measures that an order of a knob is meant to move; all others keep what is usual of them."""

LOW_IS_BAD: frozenset[DetectorName] = frozenset({"entropy_collapse", "no_signal", "exam_collapse"})
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
    peak: float = 0.0  # score of the best exam under this recipe

    def watch(self, name: str) -> Watch:
        """What is remembered of a detector, which may be nothing."""
        return self.watches.get(name, Watch())


def is_hot(name: str, reading: float, level: float) -> bool:
    """Whether a reading is as bad as `level` or worse."""
    return reading <= level if name in LOW_IS_BAD else reading >= level


def after_step(signals: Signals, event: Stepped, *, skipped: int) -> Signals:
    """Take in a step; `skipped` counts the refused updates in a row, those of this step included."""
    found = ((name, metric.value(event)) for name, metric in WATCHED)  # None without updates or verdicts
    measures = {n: value for n, value in found if value is not None and math.isfinite(value)}
    total, number = signals.scores or (0.0, 0.0)
    score = event.tally.score
    read = _with_readings(
        signals, event.step, dict(_step_readings(event, signals.history, measures, skipped))
    )
    return replace(
        read,
        history={**signals.history, **{n: _push(signals.history, n, v) for n, v in measures.items()}},
        scores=signals.scores if score is None else (total + score, number + 1.0),
    )


def after_exam(signals: Signals, event: Evaluated, *, since_best: int) -> Signals:
    """Take in an exam; `since_best` counts those since the best one. One before any step has no pair."""
    exams, peak = signals.exams, max(signals.peak, event.score)
    if signals.scores:
        total, number = signals.scores
        exams = (*exams, (total / number, event.score))[-EXAMS:]
    found: dict[DetectorName, float | None] = {
        "reward_hacking": divergence(exams),
        "stalled_exam": float(since_best),
        "exam_collapse": _share_of_peak(event, peak),
    }
    return replace(_with_readings(signals, event.step, found), exams=exams, scores=(), peak=peak)


def after_intervention(signals: Signals, event: Intervened) -> Signals:
    """Remember that a detector spoke; the counts of all are the event's, as a roll back forgets its own past."""
    watches = {name: replace(signals.watch(name), acted=count) for name, count in event.acted.items()}
    own = replace(
        watches.get(event.detector, signals.watch(event.detector)), last=event.step, rearm=event.rearm
    )
    return replace(signals, watches={**signals.watches, **watches, event.detector: own})


def forget(signals: Signals, measures: Collection[str] | None = None) -> Signals:
    """Let what is usual form anew, of some measures or of all: what changed them is known and wanted."""
    gone = signals.history.keys() if measures is None else measures
    return replace(signals, history={n: values for n, values in signals.history.items() if n not in gone})


def after_order(signals: Signals, before: Mapping[str, Any], after: Mapping[str, Any]) -> Signals:
    """Take in that the operator holds other knobs: only what they are meant to move becomes usual anew."""
    changed = {knob for knob, _ in before.items() ^ after.items()}
    return forget(signals, {measure for knob in changed for measure in MOVES.get(knob, ())})


def from_json(data: Mapping[str, Any]) -> Signals:
    """The signals that `dataclasses.asdict` turned into plain data."""
    return Signals(
        history={name: tuple(values) for name, values in data["history"].items()},
        readings={name: tuple((at, value) for at, value in r) for name, r in data["readings"].items()},
        watches={name: Watch(**watch) for name, watch in data["watches"].items()},
        exams=tuple((trained, examined) for trained, examined in data["exams"]),
        scores=tuple(data["scores"]),
        peak=data["peak"],
    )


def _step_readings(
    event: Stepped, history: Mapping[str, tuple[float, ...]], measures: Mapping[str, float], skipped: int
) -> Iterator[tuple[DetectorName, float | None]]:
    floors = {name: metric.usual or 0.0 for name, metric in WATCHED}

    def times(measure: str) -> float | None:
        if measure not in measures:
            return None
        earlier = history.get(measure, ())
        return times_usual(measures[measure], earlier, floor=floors[measure], least=LEAST)

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
    yield "truncated_share", tally.truncated
    yield "unanswered_share", tally.unanswered
    yield "no_signal", tally.informative_share


def _share_of_peak(event: Evaluated, peak: float) -> float | None:
    """The largest share of the best score that an exam of this score may stand for, chance allowed for.

    The problems are the same every time, so that only sampling moves the score: at most by the standard error of a
    share of so many responses. None where nothing can have fallen.
    """
    if not (peak and event.responses):
        return None
    return (event.score + SIGMAS * math.sqrt(peak * (1 - peak) / event.responses)) / peak


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
