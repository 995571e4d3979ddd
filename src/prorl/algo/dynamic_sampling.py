"""Dynamic sampling: which groups are informative, and how many to draw for them, by raw scores alone.

A spread threshold instead of "not all right and not all wrong" (DAPO, https://arxiv.org/abs/2503.14476) also
drops groups of identical fractional scores, and groups that differ only by the 0.01-0.05 that some verifiers
give to an answer that is wrong but readable.
"""

import math
from collections.abc import Sequence

LEAST_SHARE = 0.2  # lower bound on the expected share of informative groups, to cap the wave
TOLERANCE = 1e-9  # 0.3 - 0.2 is a spread of 0.1, although not in binary floating point


def is_informative(scores: Sequence[float], min_spread: float) -> bool:
    """Whether max(s) - min(s) >= min_spread; 0 is the off value, which accepts every group."""
    return max(scores) - min(scores) >= min_spread - TOLERANCE


def wave_size(missing: int, share: float, margin: float) -> int:
    """Groups to draw so that `missing` of them may be expected to be informative, if a share of all groups is.

    `margin` is how many standard deviations of that yield are drawn beyond it. Without any, half of all waves
    fall short by a few groups, whose own wave then lasts as long as its longest response.
    """
    share = max(share, LEAST_SHARE)
    return math.ceil((missing + margin * math.sqrt(missing * (1 - share))) / share)
