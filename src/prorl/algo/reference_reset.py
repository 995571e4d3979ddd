"""When the policy becomes the new reference (ProRL, https://arxiv.org/abs/2505.24864; ProRL v2).

As the policy moves away, the KL term grows until it holds learning back; a reset lets it move on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

ResetReason = Literal["kl_ceiling", "stalled_validation", "schedule"]


def due(
    *,
    since_reset: int,
    recent_kls: Sequence[float],
    validations_since_best: int,
    every: int,
    kl_ceiling: float | None,
    kl_count: int,
    kl_window: int,
    stalled_validations: int,
    cooldown: int,
) -> ResetReason | None:
    """The first reason that holds for a reset now, or None. With every rule off, there is none.

    Args:
        since_reset: optimizer steps since the last reset, or the birth of the run if there was none.
        recent_kls: mean KL per step to the present reference, newest last. Values from before the last reset
            belong to another reference: the caller clears them.
        validations_since_best: validations without a new best since the best one or the last reset, whichever is
            later; else one stall would reset again after every cooldown.
        every: steps after the last reset at which `schedule` holds; 0 is off.
        kl_ceiling: `kl_ceiling` holds if the KL was above it in `kl_count` of the last `kl_window` steps, in
            nats per token; None is off. It is absolute: KL climbs from zero after each reset, so a rule
            relative to recent values would misfire.
        kl_count: how many steps above the ceiling.
        kl_window: among how many.
        stalled_validations: `stalled_validation` holds from this many validations without a new best; 0 is off.
        cooldown: no reset within this many steps of the last one.
    """
    if since_reset < cooldown:
        return None
    if kl_ceiling is not None and sum(kl > kl_ceiling for kl in recent_kls[-kl_window:]) >= kl_count:
        return "kl_ceiling"
    if stalled_validations and validations_since_best >= stalled_validations:
        return "stalled_validation"
    if every and since_reset >= every:
        return "schedule"
    return None
