"""The clipped policy-gradient loss with a wider upper bound, averaged over tokens (DAPO, arXiv:2503.14476).

A higher upper bound lets unlikely tokens gain probability, which keeps entropy alive over thousands of steps.

Invariant: the loss and its stats are sums over tokens (the loss over a denominator the caller fixes), so the
result does not depend on how an optimizer update is cut into micro-batches or ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipStats:
    """Sums over the masked tokens, detached scalars: add them over micro-batches, then divide by `tokens`."""

    tokens: Tensor
    clipped: Tensor  # tokens whose gradient the clip removed
    ratio: Tensor  # sum of policy / old policy


def policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    weights: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, ClipStats]:
    """Sum of -min(ρA, clip(ρ, 1 - clip_low, 1 + clip_high)·A)·m over the masked tokens, over `denominator`.

    ρ = exp(logp - old_logp). Gradients flow into `logp` alone. `clip_high = clip_low` is PPO's clip;
    `clip_low = 1, clip_high = inf` clips nothing.

    Args:
        logp: log-probs of the action tokens under the policy, of any shape; the other tensors share it.
        old_logp: log-probs under the policy at the start of the step.
        advantages: the rollout's advantage at each of its tokens.
        mask: bool, true at action tokens. Values elsewhere are ignored, even if they are not finite.
        clip_low: ε_low in [0, 1].
        clip_high: ε_high, at least 0.
        dual_clip: c > 1 bounds the loss of a token with A < 0 at -cA (arXiv:1912.09729); None is off.
        weights: the mismatch correction m of each token; None is 1.
        denominator: action tokens of the whole optimizer update, all micro-batches and ranks together; by
            default those of this call. A call without action tokens has loss 0.

    An overflowing ratio is not hidden: loss or gradient is then not finite, and the caller skips the update.

    Raises:
        ValueError: shapes differ, or a bound or the denominator makes no sense.
    """
    _check_shapes(logp, old_logp, advantages, mask, weights)
    _check_bounds(clip_low, clip_high, dual_clip, denominator)
    log_ratio = _masked(logp - old_logp.detach(), mask)
    advantages = advantages.detach()
    ratio = log_ratio.exp()
    plain = ratio * advantages
    objective = torch.minimum(plain, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    if dual_clip is not None:
        bounded = torch.maximum(objective, dual_clip * advantages)
        objective = torch.where(advantages < 0, bounded, objective)
    stats = ClipStats(
        tokens=mask.sum(),
        clipped=((objective != plain) & mask).sum(),
        ratio=_masked(ratio.detach(), mask).sum(),
    )
    if weights is not None:
        objective = objective * weights.detach()
    return -_masked(objective, mask).sum() / (denominator or stats.tokens.clamp(min=1)), stats


def _masked(values: Tensor, mask: Tensor) -> Tensor:
    # Not a product with the mask: padding may hold inf or nan, and 0·inf is nan, in the gradient too.
    return values.masked_fill(~mask, 0.0)


def _check_shapes(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, weights: Tensor | None
) -> None:
    others = [old_logp, advantages, mask, *([] if weights is None else [weights])]
    if any(other.shape != logp.shape for other in others):
        shapes = ", ".join(str(tuple(other.shape)) for other in [logp, *others])
        raise ValueError(f"all tensors must share one shape, nothing is broadcast: got {shapes}")
    if mask.dtype != torch.bool:
        raise ValueError(f"the mask must be bool, not {mask.dtype}")


def _check_bounds(
    clip_low: float, clip_high: float, dual_clip: float | None, denominator: float | None
) -> None:
    if not (0 <= clip_low <= 1 and clip_high >= 0):
        raise ValueError(f"clip_low must be in [0, 1] and clip_high >= 0: got {clip_low} and {clip_high}")
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip must be above 1, or None to switch it off: got {dual_clip}")
    if denominator is not None and not denominator > 0:
        raise ValueError(f"the denominator must be a positive token count: got {denominator}")
