"""The dials that hold now: what the plan says, what the operator holds, and a learning rate lowered for a while."""

from __future__ import annotations

from dataclasses import replace

from prorl.control.plan import Plan, knobs_at
from prorl.control.state import RunState
from prorl.types import Knobs


def knobs_now(plan: Plan, state: RunState) -> Knobs:
    """Every dial of the step that begins. What the operator holds is constant, whatever schedule it stands for."""
    knobs = replace(knobs_at(plan, state.step), **state.overrides)
    return replace(knobs, learning_rate=knobs.learning_rate * state.lr_scale)
