"""Per-token weights that correct for an engine whose log-probs are not exactly the learner's.

An engine with other kernels, another precision or older weights samples from a slightly different policy.
With w = exp(learner_logp - engine_logp), both taken at the start of the step, the policy loss of a token is
multiplied by a weight made from w.

Invariant: weights are constants (no gradient), and 0 outside the mask. What `mismatch_stats` counts as out of
bounds is exactly what `importance_weights` changes; under `none` it only measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Correction = Literal["none", "tis", "icepop", "sequence_mask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchStats:
    """Sums over the masked tokens, scalars: add them over micro-batches, then divide by `tokens`."""

    tokens: Tensor
    abs_log_w: Tensor  # sum of |log w|, nats
    out_of_bounds: Tensor  # tokens


@torch.no_grad()
def importance_weights(
    learner_logp: Tensor, engine_logp: Tensor, mask: Tensor, *, kind: Correction, low: float, high: float
) -> Tensor:
    """Weight of each token's policy loss, in the shape and dtype of `learner_logp`.

    - `none`: 1, the off value.
    - `tis`: min(w, high); `low` is not used. Truncated importance sampling (Yao et al. 2025).
    - `icepop`: w where low <= w <= high, else 0 (Ling team 2025).
    - `sequence_mask`: w for every token of a rollout whose geometric mean of w is in [low, high], else 0 for
      all of them.

    Args:
        learner_logp: `[B, T]`, B padded rollouts of T tokens. `none`, `tis` and `icepop` treat each token by
            itself and take any shape, such as the flat `[N]`.
        engine_logp: what the engine reported at sampling time, same shape.
        mask: bool, true at action tokens, same shape. Values elsewhere are ignored.
        kind: the correction.
        low: lower bound of w, at least 0.
        high: upper bound of w.

    Raises:
        ValueError: shapes differ, the bounds are not 0 <= low <= high, `sequence_mask` is given something
            else than `[B, T]`, or the kind is unknown.
    """
    _check(learner_logp, engine_logp, mask, kind=kind, low=low, high=high)
    log_w = (learner_logp - engine_logp).masked_fill(~mask, 0.0)
    w = log_w.exp()
    match kind:
        case "none":
            corrected = torch.ones_like(w)
        case "tis":
            corrected = w.clamp(max=high)
        case "icepop" | "sequence_mask":
            corrected = w.masked_fill(_out_of_bounds(log_w, mask, kind=kind, low=low, high=high), 0.0)
    return corrected.masked_fill(~mask, 0.0)


@torch.no_grad()
def mismatch_stats(
    learner_logp: Tensor, engine_logp: Tensor, mask: Tensor, *, kind: Correction, low: float, high: float
) -> MismatchStats:
    """How far engine and learner disagree, whatever the correction; arguments as of `importance_weights`.

    Out of bounds are the tokens that the correction truncates or drops. `none` counts as `icepop` does.

    Raises:
        ValueError: as `importance_weights`.
    """
    _check(learner_logp, engine_logp, mask, kind=kind, low=low, high=high)
    log_w = (learner_logp - engine_logp).masked_fill(~mask, 0.0)
    outside = _out_of_bounds(log_w, mask, kind=kind, low=low, high=high)
    return MismatchStats(tokens=mask.sum(), abs_log_w=log_w.abs().sum(), out_of_bounds=(outside & mask).sum())


def _out_of_bounds(log_w: Tensor, mask: Tensor, *, kind: Correction, low: float, high: float) -> Tensor:
    if kind == "sequence_mask":
        tokens_B1 = mask.sum(dim=-1, keepdim=True).clamp(min=1)
        mean_w_B1 = (log_w.sum(dim=-1, keepdim=True) / tokens_B1).exp()
        return ((mean_w_B1 < low) | (mean_w_B1 > high)).expand_as(log_w)
    w = log_w.exp()
    return w > high if kind == "tis" else (w < low) | (w > high)


def _check(
    learner_logp: Tensor, engine_logp: Tensor, mask: Tensor, *, kind: Correction, low: float, high: float
) -> None:
    if not learner_logp.shape == engine_logp.shape == mask.shape:
        raise ValueError(
            f"learner log-probs {tuple(learner_logp.shape)}, engine log-probs {tuple(engine_logp.shape)} and "
            f"mask {tuple(mask.shape)} must share one shape"
        )
    if mask.dtype != torch.bool:
        raise ValueError(f"the mask must be bool, not {mask.dtype}")
    if kind not in ("none", "tis", "icepop", "sequence_mask"):
        raise ValueError(
            f"unknown mismatch correction {kind!r}: use 'none', 'tis', 'icepop' or 'sequence_mask'"
        )
    if not 0 <= low <= high:
        raise ValueError(f"mismatch bounds must satisfy 0 <= low <= high: got {low} and {high}")
    if kind == "sequence_mask" and mask.dim() != 2:
        raise ValueError(f"sequence_mask needs one row per rollout, [B, T]: got {tuple(mask.shape)}")
