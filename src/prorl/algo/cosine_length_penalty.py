"""The cosine length reward: falls from `eta_max` for an empty response to `eta_min` at the limit.

From ProRL v2; the shape is that of https://arxiv.org/abs/2502.03373. It is switched on and off by a schedule,
so that a run is not stuck at short answers.
"""

from __future__ import annotations

import math


def cosine_length_reward(length: int, limit: int, *, eta_min: float, eta_max: float) -> float:
    """η = η_min + ½(η_max - η_min)(1 + cos(π·min(length, limit) / limit)), both counts in tokens.

    Raises:
        ValueError: a negative length, a limit below 1, or eta_min above eta_max.
    """
    if length < 0 or limit < 1:
        raise ValueError(f"need length >= 0 and limit >= 1 tokens: got {length} and {limit}")
    if not eta_min <= eta_max:
        raise ValueError(
            f"eta_min must not exceed eta_max, or length would be paid: got {eta_min} > {eta_max}"
        )
    share = min(length, limit) / limit
    return eta_min + 0.5 * (eta_max - eta_min) * (1 + math.cos(math.pi * share))


def shaped_reward(
    score: float,
    length: int,
    limit: int,
    *,
    weight: float,
    eta_min: float,
    eta_max: float,
    applies: bool,
) -> float:
    """Reward r = score + weight·η(length), or the score itself where the term does not apply.

    `weight = 0` is the off value. `applies` is the caller's choice per rollout: always true is the published
    form; true for correct rollouts only keeps short wrong answers from being paid.

    Raises:
        ValueError: as `cosine_length_reward`.
    """
    bonus = weight * cosine_length_reward(length, limit, eta_min=eta_min, eta_max=eta_max)
    return score + bonus if applies else score
