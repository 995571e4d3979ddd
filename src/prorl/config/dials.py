"""What a recipe writes for a number that may follow a schedule over the run's steps; never below zero."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from prorl.director.schedules import Piecewise, Ramp, Schedule


class Model(BaseModel):
    """Strict and frozen: a key that is not here is an error, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Amount = Annotated[float, Field(ge=0)]


class PointsConfig(Model):
    """`{points: [[0, 1.0e-4], [500, 5.0e-5]]}`: constant pieces, each from its step on."""

    points: tuple[tuple[int, Amount], ...] = Field(min_length=1)

    def schedule(self) -> Schedule:
        """The schedule this says."""
        return Piecewise(points=self.points)

    @model_validator(mode="after")
    def _ascending(self) -> PointsConfig:
        steps = [step for step, _ in self.points]
        if steps[0] != 0 or any(later <= earlier for earlier, later in pairwise(steps)):
            raise ValueError("points must begin at step 0 and ascend")
        return self


class RampConfig(Model):
    """`{ramp: linear, start: 0, end: 1.0e-4, steps: 50}`: from start to end, then constant."""

    ramp: Literal["linear", "cosine"]
    start: Amount
    end: Amount
    steps: int = Field(gt=0)
    start_step: int = Field(0, ge=0)

    def schedule(self) -> Schedule:
        """The schedule this says."""
        return Ramp(
            shape=self.ramp, start=self.start, end=self.end, steps=self.steps, start_step=self.start_step
        )


def _kind(value: Any) -> str:
    if isinstance(value, PointsConfig) or (isinstance(value, dict) and "points" in value):
        return "points"
    return "ramp" if isinstance(value, (RampConfig, dict)) else "number"


Dial = Annotated[
    Annotated[Amount, Tag("number")]
    | Annotated[PointsConfig, Tag("points")]
    | Annotated[RampConfig, Tag("ramp")],
    Discriminator(_kind),
]
"""A knob's setting: a number, or a schedule over the run's steps."""

DIAL_MODELS: Mapping[str, type[Model] | None] = MappingProxyType(
    {"number": None, "points": PointsConfig, "ramp": RampConfig}
)
"""Tag of each form of a dial, as validation errors name it → its model."""
