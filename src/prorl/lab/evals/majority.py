"""Majority vote: how often the most frequent answer of k responses is right (maj@k)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from prorl.algo.pass_at_k import Array
from prorl.envs.seeds import derive
from prorl.lab.evals.study import ProblemResult

DRAWS = 200  # of k responses per problem; the error of a mean over 100 problems is then below half a point


def voting(problems: Iterable[ProblemResult], *others: Iterable[ProblemResult]) -> list[ProblemResult]:
    """The problems that can be voted on: not those whose answers are programs, of which no two are alike.

    With the results of other models only those on which each of these can vote as well: a model that answers with
    silence where the others write programs would be compared on problems of its own.
    """
    shared = [{problem.key for problem in other if _votable(problem)} for other in others]
    return [
        problem for problem in problems if _votable(problem) and all(problem.key in keys for keys in shared)
    ]


def majority_rates(
    problems: Sequence[ProblemResult], ks: Sequence[int], *, seed: int = 0, draws: int = DRAWS
) -> Array:
    """Expected accuracy of the most frequent answer among k responses of every problem: shape (problems, ks).

    k of the n responses are drawn without replacement, `draws` times. Tied answers share the vote; responses without
    an answer have none; where nobody votes the problem is not solved. An answer that was judged both right and wrong
    counts by its share of right ones.
    """
    return np.array(
        [
            [_accuracy(problem, min(k, problem.samples), draws, derive(seed, *problem.key, k)) for k in ks]
            for problem in problems
        ],
        dtype=np.float64,
    ).reshape(len(problems), len(ks))


def _votable(problem: ProblemResult) -> bool:
    return bool(problem.votes) or problem.unanswered == problem.samples


def _accuracy(problem: ProblemResult, k: int, draws: int, seed: int) -> float:
    counts: dict[str, int] = {}
    right: dict[str, int] = {}
    for vote in problem.votes:
        counts[vote.answer] = counts.get(vote.answer, 0) + vote.count
        right[vote.answer] = right.get(vote.answer, 0) + vote.count * vote.solved
    if not any(right.values()):
        return 0.0
    share_A = np.array([right[answer] / counts[answer] for answer in counts])
    silent = problem.samples - sum(counts.values())
    rng = np.random.default_rng(seed)
    drawn_DA = rng.multivariate_hypergeometric([*counts.values(), silent], k, size=draws, method="count")[
        :, :-1
    ]
    best_D1 = drawn_DA.max(axis=1, keepdims=True)
    won_DA = (drawn_DA == best_D1) & (best_D1 > 0)
    accuracy_D = (won_DA @ share_A) / np.maximum(won_DA.sum(axis=1), 1)
    return float(accuracy_D.mean())
