"""Per-token weights that correct for an engine whose log-probs are not exactly the learner's.

An engine with other kernels, another precision or older weights samples from a slightly different policy.
With w = exp(learner_logp - engine_logp), both taken at the start of the step, the policy loss of a token is
multiplied by a weight made from w.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

POSITIONS = (0, 1024, 2048, 4096, 8192)
"""First positions of the parts of a response that are told apart: an engine may err at long positions only."""
MOST = 20.0  # nats of one token that count, so that a sum stays finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Weights of the tokens, and sums over the masked ones: add them over micro-batches, then divide by `tokens`.

    Out of bounds are the tokens that the correction truncates or drops; `none` counts as `icepop` does.
    """

    weights: Tensor  # constants, in the shape of the log-probs; 0 outside the mask
    tokens: Tensor
    abs_log_w: Tensor  # sum of |log w|, nats
    out_of_bounds: Tensor  # tokens
    factors: Tensor  # by position in the response (`POSITIONS`): sum of exp |log w| ...
    counts: Tensor  # ... and tokens


@torch.no_grad()
def mismatch(
    learner_BT: Tensor,
    engine_BT: Tensor,
    mask_BT: Tensor,
    *,
    kind: Literal["none", "tis", "icepop", "sequence_mask"],
    low: float,
    high: float,
) -> Mismatch:
    """How far the log-probs of engine and learner disagree, and the weight of each token's policy loss.

    Values outside `mask_BT`, true at action tokens, are ignored. `low` and `high` bound w.

    - `none`: 1, the off value.
    - `tis`: min(w, high); `low` is not used. Truncated importance sampling (Yao et al. 2025).
    - `icepop`: w where low <= w <= high, else 0 (Ling team 2025).
    - `sequence_mask`: w for every token of a rollout whose geometric mean of w is in [low, high], else 0 for
      all of them.
    """
    log_w = (learner_BT - engine_BT).masked_fill(~mask_BT, 0.0)
    w = judged = log_w.exp()
    if kind == "sequence_mask":
        tokens_B1 = mask_BT.sum(dim=-1, keepdim=True).clamp(min=1)
        judged = (log_w.sum(dim=-1, keepdim=True) / tokens_B1).exp().expand_as(w)
    outside = judged > high if kind == "tis" else (judged < low) | (judged > high)
    if kind == "none":
        weights = torch.ones_like(w)
    else:
        weights = w.clamp(max=high) if kind == "tis" else w.masked_fill(outside, 0.0)
    factors_BT = log_w.abs().clamp(max=MOST).exp() * mask_BT
    ends = (*POSITIONS[1:], max(mask_BT.shape[-1], POSITIONS[-1]))
    parts = [slice(*ends_of) for ends_of in zip(POSITIONS, ends, strict=True)]
    return Mismatch(
        weights=weights.masked_fill(~mask_BT, 0.0),
        tokens=mask_BT.sum(),
        abs_log_w=log_w.abs().sum(),
        out_of_bounds=(outside & mask_BT).sum(),
        factors=torch.stack([factors_BT[..., part].sum() for part in parts]),
        counts=torch.stack([mask_BT[..., part].sum() for part in parts]),
    )
