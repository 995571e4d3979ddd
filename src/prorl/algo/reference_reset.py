"""When the policy becomes the new reference (ProRL, https://arxiv.org/abs/2505.24864; ProRL v2).

As the policy moves away, the KL term grows until it holds learning back; a reset lets it move on.
"""

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

    - `kl_ceiling`: the KL was above it in `kl_count` of the last `kl_window` steps, in nats per token; None is off.
      It is absolute, as KL climbs from zero after each reset, so a rule relative to recent values would misfire.
    - `stalled_validation`: `stalled_validations` validations without a new best; 0 is off.
    - `schedule`: `every` so many steps; 0 is off.

    Steps, `recent_kls` (means per step, newest last) and `validations_since_best` count from the last reset or the
    birth of the run: KLs from before belong to another reference, and one stall must not reset again and again.
    There is no reset within `cooldown` steps of the last one.
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
