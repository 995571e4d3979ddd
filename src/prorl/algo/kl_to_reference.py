"""Per-token estimators of KL(policy ‖ reference) from sampled tokens, to be added to the loss.

With d = log(policy / reference) at a sampled token, what an estimator is worth depends on its use
(https://arxiv.org/abs/2510.01555, https://arxiv.org/abs/2501.03262 appendix B):

| estimator | value          | as a loss: factor of ∇ logp | averaged over the policy's samples     |
|-----------|----------------|-----------------------------|----------------------------------------|
| k1        | d              | 1                           | zero                                   |
| k2        | d²/2           | d                           | the gradient of KL(policy ‖ reference) |
| k3        | e^(−d) − 1 + d | 1 − e^(−d)                  | the gradient of KL(reference ‖ policy) |

Invariant: a plain loss. None of these may be multiplied by a weight through which gradients flow: for k2 that
adds d²/2 to the factor, which is then no divergence's gradient.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]


def kl_penalty(logp: Tensor, ref_logp: Tensor, *, estimator: Estimator = "k2", clamp: float = 10.0) -> Tensor:
    """KL estimate of each token, in the shape of `logp`; gradients flow into `logp` alone.

    Args:
        logp: log-probs of sampled tokens under the policy, any shape.
        ref_logp: log-probs of the same tokens under the reference, same shape.
        estimator: `k1` is for use inside the reward; as a loss its expected gradient is zero.
        clamp: bound of |d|, nats. Beyond it the gradient is zero, so that a few tokens which the reference
            finds absurd do not outweigh the rest.

    Raises:
        ValueError: shapes differ, the clamp is not positive, or the estimator is unknown.
    """
    if logp.shape != ref_logp.shape:
        raise ValueError(
            f"policy and reference log-probs differ in shape: {tuple(logp.shape)} and {tuple(ref_logp.shape)}"
        )
    if not clamp > 0:
        raise ValueError(f"the clamp on the log-ratio must be positive: got {clamp}")
    d = (logp - ref_logp.detach()).clamp(-clamp, clamp)
    match estimator:
        case "k1":
            return d
        case "k2":
            return d.square() / 2
        case "k3":
            return torch.expm1(-d) + d
        case _:
            raise ValueError(f"unknown KL estimator {estimator!r}: use 'k1', 'k2' or 'k3'")
