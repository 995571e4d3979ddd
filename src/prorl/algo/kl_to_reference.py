"""Per-token estimators of KL(policy ‖ reference) from sampled tokens, to be added to the loss.

With d = log(policy / reference) at a sampled token, what an estimator is worth depends on its use
(https://arxiv.org/abs/2510.01555, https://arxiv.org/abs/2501.03262 appendix B):

| estimator | value          | as a loss: factor of ∇ logp | averaged over the policy's samples     |
|-----------|----------------|-----------------------------|----------------------------------------|
| k1        | d              | 1                           | zero: no loss, and not offered         |
| k2        | d²/2           | d                           | the gradient of KL(policy ‖ reference) |
| k3        | e^(−d) − 1 + d | 1 − e^(−d)                  | the gradient of KL(reference ‖ policy) |

Invariant: a plain loss. None of these may be multiplied by a weight through which gradients flow: for k2 that
adds d²/2 to the factor, which is then no divergence's gradient.
"""

from typing import Literal

import torch
from torch import Tensor

CLAMP = 10.0  # nats, of |d|: beyond it no gradient, so that a few tokens the reference finds absurd do not outweigh


def kl_penalty(logp: Tensor, ref_logp: Tensor, *, estimator: Literal["k2", "k3"]) -> Tensor:
    """KL estimate of each token, in the shape of `logp`; gradients flow into `logp` alone.

    `logp` and `ref_logp` are log-probs of the same sampled tokens under policy and reference, of any shape.
    """
    d = (logp - ref_logp.detach()).clamp(-CLAMP, CLAMP)
    return d.square() / 2 if estimator == "k2" else torch.expm1(-d) + d
