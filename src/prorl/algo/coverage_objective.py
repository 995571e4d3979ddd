"""Objectives that keep coverage: what a group's scores count for, before the advantage (METHOD §14).

The mean score rewards the problem that is nearly always solved as much as the one that is solved once; these pay for
what is rarely solved: MaxRL (https://arxiv.org/abs/2602.02710) and pass@k (PKPO, https://arxiv.org/abs/2505.15201).
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal


def objective_scores(
    scores: Sequence[float], objective: Literal["mean", "maxrl", "pass_at_k"], k: int
) -> list[float]:
    """A group's scores as its objective counts them; `mean` is the off value.

    `maxrl`: (s - mean)/mean, and 0 where the mean is 0. `pass_at_k`: `best_of_k_parts`, k at most their number.
    """
    if objective == "maxrl":
        mean = math.fsum(scores) / len(scores)
        return [(score - mean) / mean if mean > 0 else 0.0 for score in scores]
    if objective == "pass_at_k":
        return best_of_k_parts(scores, min(k, len(scores)))
    return list(scores)


def best_of_k_parts(scores: Sequence[float], k: int) -> list[float]:
    """Each response's part in the expected best of k of the group, times n/k: at k = 1 its own score.

    With scores ascending, s_i = (C(i-1, k-1)·g_i + Σ_{j>i} C(j-2, k-2)·g_j) / C(n-1, k-1). The gradient
    of the log-probabilities weighted with it is, times k/n, an unbiased estimate of that of max@k (PKPO). Of binary
    scores with c right: 1 for a right one, 1 - C(n-1-c, k-1)/C(n-1, k-1) for a wrong one.
    """
    n = len(scores)
    order = sorted(range(n), key=lambda i: scores[i])
    whole = math.comb(n - 1, k - 1)
    # Of those above: Σ_{j>i} C(j-2, k-2)·g_j, with j counted from 1; nothing for k = 1.
    above = [math.comb(j - 1, k - 2) / whole * scores[order[j]] if k > 1 else 0.0 for j in range(1, n)]
    sums = [*reversed(list(accumulate(reversed(above)))), 0.0]
    parts = [0.0] * n
    for rank, place in enumerate(order):
        parts[place] = math.comb(rank, k - 1) / whole * scores[place] + sums[rank]
    return parts
