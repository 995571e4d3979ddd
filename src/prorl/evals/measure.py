"""The measurement before and after: the same held-out problems for the base and the trained model, paired.

`test` problems are seen by nothing in the run; `ood` problems are larger sizes and families never trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from prorl.algo.pass_at_k import bootstrap_interval, pass_at_k
from prorl.evals.exams import ExamResult, ProblemCount, sit_exam
from prorl.rollout.pipeline import Worker
from prorl.seeds import derive
from prorl.stopwatch import Stopwatch
from prorl.tasks.mixture import Mixture
from prorl.types import Sampling, Split

PROBLEMS_AT_A_TIME = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One row of the table base → trained. Gains are trained minus base on the same problems."""

    label: str
    problems: int
    base: Mapping[int, float]  # k → pass@k
    trained: Mapping[int, float]
    gain: float  # in pass@1
    interval: tuple[float, float]  # 95 %, bootstrap over problems


def measure(
    worker: Worker,
    tasks: Mixture,
    *,
    sizes: Mapping[Split, int],
    samples: int,
    sampling: Sampling,
    seed: int,
    progress: Callable[[int, int, str], None],
    clock: Stopwatch | None = None,
) -> dict[Split, ExamResult]:
    """Sit the final exams: `sizes` says how many problems per domain each split has."""
    problems = {split: tasks.exam_problems(split, size) for split, size in sizes.items() if size}
    total, done = sum(map(len, problems.values())), 0
    results: dict[Split, ExamResult] = {}
    for split, chosen in problems.items():
        counts: list[ProblemCount] = []
        for start in range(0, len(chosen), PROBLEMS_AT_A_TIME):
            part = chosen[start : start + PROBLEMS_AT_A_TIME]
            counts += sit_exam(
                worker,
                part,
                samples=samples,
                sampling=sampling,
                seed=derive(seed, "measure", split, start),
                pass_threshold=tasks.pass_threshold,
                clock=clock,
            ).counts
            done += len(part)
            progress(done, total, f"problems, {samples} samples each")
        results[split] = ExamResult(counts=tuple(counts))
    return results


def compare(base: ExamResult, trained: ExamResult, *, ks: Sequence[int], seed: int = 0) -> list[Comparison]:
    """A row per domain, and last the mean over domains, on the problems that both results hold; none without any."""
    base, trained = _paired(base, trained)
    gains = _gains(base, trained)
    if not gains:
        return []
    before = {k: base.pass_at(k) for k in ks}
    after = {k: trained.pass_at(k) for k in ks}
    rows = [
        Comparison(
            label=domain,
            problems=len(values),
            base={k: before[k][domain] for k in ks},
            trained={k: after[k][domain] for k in ks},
            gain=fmean(values),
            interval=bootstrap_interval(values, seed=derive(seed, domain)),
        )
        for domain, values in gains.items()
    ]
    mean = Comparison(
        label="mean",
        problems=len(base.counts),
        base={k: fmean(before[k].values()) for k in ks},
        trained={k: fmean(after[k].values()) for k in ks},
        gain=fmean(row.gain for row in rows),
        interval=bootstrap_interval(_domains_alike(gains), seed=derive(seed, "mean")),
    )
    return [*rows, mean]


def _paired(base: ExamResult, trained: ExamResult) -> tuple[ExamResult, ExamResult]:
    """Both results on their common problems, in one order: a verifier's error may have cost either a problem."""
    old = {(count.task, count.split, count.index): count for count in base.counts}
    new = {(count.task, count.split, count.index): count for count in trained.counts}
    common = [key for key in old if key in new]
    return (
        ExamResult(counts=tuple(old[key] for key in common)),
        ExamResult(counts=tuple(new[key] for key in common)),
    )


def _gains(base: ExamResult, trained: ExamResult) -> dict[str, list[float]]:
    """Per domain, each problem's gain in pass@1."""
    after = trained.domains()
    return {
        domain: [
            pass_at_k(new.samples, new.solved, 1) - pass_at_k(old.samples, old.solved, 1)
            for old, new in zip(counts, after[domain], strict=True)
        ]
        for domain, counts in base.domains().items()
    }


def _domains_alike(gains: Mapping[str, Sequence[float]]) -> list[float]:
    """Every problem's gain, scaled so that their mean is the mean over domains of different sizes."""
    share = sum(map(len, gains.values())) / len(gains)
    return [gain * share / len(values) for values in gains.values() for gain in values]
