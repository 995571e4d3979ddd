"""Dynamic sampling: which groups teach, and how many to draw for them. Only raw scores decide, never shaped rewards.

A spread threshold instead of "not all right and not all wrong" (DAPO, https://arxiv.org/abs/2503.14476) also
drops groups of identical fractional scores, and groups that differ only by the 0.01-0.05 that some verifiers
give to an answer that is wrong but readable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST_SHARE = 0.2  # expected of a wave: a share near zero must not ask for the moon
TOLERANCE = 1e-9  # 0.3 - 0.2 is a spread of 0.1, although not in binary floating point


def is_informative(scores: Sequence[float], min_spread: float = 0.1) -> bool:
    """Whether max(s) - min(s) >= min_spread; 0 is the off value, which accepts every group.

    Raises:
        ValueError: there are no scores, one of them is not finite, or the spread is negative.
    """
    if not scores:
        raise ValueError("a group without scores cannot be judged")
    if not all(math.isfinite(score) for score in scores):
        raise ValueError("a score is not finite: drop groups with verifier errors first")
    if not min_spread >= 0:
        raise ValueError(f"min_spread must be at least 0: got {min_spread}")
    return max(scores) - min(scores) >= min_spread - TOLERANCE


def wave_size(missing: int, share: float, margin: float = 0.0) -> int:
    """Groups to draw so that `missing` of them may be expected to teach, if a share of all groups does.

    `margin` is how many standard deviations of that yield are drawn beyond it. Without any, half of all waves
    fall short by a few groups, whose own wave then lasts as long as its longest response.
    """
    share = max(share, LEAST_SHARE)
    return math.ceil((missing + margin * math.sqrt(missing * (1 - share))) / share)
