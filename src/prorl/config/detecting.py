"""What a recipe may say about detectors (METHOD §8): one row each, safe defaults, most of which only warn.

No thresholds were ever published; these are ours. They are silent on runs of the demo and loud on the traces of
the tests. What each reading means is said in `director/signals.py` and docs/operations.md.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from prorl.config.dials import Count, Model, Signed, Steps
from prorl.control.events import Action, DetectorName
from prorl.control.plan import DetectorRule
from prorl.control.signals import LOW_IS_BAD, READINGS, is_hot


class DetectorConfig(Model):
    """When one detector speaks and what it then does. Off: `mode: off`."""

    mode: Literal["off", "warn", "act"] = "warn"
    threshold: Signed  # of its reading, inclusive
    rearm: Signed  # having spoken, it sees nothing until a reading is better than this
    hits: Count = 1  # so many ...
    of_last: int = Field(1, ge=1, le=READINGS)  # ... of the last readings
    cooldown: Steps = 50  # steps between two words of it
    max: Count = 3  # times it may act by itself
    action: Action = "warn"  # in mode act
    factor: float = Field(0.5, gt=0, le=1)  # of the learning rate: lower_lr, roll_back
    steps: Steps = 50  # for which it stays lowered

    @model_validator(mode="after")
    def _meaningful(self) -> DetectorConfig:
        if self.hits > self.of_last:
            raise ValueError(f"hits ({self.hits}) is above of_last ({self.of_last})")
        if self.mode == "act" and self.action == "warn":
            raise ValueError("mode: act needs an action other than warn")
        return self


def _row(threshold: float, rearm: float, hits: int, of_last: int, action: Action) -> DetectorConfig:
    """A row that only warns unless a recipe says otherwise; but to sit an exam needs nobody's leave."""
    row = {"threshold": threshold, "rearm": rearm, "hits": hits, "of_last": of_last, "action": action}
    return DetectorConfig.model_validate(row | {"mode": "act" if action == "exam" else "warn"})


class DetectorsConfig(Model):
    """All detectors. A recipe names only what it changes: `kl_spike: {mode: act}`."""

    #                                        threshold, rearm, hits, of_last, action in mode act
    non_finite: DetectorConfig = DetectorConfig(
        mode="act", threshold=3, rearm=1, cooldown=1, action="roll_back"
    )  # refused updates in a row
    kl_spike: DetectorConfig = _row(8.0, 4.0, 2, 3, "reset_reference")  # times usual
    entropy_collapse: DetectorConfig = _row(0.02, 0.05, 5, 5, "pause")  # nats per token
    entropy_surge: DetectorConfig = _row(2.0, 1.5, 3, 5, "lower_lr")  # times usual
    gradient_spike: DetectorConfig = _row(10.0, 3.0, 2, 5, "lower_lr")  # times usual
    length_blowup: DetectorConfig = _row(1.5, 1.25, 3, 5, "roll_back")  # times usual
    truncation_blowup: DetectorConfig = _row(0.2, 0.1, 3, 5, "roll_back")  # above usual, as a share
    verifier_errors: DetectorConfig = DetectorConfig(
        mode="act", threshold=0.5, rearm=0.25, cooldown=1, action="stop"
    )  # share of a step's groups
    truncated_share: DetectorConfig = _row(0.9, 0.8, 3, 3, "exam")  # share of responses
    unanswered_share: DetectorConfig = _row(0.9, 0.8, 3, 3, "exam")  # share of responses
    no_signal: DetectorConfig = _row(0.01, 0.05, 5, 5, "exam")  # share of judged groups that teach
    exam_collapse: DetectorConfig = DetectorConfig(
        mode="act", threshold=0.5, rearm=0.75, cooldown=1, action="roll_back"
    )  # share of the best exam, chance allowed for
    reward_hacking: DetectorConfig = _row(0.05, 0.02, 2, 3, "pause")  # of a score; per exam
    stalled_exam: DetectorConfig = _row(8, 1, 1, 1, "pause")  # exams since the best one of the run

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, data: Any) -> Any:
        """A row that is named in part keeps the rest of its defaults."""
        if not isinstance(data, dict):
            return data
        rows = {name: field.default.model_dump() for name, field in cls.model_fields.items()}
        return {
            name: rows[name] | row if name in rows and isinstance(row, dict) else row
            for name, row in data.items()
        }

    @model_validator(mode="after")
    def _ordered(self) -> DetectorsConfig:
        for name in get_args(DetectorName):
            row: DetectorConfig = getattr(self, name)
            if not is_hot(name, row.threshold, row.rearm):
                side = "below" if name in LOW_IS_BAD else "above"
                raise ValueError(
                    f"detectors.{name}: rearm ({row.rearm:g}) is {side} its threshold ({row.threshold:g})"
                )
        return self


def rules(config: DetectorsConfig) -> dict[DetectorName, DetectorRule]:
    """The rules of the detectors that are not off."""
    rows: dict[DetectorName, DetectorConfig] = {
        name: getattr(config, name) for name in get_args(DetectorName)
    }
    return {name: DetectorRule(**row.model_dump()) for name, row in rows.items() if row.mode != "off"}
