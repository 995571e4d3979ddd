"""A metric is one row of a table: whoever shows or watches figures finds it there."""

import re
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

import prorl
from prorl.control import detectors, metrics
from prorl.control.events import RolloutStats, Stepped, Validated
from prorl.control.metrics import STEP, VALIDATION, WATCHED, Metric, overhead, step_line
from prorl.control.state import RunState, evolve
from prorl.lab.report import compare, curves, summary
from prorl.lab.report.curves import curve_sections
from prorl.lab.watch import console, scalars
from prorl.run.history import read_history
from prorl.types import UpdateStats
from support.events import evaluated, rollout_stats, stepped
from support.journals import run_with

NEW = Metric(
    key="surplus_share",
    chapter="policy",
    label="surplus",
    form=".1%",
    shown=metrics.ALL,
    compute=lambda event: event.rollout_stats.surplus / event.rollout_stats.draws,
)


def test_a_metric_added_to_the_table_is_seen_everywhere(tmp_path, monkeypatch):
    for module in (metrics, console, curves, compare, summary):
        monkeypatch.setattr(module, "STEP", (*STEP, NEW))
    monkeypatch.setattr(detectors, "WATCHED", (*WATCHED, replace(NEW, usual=0.1)))
    event = stepped(1)
    run = read_history(run_with(tmp_path / "run", [event]))
    assert run.steps.get("surplus_share")[0] == 0.2
    assert "surplus 20.0%" in step_line(event, 9)
    assert "surplus 20.0%" in panel(event)
    tags = {tag for one in metrics.metrics_of(event) for tag, _ in one.values(event)}
    assert "policy/surplus_share" in tags
    assert "surplus_share" in {figure.key for section in curve_sections([run]) for figure in section.figures}
    compared = compare.comparison([run])
    assert "Surplus" in {row[0] for table in compared for row in table.rows}
    assert "Surplus" in summary.summary_section([run]).html
    assert evolve(RunState(), event).signals.history["surplus_share"] == (0.2,)
    assert scalars.metrics_of is metrics.metrics_of


def panel(event):
    live = console.LivePanel(9)
    live.update(event, RunState())
    shown = RichConsole(file=StringIO(), width=160)
    shown.print(live)
    return shown.file.getvalue()


def test_nothing_else_lists_them():
    listing = re.compile(r"(?:grad_norm|mismatch_out_share|clip_share)")
    folder = Path(prorl.__file__).parent
    readers = [*folder.glob("run/*.py"), *folder.glob("lab/watch/*.py"), *folder.glob("lab/report/*.py")]
    listed = [path.name for path in readers if len(listing.findall(path.read_text())) > 1]
    assert listed == []


@pytest.mark.parametrize("metric", [*STEP, *VALIDATION], ids=lambda metric: metric.key)
def test_every_metric_is_one_of_the_event_or_is_computed(metric):
    event = evaluated(1, 0.5) if metric in VALIDATION else stepped(1)
    for tag, value in metric.values(event):
        assert tag.startswith(f"{metric.chapter}/")
        assert isinstance(value, (int, float))


def test_every_measured_mean_is_in_the_table():
    """A field that may be unmeasured is a figure; counts are not."""
    parts = {RolloutStats: "rollout_stats.", UpdateStats: "update.", Stepped: "", Validated: ""}
    found = ((part + one.name, one.type) for cls, part in parts.items() for one in fields(cls))
    wanted = {name for name, kind in found if kind == "float | None"}
    assert wanted <= {metric.key for metric in (*STEP, *VALIDATION)}


@pytest.mark.parametrize(
    ("seconds", "rest"),
    [
        ({"generate": 6.0, "learn": 3.0, "total": 10.0}, 0.1),
        ({"generate": 10.0, "total": 10.0}, 0.0),
        ({"total": 10.0}, 1.0),
        ({"total": 0.0}, None),
    ],
)
def test_the_rest_is_neither_generation_nor_learning(seconds, rest):
    assert overhead(stepped(1, seconds=seconds)) == (rest if rest is None else pytest.approx(rest))


def test_shares_are_of_all_draws():
    event = stepped(1, rollout_stats=rollout_stats(draws=10, accepted=4, easy=3, hard=2, errors=1))
    shares = {one.key: one.value(event) for one in STEP if one.key.startswith("shares.")}
    assert list(shares.values()) == [0.4, 0.3, 0.2, 0.1]
