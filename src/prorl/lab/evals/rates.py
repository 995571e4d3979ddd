"""Pass rates of sets of problems, with bootstrap intervals over problems; averages over domains weigh domains alike.

Everything is a function of counts per problem, so every view (a task, a level, answered responses only) is the same
few functions on other problems.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from prorl.algo.pass_at_k import Array, bootstrap_means, pass_rates, percentiles
from prorl.lab.evals.study import ProblemResult

Key = TypeVar("Key")

MEAN = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """pass@k (or maj@k) over a set of problems, with a 95 % bootstrap interval over problems at every k."""

    label: str
    problems: int
    ks: tuple[int, ...]
    rates: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def at(self, k: int) -> float:
        """The rate at k.

        Raises:
            ValueError: this k was not asked for.
        """
        return self.rates[self.ks.index(k)]


def powers_up_to(largest: int) -> tuple[int, ...]:
    """1, 2, 4, … and `largest` itself: the k's of a study.

    >>> powers_up_to(12)
    (1, 2, 4, 8, 12)
    """
    return (*(2**power for power in range((largest - 1).bit_length())), largest)


def by_domain(problem: ProblemResult) -> str:
    """What groups problems by domain."""
    return problem.domain


def by_task(problem: ProblemResult) -> str:
    """What groups problems by task."""
    return problem.task


def by_level(problem: ProblemResult) -> int:
    """What groups the problems of a task by difficulty."""
    return problem.level


def grouped(
    problems: Iterable[ProblemResult], by: Callable[[ProblemResult], Key]
) -> dict[Key, list[ProblemResult]]:
    """Problems by what `by` says of them, in order of first appearance."""
    groups: dict[Key, list[ProblemResult]] = defaultdict(list)
    for problem in problems:
        groups[by(problem)].append(problem)
    return dict(groups)


def rates(problems: Sequence[ProblemResult], ks: Sequence[int]) -> Array:
    """Unbiased pass@k of every problem: shape (problems, ks)."""
    return pass_rates([(problem.samples, problem.solved) for problem in problems], ks)


def curve(
    label: str,
    problems: Sequence[ProblemResult],
    ks: Sequence[int],
    *,
    rates_PK: Array | None = None,
    seed: int = 0,
) -> Curve:
    """The curve of a set of problems, domains weighed alike; of pass@k, or of the rates given per problem.

    Raises:
        ValueError: there are no problems.
    """
    values = rates(problems, ks) if rates_PK is None else rates_PK
    domains = [problem.domain for problem in problems]
    low, high = percentiles(bootstrap_means(values, seed=seed, strata=domains))
    return Curve(
        label=label,
        problems=len(problems),
        ks=tuple(ks),
        rates=tuple(mean_over_domains(values, domains)),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
    )


def curves(
    problems: Sequence[ProblemResult],
    ks: Sequence[int],
    *,
    by: Callable[[ProblemResult], object] = by_domain,
    seed: int = 0,
) -> list[Curve]:
    """A curve per group, and last the mean over domains; none without problems."""
    if not problems:
        return []
    groups = grouped(problems, by)
    return [
        *(curve(str(key), members, ks, seed=seed) for key, members in groups.items()),
        curve(MEAN, problems, ks, seed=seed),
    ]


def domain_rates(problems: Sequence[ProblemResult], k: int) -> dict[str, float]:
    """pass@k per domain, averaged over its problems, without intervals."""
    groups = grouped(problems, by_domain)
    return {domain: fmean(rates(members, (k,))[:, 0].tolist()) for domain, members in groups.items()}


def mean_over_domains(values_PK: Array, domains: Sequence[str]) -> list[float]:
    """Column means over problems, each domain weighed alike however many problems it has."""
    names = list(dict.fromkeys(domains))
    means = [values_PK[[domain == name for domain in domains]].mean(axis=0) for name in names]
    return [float(value) for value in sum(means) / len(means)]


def answered_only(problems: Iterable[ProblemResult], *others: Iterable[ProblemResult]) -> list[ProblemResult]:
    """The problems as if only responses that held an answer had been drawn: what is left is not the format.

    Problems without any answered response say nothing and are left out, so read it with the share of unanswered.
    With the results of other models, so are those on which one of these has none: models are compared on the same.
    """
    shared = [{problem.key for problem in other if _answered(problem)} for other in others]
    return [
        replace(problem, samples=_answered(problem), unanswered=0)
        for problem in problems
        if _answered(problem) and all(problem.key in keys for keys in shared)
    ]


def _answered(problem: ProblemResult) -> int:
    return problem.samples - problem.unanswered


def unanswered_share(problems: Sequence[ProblemResult]) -> float:
    """Share of responses without an extractable answer: format failures, apart from wrong answers."""
    return sum(problem.unanswered for problem in problems) / sum(problem.samples for problem in problems)
