"""Runs at a glance, as text."""

import pytest

from prorl.envs.files import StorageError
from prorl.lab.tables import text
from prorl.lab.watch.overview import lineage_lines, overview
from prorl.run.status import Status
from support.events import evaluated, reset


def rows(run):
    return [[text(cell) for cell in row] for table in overview([run]) for row in table.rows]


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
    assert rows(run) == [
        ["nano", "120", "320", "1,800", "4 s ago", "30.5%", "100", "running: process 7, learn"]
    ]


def test_a_run_that_has_not_begun_is_a_row_too():
    found = rows(Status(name="new", health="not begun", steps=3))
    assert found == [["new", "0", "3", *"––––", "not begun"]]


def test_the_last_decisions_are_a_table_of_their_own():
    _, (name, said) = rows(Status(name="nano", health="done", decisions=(reset(5),)))
    assert name == "nano"
    assert said.startswith("reference reset at step 5 (schedule)")


def test_the_lineage_of_nothing_is_refused(tmp_path):
    with pytest.raises(StorageError, match="check the name"):
        lineage_lines(tmp_path)
