"""The measurement base → trained of a run in a few numbers, from the studies below its `evals/`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prorl.lab.evals.comparison import Move, compare, paired
from prorl.lab.evals.evaluation_store import BASE, SLIM, Study, read_study, step_of, studies
from prorl.rollout.validation import Part
from prorl.run.layout import EVALS


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """pass@k of base and trained model on the same problems."""

    study: str
    step: int | None  # of the trained model; None for one from elsewhere
    part: Part
    domain: str  # or `MEAN` of evals/rates.py: over domains, which weigh alike
    k: int
    problems: int
    base: float
    trained: float
    interval: tuple[float, float]  # of trained - base: 95 %, bootstrap over problems


def run_gains(folder: Path, *, up_to: int | None = None) -> list[Gain]:
    """What each study of a run says about its newest checkpoint, of step `up_to` at most; none without a study.

    Raises:
        StorageError: a study cannot be read.
    """
    found: list[Gain] = []
    for name, files in studies(folder):
        trained = [path for path in files if up_to is None or (step_of(path) or 0) <= up_to]
        trained = [path for path in trained if step_of(path) is not None]
        base = folder / EVALS / name / f"{BASE}.parquet"
        if base in files and trained:
            found += gains(name, *(read_study(path, columns=SLIM) for path in (base, trained[-1])))
    return found


def gains(name: str, base: Study, trained: Study) -> list[Gain]:
    """Per part, for each domain and their mean: pass@1, and pass@k for the most responses that both have."""
    parts: dict[Part, list[Move]] = {}
    for move in paired(base.problems, trained.problems):
        parts.setdefault(move.base.part, []).append(move)
    ks = sorted({1, min(base.samples, trained.samples)})
    return [gain for part, moves in parts.items() for gain in _rows(name, trained.step, part, moves, ks)]


def _rows(study: str, step: int | None, part: Part, moves: list[Move], ks: list[int]) -> Iterator[Gain]:
    rows = compare(moves, ks)
    for at, k in enumerate(ks):
        for row in rows:
            difference = row.differences[at]
            yield Gain(
                study=study,
                step=step,
                part=part,
                domain=row.label,
                k=k,
                problems=row.base.problems,
                base=row.base.rates[at],
                trained=row.trained.rates[at],
                interval=(difference.low, difference.high),
            )
