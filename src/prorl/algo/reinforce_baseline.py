"""REINFORCE++-baseline: one advantage per rollout from the rewards of a batch of groups.

The group mean is the baseline, and the batch (not the group) sets the scale: an easy group with one wrong
answer is not blown up to the size of a contested one, which is what GRPO's division by the group's own
deviation does (https://arxiv.org/abs/2501.03262).

Invariant: all statistics are two-pass in float64, so large equal rewards cancel instead of leaving noise.
"""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Literal

EPSILON = 1e-8  # added to the variance: a batch of identical rewards has advantage 0, not 0/0


def advantages(
    rewards: Sequence[Sequence[float]],
    lengths: Sequence[Sequence[int]],
    level: Literal["token", "sequence", "group", "none"],
) -> list[list[float]]:
    """One advantage per rollout of each group, to be applied to each of the rollout's action tokens.

    a = r - mean(r over its group, itself included); then A = (a - μ) / sqrt(σ² + ε) with population variance.
    `rewards` are shaped, per group; groups may differ in size. `lengths` are action tokens, at least 1. `level` says
    what μ and σ² run over:

    - `token`: the whole batch, each rollout weighted by its action tokens (which so get mean 0 and variance 1);
    - `sequence`: the whole batch, every rollout alike;
    - `group`: each group by itself, every rollout alike: GRPO, the off value;
    - `none`: nothing at all, A = r: with scores of 0 and 1, fine-tuning on what was accepted.

    Raises ValueError: a reward is not finite.
    """
    if not all(math.isfinite(reward) for group in rewards for reward in group):
        raise ValueError("a reward is not finite: drop groups with verifier errors before training")
    if level == "none":
        return [list(group) for group in rewards]
    means = [math.fsum(group) / len(group) for group in rewards]
    centred = [[reward - mean for reward in group] for group, mean in zip(rewards, means, strict=True)]
    if level == "token":
        return _whitened(centred, lengths)
    alike = [[1] * len(group) for group in centred]
    if level == "sequence":
        return _whitened(centred, alike)
    return [_whitened([group], [ones])[0] for group, ones in zip(centred, alike, strict=True)]


def _whitened(groups: Sequence[Sequence[float]], weights: Sequence[Sequence[int]]) -> list[list[float]]:
    """Subtract the weighted mean of all values, divide by the root of their weighted variance plus ε."""
    pairs = list(zip(chain(*groups), chain(*weights), strict=True))
    total = max(1, sum(weight for _, weight in pairs))
    mean = math.fsum(value * weight for value, weight in pairs) / total
    variance = math.fsum((value - mean) ** 2 * weight for value, weight in pairs) / total
    scale = math.sqrt(variance + EPSILON)
    return [[(value - mean) / scale for value in group] for group in groups]
