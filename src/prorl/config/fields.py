"""The types of a recipe's fields, with their bounds, and schedules, which stand where a number may."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

MOST = 65_536
"""Problems, responses to each, rows or processes: far above what anybody uses, far below what ends a machine."""
MOST_STEPS = 1_000_000


def whole_key(value: Any) -> Any:
    """JSON keeps a number that is a key as text."""
    return int(value) if isinstance(value, str) and value.removeprefix("-").isdecimal() else value


def off(value: Any) -> Any:
    """What YAML reads as false, where the word `off` was written."""
    return "off" if value is False else value


class Model(BaseModel):
    """Strict and frozen: no other key, no `true` or text for a number, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


Count = Annotated[int, Field(gt=0, le=MOST)]
Number = Annotated[int, Field(ge=0, le=MOST)]  # a count that may be none
Steps = Annotated[int, Field(gt=0, le=MOST_STEPS)]
Step = Annotated[int, Field(ge=0, le=MOST_STEPS)]  # also a number of steps that may be none
Length = Annotated[int, Field(gt=0, le=2**24)]  # tokens, or elements of a vector
Places = Annotated[int, Field(gt=0, le=4096)]  # processes of a cluster
Amount = Annotated[float, Field(ge=0, le=1e6)]
Positive = Annotated[float, Field(gt=0, le=1e6)]
Signed = Annotated[float, Field(ge=-1e6, le=1e6)]
Share = Annotated[float, Field(ge=0, le=1)]
TopP = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=1e7)]
Text = Annotated[str, Field(max_length=4096)]
Level = Annotated[int, BeforeValidator(whole_key), Field(ge=-MOST, le=MOST)]
Listed = Field(strict=False)  # a tuple, which YAML and JSON write as a list


class Live(str):
    """Marks a field as a hyperparameter of the step: its name in `types.HParams`."""


class Schedule(Model):
    """A function of the step in place of a constant (docs/method.md, Schedules)."""

    @abstractmethod
    def at(self, step: int) -> float:
        """Value at a step."""


class PointsConfig(Schedule):
    """`{points: [[0, 1.0e-4], [500, 5.0e-5]]}`: constant pieces, each from its step on."""

    points: tuple[Annotated[tuple[Step, Amount], Listed], ...] = Field(
        min_length=1, max_length=1000, strict=False
    )

    def at(self, step: int) -> float:
        """Value of the last point at or before a step."""
        return next(value for first, value in reversed(self.points) if first <= step)

    @model_validator(mode="after")
    def _ascending(self) -> PointsConfig:
        steps = [step for step, _ in self.points]
        if steps[0] != 0 or any(later <= earlier for earlier, later in pairwise(steps)):
            raise ValueError("points must begin at step 0 and ascend")
        return self


class RampConfig(Schedule):
    """`{ramp: linear, start: 0, end: 1.0e-4, steps: 50}`: from start to end, constant before and after."""

    ramp: Literal["linear", "cosine"]
    start: Amount
    end: Amount
    steps: Steps
    start_step: Step = 0

    def at(self, step: int) -> float:
        """Value at a step; along half a cosine it is flat at both ends and steepest in the middle."""
        share = min(max(step - self.start_step, 0), self.steps) / self.steps
        if self.ramp == "cosine":
            share = 0.5 * (1 - math.cos(math.pi * share))
        # start + (end - start) need not be `end`, and a hyperparameter must reach its off value exactly.
        return self.end if share == 1 else self.start + (self.end - self.start) * share


def _form(value: Any) -> str:
    if isinstance(value, PointsConfig) or (isinstance(value, dict) and "points" in value):
        return "points"
    return "ramp" if isinstance(value, (RampConfig, dict)) else "number"


Scheduled = Annotated[
    Annotated[Amount, Tag("number")]
    | Annotated[PointsConfig, Tag("points")]
    | Annotated[RampConfig, Tag("ramp")],
    Discriminator(_form),
]
"""A number, or a schedule over the run's steps."""

FORMS: Mapping[str, type[Model] | None] = {"number": None, "points": PointsConfig, "ramp": RampConfig}
"""Tag of each form of `Scheduled`, as validation errors name it → its model."""
