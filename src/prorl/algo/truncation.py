"""What a response is worth that hit the length limit without ending itself.

The plain length penalty of https://arxiv.org/abs/2510.15110. It composes with the cosine length term: neither
switches the other off.
"""

from __future__ import annotations


def truncated_score(score: float, truncated: bool, scale: float) -> float:
    """The score, times `scale` if the response was truncated; `scale = 1` is the off value.

    Raises:
        ValueError: a scale outside [0, 1].
    """
    if not 0 <= scale <= 1:
        raise ValueError(f"the scale of truncated responses must be in [0, 1]: got {scale}")
    return score * scale if truncated else score
