"""What one update minimises, and the sums measured on the way (METHOD §4-6).

Invariant: every number is a sum over tokens, so micro-batches, mini-batches and ranks simply add up; only
`UpdateTotals.stats` divides.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prorl.algo.clip_higher import policy_loss
from prorl.algo.kl_to_reference import kl_penalty
from prorl.algo.mismatch_correction import importance_weights, mismatch_stats
from prorl.learn.packing import MicroBatch
from prorl.types import Knobs, UpdateStats


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """Log-probs (B, T) of a micro-batch's action tokens: now with gradient, at the step's start, of the reference."""

    logps_BT: Tensor
    old_BT: Tensor
    start_BT: (
        Tensor | None
    )  # the learner's own at the step's start, where it knows them: for the mismatch only
    reference_BT: Tensor | None  # None: no KL term
    entropy_N: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums over the action tokens of a micro-batch, detached scalars."""

    loss: Tensor  # per-token losses, not yet divided
    kl: Tensor
    entropy: Tensor
    clipped: Tensor
    mismatch: Tensor
    mismatch_out: Tensor
    mismatch_tokens: Tensor  # tokens that the last two were measured on

    def stacked(self) -> Tensor:
        """As one tensor in the order of the fields, to be added up and moved to the host in one piece."""
        return torch.stack([getattr(self, name).float() for name in self.__slots__])


def objective(
    scores: TokenScores, micro: MicroBatch, knobs: Knobs, *, denominator: int
) -> tuple[Tensor, Sums]:
    """This micro-batch's share of the loss, the token sum over `denominator`, and what it measured."""
    mask_BT, zero = micro.mask_BT, scores.entropy_N.new_zeros(())
    weights_BT = importance_weights(
        scores.old_BT,
        micro.engine_logps_BT,
        mask_BT,
        kind=knobs.mismatch,
        low=knobs.mismatch_low,
        high=knobs.mismatch_high,
    )
    loss, clip = policy_loss(
        scores.logps_BT,
        scores.old_BT,
        micro.advantages_BT,
        mask_BT,
        clip_low=knobs.clip_low,
        clip_high=knobs.clip_high,
        dual_clip=knobs.dual_clip,
        weights=weights_BT,
        denominator=denominator,
    )
    kl = zero
    if scores.reference_BT is not None:
        penalty = kl_penalty(scores.logps_BT, scores.reference_BT, estimator=knobs.kl_estimator)[
            mask_BT
        ].sum()
        loss = loss + knobs.kl_coef * penalty / denominator
        # One measure for all estimators, as ceilings and detectors read it: the one without heavy tails.
        kl = kl_penalty(scores.logps_BT.detach(), scores.reference_BT, estimator="k2")[mask_BT].sum()
    disagreement = None
    if scores.start_BT is not None:
        disagreement = mismatch_stats(
            scores.start_BT,
            micro.engine_logps_BT,
            mask_BT,
            kind=knobs.mismatch,
            low=knobs.mismatch_low,
            high=knobs.mismatch_high,
        )
    return loss, Sums(
        loss=loss.detach() * denominator,
        kl=kl,
        entropy=scores.entropy_N.sum(),
        clipped=clip.clipped,
        mismatch=disagreement.abs_log_w if disagreement else zero,
        mismatch_out=disagreement.out_of_bounds if disagreement else zero,
        mismatch_tokens=disagreement.tokens if disagreement else zero,
    )


class UpdateTotals:
    """Adds up the updates of one step. What a refused update measured is left out, its positions are not."""

    def __init__(self, action_tokens: int, *, with_kl: bool) -> None:
        self.updates = 0
        self._with_kl = with_kl
        self._skipped = 0
        self._skipped_last = 0
        self._grad_norm = 0.0
        self._positions = 0
        self._action_tokens = action_tokens
        self._applied_tokens = 0
        self._sums = torch.zeros(len(Sums.__slots__), dtype=torch.float64)

    def add(self, sums: Tensor, *, positions: int, action_tokens: int, grad_norm: float | None) -> None:
        """One mini-batch: its sums as `Sums.stacked`, and its gradient norm, None where the step was refused."""
        self._positions += positions
        if grad_norm is None:
            self._skipped += 1
            self._skipped_last += 1
            return
        self.updates += 1
        self._skipped_last = 0
        self._grad_norm += grad_norm
        self._applied_tokens += action_tokens
        self._sums += sums.double().cpu()

    def stats(self) -> UpdateStats:
        """Means over the action tokens of the applied updates; None where there is nothing to average."""
        loss, kl, entropy, clipped, mismatch, mismatch_out, mismatch_tokens = self._sums.tolist()
        tokens = self._applied_tokens
        return UpdateStats(
            updates=self.updates,
            skipped=self._skipped,
            loss=_mean(loss, tokens),
            kl=_mean(kl, tokens) if self._with_kl else None,
            entropy=_mean(entropy, tokens),
            grad_norm=_mean(self._grad_norm, self.updates),
            clip_share=_mean(clipped, tokens),
            mismatch=_mean(mismatch, mismatch_tokens),
            mismatch_out_share=_mean(mismatch_out, mismatch_tokens),
            tokens=self._positions,
            action_tokens=self._action_tokens,
            skipped_last=self._skipped_last,
        )


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None
