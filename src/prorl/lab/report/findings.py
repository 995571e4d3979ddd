"""What in a run deserves a look, as sentences with the numbers: rules of thumb for people; nothing acts on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from prorl.run.history import RunHistory

SPAN = 20  # steps at either end that are compared
LEAST = 2 * SPAN  # steps from which on a comparison says something


def findings(run: RunHistory) -> list[str]:
    """Everything that stands out, the gravest first; none is good news."""
    return [*run.notes, *_broken(run), *_drifts(run), *_shares(run), *_domains(run)]


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Means of the first and of the last finite values."""
    finite = [value for value in values if math.isfinite(value)]
    return (fmean(finite[:SPAN]), fmean(finite[-SPAN:])) if finite else (math.nan, math.nan)


def _broken(run: RunHistory) -> Iterator[str]:
    skipped = int(run.steps.total("update.skipped"))
    if skipped:
        yield f"{skipped} updates were skipped because loss or gradient was not finite."
    errors, draws = (run.steps.total(name) for name in ("tally.errors", "tally.draws"))
    if draws and errors / draws > 0.01:
        yield f"{errors / draws:.1%} of all drawn groups were lost to verifier errors: see the verifiers' notes."
    grave = [mark for mark in run.marks if mark.kind == "roll back"]
    if grave:
        yield f"The run was rolled back {_times(len(grave))}; the last time: {grave[-1].text}."


def _drifts(run: RunHistory) -> Iterator[str]:
    if len(run.steps) < LEAST:
        return
    before, after = ends(run.steps.get("update.entropy"))
    if after < 0.5 * before:
        yield f"Entropy fell from {before:.3f} to {after:.3f} nats per token: does the policy still explore?"
    before, after = ends(run.steps.get("tally.length"))
    if after > 2 * before or after < before / 2:
        yield f"Responses went from {before:.0f} to {after:.0f} tokens in the mean: read some."
    before, after = ends(run.steps.get("seconds.total"))
    if after > 1.5 * before:
        yield f"A step takes {after:.3g} s now and took {before:.3g} s at first."


def _shares(run: RunHistory) -> Iterator[str]:
    if not len(run.steps):
        return
    truncated, unanswered = (ends(run.steps.get(f"tally.{name}"))[1] for name in ("truncated", "unanswered"))
    if truncated > 0.1:
        yield f"{truncated:.0%} of responses hit the length limit lately."
    if unanswered > 0.2:
        yield f"{unanswered:.0%} of responses hold no answer in the form asked for lately: a format problem?"
    accepted, drawn = (ends(run.steps.get(f"tally.{name}"))[1] for name in ("accepted", "draws"))
    if drawn and accepted / drawn < 0.2:
        yield f"Only {accepted / drawn:.0%} of drawn problems teach lately: too easy or too hard for this policy."


def _domains(run: RunHistory) -> Iterator[str]:
    """Domains whose exam is no better than at the beginning, while several exams could have shown it."""
    if len(run.validations) < 3:
        return
    for name in run.validations.below("domains"):
        scores = [score for score in run.validations.get(f"domains.{name}") if math.isfinite(score)]
        if len(scores) > 2 and max(scores[1:]) <= scores[0]:
            yield f"No exam in {name} was better than the first one ({scores[0]:.1%})."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
