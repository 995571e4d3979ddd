"""Which levels are worth drawing for the sake of coverage: overtraining and its gate (arXiv:2606.15455, METHOD §16).

One success nearly saturates a problem for a large k, so a problem counts for what solving it adds to pass@k.
"""

from math import prod


def gate_weight(solved: float, failed: float, k: int) -> float:
    """E[(1-p)^(k-1)] under Beta(1 + solved, 1 + failed): Π_{i<k-1} (b+i)/(a+b+i). At k = 1, the off value, 1."""
    a, b = 1 + solved, 1 + failed
    return prod((b + i) / (a + b + i) for i in range(k - 1))
