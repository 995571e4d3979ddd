"""What a response is worth that hit the length limit without ending itself.

The plain length penalty of https://arxiv.org/abs/2510.15110. It composes with the cosine length term: neither
switches the other off.
"""


def truncated_score(score: float, truncated: bool, scale: float) -> float:
    """The score, times `scale` in [0, 1] if the response was truncated; `scale = 1` is the off value."""
    return score * scale if truncated else score
