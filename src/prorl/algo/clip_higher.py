"""The clipped policy-gradient loss with a wider upper bound, averaged over tokens (DAPO, arXiv:2503.14476).

A higher upper bound lets unlikely tokens gain probability, which keeps entropy alive over thousands of steps.

Invariant: loss and clip count are sums over tokens (the loss over a denominator the caller fixes), so the result
does not depend on how an optimizer update is cut into micro-batches or ranks.
"""

import torch
from torch import Tensor


def policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
    weights: Tensor,
    denominator: float,
) -> tuple[Tensor, Tensor]:
    """Sum of -min(ρA, clip(ρ, 1 - clip_low, 1 + clip_high)·A)·m over the masked tokens, over `denominator`.

    Also how many tokens lost their gradient to the clip, a detached scalar. ρ = exp(logp - old_logp); gradients flow
    into `logp` alone. `clip_high = clip_low` is PPO's clip; `clip_low = 1, clip_high = inf` clips nothing. An
    overflowing ratio is not hidden: loss or gradient is then not finite, and the caller skips the update.

    Args:
        logp: log-probs of the tokens under the policy, of any shape, which the other tensors share.
        old_logp: log-probs under the policy at the start of the step.
        advantages: the rollout's advantage at each of its tokens.
        mask: bool, true at action tokens. Values elsewhere are ignored, even if they are not finite.
        clip_low, clip_high: ε_low in [0, 1], and ε_high, at least 0.
        dual_clip: c > 1 bounds the loss of a token with A < 0 at -cA (arXiv:1912.09729); None is off.
        weights: the mismatch correction m of each token.
        denominator: action tokens of the whole optimizer update, all micro-batches and ranks together.

    Raises:
        ValueError: shapes differ.
    """
    tensors = (logp, old_logp, advantages, mask, weights)
    if len({tensor.shape for tensor in tensors}) > 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(f"all tensors must share one shape, nothing is broadcast: got {shapes}")
    # No product with the mask: padding may hold inf or nan, and 0·inf is nan, in the gradient too.
    ratio = (logp - old_logp.detach()).masked_fill(~mask, 0.0).exp()
    advantages = advantages.detach()
    plain = ratio * advantages
    objective = torch.minimum(plain, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    if dual_clip is not None:
        bounded = torch.maximum(objective, dual_clip * advantages)
        objective = torch.where(advantages < 0, bounded, objective)
    clipped = ((objective != plain) & mask).sum()
    return -(objective * weights.detach()).masked_fill(~mask, 0.0).sum() / denominator, clipped
