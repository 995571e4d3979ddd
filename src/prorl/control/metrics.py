"""The figures of a run: each one once, with all that its readers need to show or watch it.

The journal's columns, the line of a step, the live panel, TensorBoard, the curves, the comparison of runs and the
detectors read this table. A metric is added by computing it where its record is made (`RolloutStats`, `UpdateStats`,
`Stepped`, `Validated`), or from such a record here, and by one row in the table.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import Any, Literal

from prorl.control.events import Stepped, Validated

Record = Stepped | Validated
Place = Literal["line", "panel", "table"]  # a step's line, the live panel, the mean over a run's last steps
ALL: tuple[Place, ...] = ("line", "panel", "table")


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a step or a validation; with a key that ends in `.*`, one figure for each name in a mapping."""

    key: str  # dotted field of the event and name of the column; of a computed figure, the name of its column
    chapter: str  # of the report's curves and of TensorBoard
    label: str = ""  # members of a family have their own names
    _: KW_ONLY
    chart: str | None = ""  # in which it is drawn with others; empty: one of its own; None: in none
    unit: str = ""
    form: str = ".3f"
    shown: tuple[Place, ...] = ()  # besides curves and TensorBoard
    usual: float | None = None  # detectors compare it with its usual value, which counts as at least this
    compute: Callable[[Any], float | None] | None = None  # of a step, where the event has no such field

    @property
    def name(self) -> str:
        """The last part of the key, or of the family's key."""
        return self.key.removesuffix(".*").rpartition(".")[2]

    @property
    def title(self) -> str:
        """For tables and charts."""
        return self.label[:1].upper() + self.label[1:]

    def values(self, event: Record) -> Iterator[tuple[str, float | None]]:
        """Its value, or that of each member, by tag of TensorBoard; None where nothing was measured."""
        tag = f"{self.chapter}/{self.name}"
        if self.key.endswith(".*"):
            members: Mapping[str, float] = attrgetter(self.key[:-2])(event)
            yield from ((f"{tag}/{name}", value) for name, value in members.items())
        else:
            yield tag, self.value(event)

    def value(self, event: Record) -> float | None:
        """The figure; None where it was not measured."""
        found: float | None = (self.compute or attrgetter(self.key))(event)
        return found


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


def _share_of_draws(name: str, label: str) -> Metric:
    def share(event: Stepped) -> float | None:
        return ratio(getattr(event.rollout_stats, name), event.rollout_stats.draws)

    return Metric(f"shares.{name}", "sampling", label, chart="informative", compute=share)


VALIDATION: tuple[Metric, ...] = (
    Metric("score", "validation", "mean pass@1", chart="validation"),
    Metric("pass_at_n", "validation", "mean pass@n", chart="validation"),
    Metric("domains.*", "validation", chart="validation"),
    Metric("unanswered", "validation", chart=None),
)

LINE_PANEL: tuple[Place, ...] = ("line", "panel")
NATS, PERCENT = "nats per token", ".1%"

STEP: tuple[Metric, ...] = (
    Metric("rollout_stats.score", "learning", "training score", chart="reward", shown=("line", "table")),
    Metric("rollout_stats.reward", "learning", "reward", chart="reward", shown=LINE_PANEL),
    Metric("rollout_stats.domain_scores.*", "learning", chart="domains"),
    Metric("update.entropy", "policy", "entropy", unit=NATS, shown=ALL, usual=0.05),
    # The usual KL is far above the climb after a reset, which is many times its recent median.
    Metric("update.kl", "policy", "KL", unit=NATS, form=".4f", shown=ALL, usual=0.1),
    Metric("update.grad_norm", "policy", "gradient norm", form=".2f", shown=LINE_PANEL, usual=1e-3),
    Metric("update.mismatch", "policy", "mismatch of engine and learner", unit="|log w|"),
    Metric("update.clip_share", "policy", "clipped", chart="clip", form=".2%", shown=("panel",)),
    Metric("update.mismatch_factors.*", "policy", chart="positions"),
    Metric("update.mismatch_out_share", "policy", "outside mismatch bounds", chart="clip"),
    Metric("update.loss", "policy", chart=None),
    Metric("staleness", "policy", chart=None),
    Metric("rollout_stats.in_hand", "sampling", "groups in hand", chart=None),
    Metric(
        "rollout_stats.length", "sampling", "response length", unit="tokens", form=".1f", shown=ALL, usual=8.0
    ),
    Metric(
        "rollout_stats.truncated", "sampling", "truncated", form=PERCENT, shown=("panel", "table"), usual=0.0
    ),
    Metric("rollout_stats.unanswered", "sampling", "no answer", chart="truncated"),
    _share_of_draws("accepted", "informative"),
    _share_of_draws("easy", "too easy"),
    _share_of_draws("hard", "too hard"),
    _share_of_draws("errors", "verifier errors"),
    Metric(
        "informative_share",
        "sampling",
        "informative",
        chart=None,
        form=".0%",
        shown=ALL,
        compute=attrgetter("rollout_stats.informative_share"),
    ),
    Metric("rollout_stats.domain_errors.*", "sampling", chart=None),
    Metric("rollout_stats.top_levels.*", "learning", chart="levels"),
    Metric("rollout_stats.top_scores.*", "learning", chart="top"),
    Metric("rollout_stats.top_rollouts.*", "learning", chart=None),
    Metric("learning_rate", "schedule", "learning rate"),
    Metric("kl_coef", "schedule", "KL coefficient"),
    Metric("length_weight", "schedule", "length penalty", form="g", shown=("panel",)),
    Metric("seconds.*", "speed", chart="seconds"),
    Metric(
        "tokens_per_second",
        "speed",
        "tokens/s",
        form=".0f",
        shown=LINE_PANEL,
        compute=lambda event: ratio(event.rollout_stats.sampled_tokens, event.seconds["total"]),
    ),
    Metric("overhead", "speed", "overhead", chart=None, form=PERCENT, shown=("panel",), compute=overhead),
)
"""In the order in which terminals and pages show them."""


def metrics_of(event: Record) -> tuple[Metric, ...]:
    """The rows about an event of this kind."""
    return STEP if isinstance(event, Stepped) else VALIDATION


def computed(event: Record) -> dict[str, float]:
    """What the journal does not hold, by key; without what was not measured."""
    found = ((metric.key, metric.value(event)) for metric in metrics_of(event) if metric.compute)
    return {key: value for key, value in found if value is not None}


WATCHED = tuple(sorted((one for one in STEP if one.usual is not None), key=attrgetter("name")))
"""What detectors remember the usual value of, in the order of the names under which the state has it."""


def step_line(event: Stepped, steps: int) -> str:
    """One training step in one line."""
    rollout_stats, seconds = event.rollout_stats, event.seconds
    total = seconds["total"]
    shown = [f"{one.label} {text(one, one.value(event))}" for one in STEP if "line" in one.shown]
    busy = ", ".join(
        f"{name} {ratio(seconds.get(name, 0), total) or 0:.0%}" for name in ("generate", "learn")
    )
    parts = [
        f"step {event.step}/{steps}",
        *shown,
        f"easy {rollout_stats.easy}, hard {rollout_stats.hard}",
        f"{total:.2f} s ({busy}, rest {overhead(event) or 0:.1%})",
    ]
    if event.length_weight:
        parts.append(f"length penalty {event.length_weight:g}")
    if event.update.skipped:
        parts.append(f"{event.update.skipped} UPDATES NOT FINITE, SKIPPED")
    if rollout_stats.errors:
        parts.append(f"{rollout_stats.errors} groups lost to verifier errors")
    return " · ".join(parts)
