"""Pass@k: its estimate, and an objective that keeps it, before the advantage (docs/method.md).

The mean score rewards the problem that is nearly always solved as much as the one that is solved once; the best of k
pays for what is rarely solved (PKPO, https://arxiv.org/abs/2505.15201).
"""

import math
from collections.abc import Sequence
from itertools import accumulate


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that one of k responses passes, from c passes among n: 1 - C(n-c, k)/C(n, k) (arXiv 2107.03374).

    Computed in whole numbers and rounded once, so no size of n or k loses precision. Raises ValueError unless
    0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"passes must be between 0 and the number of responses: got {c} of {n}")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs k >= 1 and at least k responses per problem: got {n}")
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def best_of_k_parts(scores: Sequence[float], k: int) -> list[float]:
    """What each response counts: the mean, over all k of the group with it among them, of the best score of these.

    k = 1, the off value, is its own score. With scores g ascending, it is
    s_i = (C(i-1, k-1)·g_i + Σ_{j>i} C(j-2, k-2)·g_j) / C(n-1, k-1). The gradient of the log-probabilities weighted
    with it is, times k/n, an unbiased estimate of that of max@k (PKPO). Of binary scores with c right: 1 for a right
    one, 1 - C(n-1-c, k-1)/C(n-1, k-1) for a wrong one. A k above n is n.
    """
    n = len(scores)
    k = min(k, n)
    order = sorted(range(n), key=lambda i: scores[i])
    whole = math.comb(n - 1, k - 1)
    # Of those above: Σ_{j>i} C(j-2, k-2)·g_j, with j counted from 1; nothing for k = 1.
    above = [math.comb(j - 1, k - 2) / whole * scores[order[j]] if k > 1 else 0.0 for j in range(1, n)]
    sums = [*reversed(list(accumulate(reversed(above)))), 0.0]
    parts = [0.0] * n
    for rank, place in enumerate(order):
        parts[place] = math.comb(rank, k - 1) / whole * scores[place] + sums[rank]
    return parts
