"""A reader that follows a journal says at any moment what one says that reads it from the start."""

import json
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.control.events import Resumed, Started, Stopped, to_record
from prorl.lab.report.reader import RunReader, read_run
from prorl.run.journal import UNFINISHED, verify_lines
from prorl.run.layout import CONFIG, JOURNAL
from support import events
from support.journals import chained, lines, run_with

EVENTS = (*events.one_of_each(), *(events.stepped(step) for step in range(2, 9)), events.evaluated(8, 0.5))
BYTES = lines(EVENTS)


def content(run):
    """All that a record says, comparable: NaN equals itself in bytes."""
    columns = [
        (table.steps.tolist(), {name: table.get(name).tobytes() for name in table.names()})
        for table in (run.steps, run.exams)
    ]
    return columns, run.config, run.marks, run.references, run.origins, run.stopped, run.health, run.notes


@given(cuts=st.lists(st.integers(0, len(BYTES)), max_size=6))
def test_any_split_of_the_journal_gives_the_same_record(cuts, tmp_path_factory):
    folder = run_with(tmp_path_factory.mktemp("run"), [])
    reader = RunReader(folder)
    for end in (*sorted(cuts), len(BYTES)):
        with (folder / JOURNAL).open("ab") as file:
            file.write(BYTES[file.tell() : end])
        reader.refresh()
    assert content(reader.run) == content(read_run(folder))
    assert len(reader.run.steps) == 8


@given(before=st.integers(0, len(EVENTS)), kept=st.integers(0, len(EVENTS)), after=st.integers(0, 5))
def test_a_journal_that_was_cut_and_went_on_is_read_anew(before, kept, after, tmp_path_factory):
    folder = run_with(tmp_path_factory.mktemp("run"), EVENTS[:before])
    reader = RunReader(folder)
    reader.refresh()
    later = [events.stepped(20 + step, seconds={"total": 3.0 + step}) for step in range(after)]
    (folder / JOURNAL).write_bytes(
        lines([*EVENTS[: min(before, kept)], Resumed(step=1, config_hash="c"), *later])
    )
    reader.refresh()
    assert content(reader.run) == content(read_run(folder))


def test_a_replaced_journal_with_the_same_end_is_read_anew(tmp_path):
    folder = run_with(tmp_path / "run", EVENTS)
    reader = RunReader(folder)
    reader.refresh()
    other = tmp_path / "other"
    padding = lines([events.stepped(1, learning_rate=7.0)])
    other.write_bytes(padding + BYTES)
    os.replace(other, folder / JOURNAL)
    reader.refresh()
    assert reader.run.steps.get("learning_rate")[0] == 7.0


def test_only_new_bytes_are_read(tmp_path, monkeypatch):
    folder = run_with(tmp_path / "run", EVENTS)
    reader = RunReader(folder)
    reader.refresh()
    parsed = []
    monkeypatch.setattr("prorl.run.journal.decode_json", lambda data: parsed.append(data) or json.loads(data))
    with (folder / JOURNAL).open("ab") as file:
        file.write(chained([to_record(events.stepped(9))], verify_lines(folder / JOURNAL)))
    parsed.clear()
    assert reader.refresh()
    assert len(parsed) == 1


def test_nothing_new_is_no_change(tmp_path):
    reader = RunReader(run_with(tmp_path / "run", EVENTS))
    assert reader.refresh()
    before = reader.run
    assert not reader.refresh()
    assert reader.run is before


def test_a_torn_line_waits_until_it_is_whole(tmp_path):
    folder = run_with(tmp_path / "run", [])
    (folder / JOURNAL).write_bytes(lines([events.stepped(1)])[:-5])
    reader = RunReader(folder)
    reader.refresh()
    assert len(reader.run.steps) == 0
    (folder / JOURNAL).write_bytes(lines([events.stepped(1)]))
    assert reader.refresh()
    assert reader.run.steps.steps.tolist() == [1]
    assert reader.run.notes == ()


@pytest.mark.parametrize("gone", [CONFIG, JOURNAL])
def test_a_file_that_vanishes_is_no_failure(gone, tmp_path):
    folder = run_with(tmp_path / "run", EVENTS)
    reader = RunReader(folder)
    reader.refresh()
    (folder / gone).unlink()
    assert reader.refresh()
    assert (len(reader.run.steps) == 0) == (gone == JOURNAL)
    assert bool(reader.run.notes) == (gone == CONFIG)


def test_an_edited_config_is_seen(tmp_path):
    folder = run_with(tmp_path / "run", EVENTS)
    reader = RunReader(folder)
    reader.refresh()
    run_with(folder, EVENTS, steps=777)
    assert reader.refresh()
    assert reader.run.config["steps"] == 777


def test_what_a_newer_version_wrote_is_left_out_and_said(tmp_path):
    folder = run_with(tmp_path / "run", EVENTS)
    newer = [
        {"kind": "teleported", "step": 9},
        {"kind": "warned", "step": 9, "text": "hot", "mood": "new field"},
        to_record(events.stepped(9)) | {"extra": [1]},
        to_record(events.stepped(10)) | {"tally": {"score": 0.25}},
        to_record(events.stepped(10**30)),
        to_record(events.stepped("ten")),
        to_record(events.intervened()) | {"numbers": 3},
        {"no kind": 1},
    ]
    whole = (folder / JOURNAL).read_bytes()
    (folder / JOURNAL).write_bytes(
        whole + chained(newer, verify_lines(folder / JOURNAL)) + b"no json\n" + b"{}"
    )
    run = read_run(folder)
    assert run.steps.steps[-1] == 9
    assert run.marks[-1].text.endswith("hot")
    damaged, left_out, unfinished = run.notes
    assert (
        damaged
        == f"the journal is damaged at line {len(EVENTS) + 9} (byte {(folder / JOURNAL).stat().st_size - 10})"
    )
    assert left_out.endswith(
        "left out: 1 of kind 'intervened', 3 of kind 'stepped', 1 of kind 'teleported', 1 of kind None"
    )
    assert unfinished == UNFINISHED


def test_numbers_that_are_not_finite_come_back(tmp_path):
    update = events.update(kl=math.nan, grad_norm=math.inf)
    run = read_run(run_with(tmp_path / "run", [events.stepped(1, update=update)]))
    assert math.isnan(run.steps.get("update.kl")[0])
    assert run.steps.get("update.grad_norm")[0] == math.inf


def test_marks_say_what_happened_in_words(tmp_path):
    rolled = events.intervened(step=4, action="roll_back", from_step=9, lr_scale=0.5, lr_until=20)
    run = read_run(
        run_with(tmp_path / "run", [Started(config_hash="c", reference_hash="h"), events.reset(3), rolled])
    )
    assert [(mark.step, mark.kind) for mark in run.marks] == [(3, "reset"), (4, "roll back")]
    assert "rolled back from step 9" in run.marks[1].text
    assert run.references == 2


def test_the_end_of_a_run_is_known_until_it_goes_on(tmp_path):
    folder = run_with(tmp_path / "run", [events.stepped(1), Stopped(step=1, reason="done")])
    assert (read_run(folder).stopped, read_run(folder).health) == ("done", "done")
    run_with(folder, [events.stepped(1), Stopped(step=1, reason="done"), events.stepped(2)])
    assert (read_run(folder).stopped, read_run(folder).health) == (None, "crashed")
