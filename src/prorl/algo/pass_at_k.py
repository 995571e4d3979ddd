"""Unbiased pass@k (https://arxiv.org/abs/2107.03374)."""

import math


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that one of k responses passes, from c passes among n: 1 - C(n-c, k)/C(n, k).

    Computed in whole numbers and rounded once, so no size of n or k loses precision. Raises ValueError unless
    0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"passes must be between 0 and the number of responses: got {c} of {n}")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs k >= 1 and at least k responses per problem: got {n}")
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws
