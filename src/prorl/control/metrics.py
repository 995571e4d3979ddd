"""The figures of a run: each one once, with all that its readers need to show or watch it.

The journal's columns, the line of a step, the live panel, TensorBoard, the curves, the comparison of runs and the
detectors read this table. A metric is added by computing it where its record is made (`Tally`, `UpdateStats`,
`Stepped`, `Evaluated`), or from such a record here, and by one row in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from prorl.control.events import Evaluated, Stepped

Record = Stepped | Evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a step or a validation; with a key that ends in `.*`, one figure for each name in a mapping."""

    key: str  # dotted field of the event and name of the column; of a computed figure, the name of its column
    label: str = ""  # in legends; of a family, its members have their own names
    title: str = ""  # in tables and over a chart of its own
    unit: str = ""
    form: str = ".3f"
    line: str = ""  # the word before it in the line of a step
    panel: str = ""  # the same in the live panel
    tag: str = ""  # TensorBoard
    chart: str = ""  # chapter and key of the chart in which it is drawn
    note: str = ""  # how to read a chart of its own
    summary: bool = False  # whether tables hold its mean over the last steps of a run
    usual: float | None = None  # detectors compare it with its usual value, which counts as at least this
    compute: Callable[[Stepped], float | None] | None = None  # where the event has no such field

    def values(self, event: Record) -> Iterator[tuple[str, float | None]]:
        """Its value, or that of each member, by tag; None where nothing was measured."""
        if self.key.endswith(".*"):
            members: Mapping[str, float] = attrgetter(self.key[:-2])(event)
            yield from ((self.tag.replace("*", name), value) for name, value in members.items())
        else:
            yield self.tag, self.value(event)

    def value(self, event: Record) -> float | None:
        """The figure; None where it was not measured."""
        if self.compute is None:
            found: float | None = attrgetter(self.key)(event)
            return found
        assert isinstance(event, Stepped)
        return self.compute(event)


def text(metric: Metric, value: float | None) -> str:
    """A value as people read it; a dash where nothing was measured."""
    return "–" if value is None or math.isnan(value) else format(value, metric.form)


def ratio(above: float, below: float) -> float | None:
    """A quotient; None where nothing is divided by."""
    return above / below if below else None


def overhead(event: Stepped) -> float | None:
    """Share of a step that was neither generation nor learning."""
    seconds = event.seconds
    busy = seconds.get("generate", 0.0) + seconds.get("learn", 0.0)
    return 1 - busy / seconds["total"] if seconds["total"] else None


VALIDATION: tuple[Metric, ...] = (
    Metric(key="score", label="mean pass@1", tag="validation/mean", chart="learning/validation"),
    Metric(key="pass_at_n", label="mean pass@n", tag="validation/pass_at_n", chart="learning/validation"),
    Metric(key="domains.*", tag="validation/*", chart="learning/validation"),
)

STEP: tuple[Metric, ...] = (
    Metric(
        key="tally.score",
        label="score",
        title="Training score",
        line="score",
        tag="train/score",
        chart="learning/reward",
        summary=True,
    ),
    Metric(
        key="tally.reward",
        label="reward",
        line="reward",
        panel="reward",
        tag="train/reward",
        chart="learning/reward",
    ),
    Metric(key="tally.domain_scores.*", tag="score/*", chart="learning/domains"),
    Metric(
        key="update.entropy",
        label="entropy",
        title="Entropy",
        unit="nats per token",
        line="entropy",
        panel="entropy",
        tag="policy/entropy",
        chart="policy/entropy",
        note="Near zero the policy no longer explores; a surge means that it falls apart.",
        summary=True,
        usual=0.05,
    ),
    Metric(
        key="update.kl",
        label="kl",
        title="KL to the reference",
        unit="nats per token",
        form=".4f",
        line="kl",
        panel="KL",
        tag="policy/kl",
        chart="policy/kl",
        note="Falls to zero at a reset and climbs as the policy moves on.",
        summary=True,
        usual=0.1,  # far above the climb after a reset, which is many times its recent median
    ),
    Metric(
        key="update.grad_norm",
        label="grad norm",
        title="Gradient norm",
        form=".2f",
        line="grad",
        panel="gradient",
        tag="policy/grad_norm",
        chart="policy/grad_norm",
        note="Before clipping.",
        usual=1e-3,
    ),
    Metric(
        key="update.mismatch",
        label="mismatch",
        title="Mismatch of engine and learner",
        unit="|log w|",
        tag="policy/mismatch",
        chart="policy/mismatch",
        note="Should stay small: both compute the same policy.",
    ),
    Metric(
        key="update.clip_share",
        label="clipped",
        form=".2%",
        panel="clipped",
        tag="policy/clip_share",
        chart="policy/clip",
    ),
    Metric(
        key="update.mismatch_out_share",
        label="outside mismatch bounds",
        form=".2%",
        tag="policy/mismatch_out_share",
        chart="policy/clip",
    ),
    Metric(key="update.loss", label="loss", tag="policy/loss"),
    Metric(key="staleness", label="staleness", tag="policy/staleness"),
    Metric(
        key="tally.length",
        label="length",
        title="Response length",
        unit="tokens",
        form=".1f",
        line="length",
        panel="length",
        tag="train/length",
        chart="sampling/length",
        note="Mean over the responses of all groups without a verifier error.",
        summary=True,
        usual=8.0,
    ),
    Metric(
        key="tally.truncated",
        label="cut off",
        title="Truncated share",
        form=".1%",
        panel="truncated",
        tag="train/truncated",
        chart="sampling/truncated",
        summary=True,
        usual=0.0,
    ),
    Metric(
        key="tally.unanswered",
        label="no answer",
        form=".1%",
        tag="train/unanswered",
        chart="sampling/truncated",
    ),
    Metric(
        key="shares.accepted",
        label="informative",
        chart="sampling/informative",
        compute=lambda event: ratio(event.tally.accepted, event.tally.draws),
    ),
    Metric(
        key="shares.easy",
        label="too easy",
        chart="sampling/informative",
        compute=lambda event: ratio(event.tally.easy, event.tally.draws),
    ),
    Metric(
        key="shares.hard",
        label="too hard",
        chart="sampling/informative",
        compute=lambda event: ratio(event.tally.hard, event.tally.draws),
    ),
    Metric(
        key="shares.errors",
        label="verifier errors",
        chart="sampling/informative",
        compute=lambda event: ratio(event.tally.errors, event.tally.draws),
    ),
    Metric(
        key="informative_share",
        label="informative",
        title="Informative share",
        form=".0%",
        line="informative",
        panel="informative",
        tag="train/informative_share",
        summary=True,
        compute=lambda event: event.tally.informative_share,
    ),
    Metric(key="tally.domain_errors.*", tag="errors/*"),
    Metric(
        key="learning_rate",
        label="learning rate",
        title="Learning rate",
        tag="schedule/learning_rate",
        chart="schedule/learning_rate",
        note="As used, with what detectors and the operator changed.",
    ),
    Metric(
        key="kl_coef",
        label="kl coefficient",
        title="KL coefficient",
        tag="schedule/kl_coef",
        chart="schedule/kl_coef",
        note="The price of leaving the reference.",
    ),
    Metric(
        key="length_weight",
        label="length penalty",
        title="Length penalty",
        form="g",
        panel="length penalty",
        tag="schedule/length_weight",
        chart="schedule/length_weight",
        note="Weight of the cosine length penalty; zero outside its windows.",
    ),
    Metric(key="seconds.*", tag="seconds/*", chart="speed/seconds"),
    Metric(
        key="tokens_per_second",
        label="tokens/s",
        title="Sampled tokens per second",
        form=".0f",
        line="tokens/s",
        panel="tokens/s",
        tag="speed/tokens_per_second",
        chart="speed/tokens",
        note="All sampled tokens over the whole time of the step.",
        compute=lambda event: ratio(event.tally.sampled_tokens, event.seconds["total"]),
    ),
    Metric(key="overhead", label="overhead", form=".1%", panel="overhead", compute=overhead),
)
"""In the order in which terminals and pages show them."""


def metrics_of(event: Record) -> tuple[Metric, ...]:
    """The rows about an event of this kind."""
    return STEP if isinstance(event, Stepped) else VALIDATION


def computed(event: Record) -> dict[str, float]:
    """What the journal does not hold, by key; without what was not measured."""
    found = ((metric.key, metric.value(event)) for metric in metrics_of(event) if metric.compute)
    return {key: value for key, value in found if value is not None}


WATCHED: tuple[tuple[str, Metric], ...] = tuple(
    sorted((metric.key.rpartition(".")[2], metric) for metric in STEP if metric.usual is not None)
)
"""What detectors remember the usual value of, by the name under which the state has it."""


def step_line(event: Stepped, steps: int) -> str:
    """One training step in one line."""
    tally, seconds = event.tally, event.seconds
    total = seconds["total"]
    shown = [f"{metric.line} {text(metric, metric.value(event))}" for metric in STEP if metric.line]
    busy = ", ".join(
        f"{name} {ratio(seconds.get(name, 0), total) or 0:.0%}" for name in ("generate", "learn")
    )
    parts = [
        f"step {event.step}/{steps}",
        *shown,
        f"easy {tally.easy}, hard {tally.hard}",
        f"{total:.2f} s ({busy}, rest {overhead(event) or 0:.1%})",
    ]
    if event.length_weight:
        parts.append(f"length penalty {event.length_weight:g}")
    if event.update.skipped:
        parts.append(f"{event.update.skipped} UPDATES NOT FINITE, SKIPPED")
    if tally.errors:
        parts.append(f"{tally.errors} groups lost to verifier errors")
    return " · ".join(parts)
