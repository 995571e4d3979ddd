"""The cosine length reward: falls from `eta_max` for an empty response to `eta_min` at the limit.

From ProRL v2; the shape is that of https://arxiv.org/abs/2502.03373. It is switched on and off by a schedule,
so that a run is not stuck at short answers.
"""

import math


def cosine_length_reward(length: int, limit: int, *, eta_min: float, eta_max: float) -> float:
    """η = η_min + ½(η_max - η_min)(1 + cos(π·min(length, limit) / limit)), both counts in tokens.

    Added to the score with a weight, of which 0 is the off value.
    """
    return eta_min + 0.5 * (eta_max - eta_min) * (1 + math.cos(math.pi * (min(length, limit) / limit)))
