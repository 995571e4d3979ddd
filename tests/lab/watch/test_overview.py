"""Runs at a glance, as text."""

from io import StringIO

import pytest
from rich.console import Console as RichConsole

from prorl.envs.files import StorageError
from prorl.lab.watch.overview import decisions, duration, lineage_lines, overview
from prorl.run.status import Status
from support.events import evaluated, reset


def text(*runs):
    console = RichConsole(file=StringIO(), width=160)
    console.print(overview(runs))
    return console.file.getvalue().splitlines()


def test_a_row_says_what_there_is_to_say():
    run = Status(
        name="nano",
        health="running: process 7, learn",
        step=120,
        steps=320,
        steps_per_hour=1800.4,
        age=4.0,
        exam=evaluated(100, 0.305),
    )
    _, row = text(run)
    assert row.split() == [
        "nano",
        "120/320",
        "1800",
        "4",
        "s",
        "ago",
        "30.5%",
        "at",
        "100",
        "running:",
        "process",
        "7,",
        "learn",
    ]


def test_a_run_that_has_not_begun_is_a_row_too():
    _, row = text(Status(name="new", health="not begun", steps=3))
    assert row.split() == ["new", "0/3", "not", "begun"]


def test_decisions_are_lines_of_the_run():
    (said,) = decisions(Status(name="nano", health="done", decisions=(reset(5),)))
    assert said.startswith("nano: reference reset at step 5 (schedule)")


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59, "59 s"), (90, "2 min"), (7200, "2.0 h"), (200_000, "2.3 d")]
)
def test_durations_are_for_people(seconds, said):
    assert duration(seconds) == said


def test_the_lineage_of_nothing_is_refused(tmp_path):
    with pytest.raises(StorageError, match="check the name"):
        lineage_lines(tmp_path)
