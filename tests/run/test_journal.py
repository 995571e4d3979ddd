"""The journal keeps every record, and what is cut off is kept beside it."""

import json
import math
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.control.events import to_record
from prorl.envs.files import StorageError
from prorl.run.history import UNFINISHED, RunHistory, read_events
from prorl.run.journal import Journal, read_journal, verify_lines
from support.commands import files_limited_to
from support.events import one_of_each, stepped
from support.journals import chained, lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def read_by_history(path):
    """The events that readers get, and their notes about the journal."""
    history = RunHistory(path.parent)
    history.refresh()
    return list(read_events(path.parent)), tuple(note for note in history.notes if "config" not in note)


def records(path):
    return list(read_journal(path))


def fill(path, count):
    """A journal of `count` records; returns its size after each."""
    journal = Journal(path)
    sizes = [journal.size]
    for number in range(count):
        journal.append({"event": "stepped", "step": number})
        sizes.append(journal.size)
    journal.close()
    return sizes


def test_records_are_on_disk_when_append_returns(path):
    journal = Journal(path)
    for number in (0, math.nan, math.inf, -math.inf):
        record = {"step": number, "text": "zwei\nZeilen ✓"}
        journal.append(record)
        assert repr(records(path)[-1]) == repr(record)
        assert journal.size == path.stat().st_size
    assert len(list(read_journal(path, journal.size - 1))) == 4
    journal.close()


@pytest.mark.parametrize("put", [None, b"somebody's own\n"])
def test_a_journal_that_is_deleted_or_replaced_while_it_is_written_is_put_back(path, put):
    journal = Journal(path)
    for step in range(4):
        if step == 2:
            path.unlink()
            if put is not None:
                path.write_bytes(put)
        journal.append({"step": step})
    journal.close()
    assert [record["step"] for record in records(path)] == [0, 1, 2, 3]


def test_lines_of_earlier_versions_are_whole(path):
    path.write_bytes(
        b'{"kind":"stopped","step":1,"reason":"done","chain":"fc0ace7e99a42088"}\n'
        b'{"kind":"warned","step":1,"text":"\xc3\xa9","chain":"b3b84d8cc5dfc7cd"}\n'
    )
    assert [record["kind"] for record in records(path)] == ["stopped", "warned"]


def test_a_record_that_json_cannot_hold_leaves_no_trace(path):
    journal = Journal(path)
    with pytest.raises(TypeError):
        journal.append({"step": object()})
    assert journal.size == path.stat().st_size == 0
    journal.close()


LINES = chained({"event": "stepped", "step": step} for step in range(3)).splitlines(keepends=True)


@given(cut=st.integers(0, sum(map(len, LINES))))
@settings(max_examples=30, deadline=None)
def test_a_crash_at_any_byte_loses_at_most_the_record_being_written(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("run") / "journal.jsonl"
    sizes = [0, *accumulate(map(len, LINES))]
    torn = b"".join(LINES)[:cut]
    path.write_bytes(torn)
    whole = max(index for index, size in enumerate(sizes) if size <= len(torn))
    journal = Journal(path)
    assert journal.size == sizes[whole]
    journal.append({"step": 99})
    journal.close()
    assert [record["step"] for record in records(path)] == [*range(whole), 99]
    rest = torn[sizes[whole] :]
    assert journal.discarded_path.exists() == bool(rest)
    if rest:
        assert journal.discarded_path.read_bytes() == rest + b"\n"


@pytest.mark.parametrize("torn", [b"\x00" * 40, b'{"step": 1}', b"[1]\n", b"\xff\xfe\n", b"\n", LINES[2]])
def test_a_last_line_that_is_no_record_is_cut_when_something_is_written(path, torn):
    (_, size) = fill(path, 1)
    path.write_bytes(path.read_bytes() + torn)
    journal = Journal(path)
    assert f"line 2 (byte {size})" in str(journal.damage)
    assert path.stat().st_size == size + len(torn)
    journal.append({"step": 1})
    journal.close()
    assert journal.damage is None
    assert len(records(path)) == 2
    assert journal.discarded_path.read_bytes().startswith(torn)


def test_any_flipped_bit_is_found_with_its_place_and_costs_readers_two_lines_at_most(path):
    whole = lines([stepped(step) for step in range(4)])
    starts = [0, *accumulate(map(len, whole.splitlines(keepends=True)))]
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        number = max(line for line, start in enumerate(starts) if start <= place) + 1
        said = rf"damaged at line {number} \(byte {starts[number - 1]}\)"
        with pytest.raises(StorageError, match=said):
            verify_lines(path)
        events, notes = read_by_history(path)
        assert len(events) >= 2
        assert notes[-1] == UNFINISHED if place == len(whole) - 1 else f"damaged at line {number}" in notes[0]


@pytest.mark.parametrize(
    "spoil", [lambda lines: lines[::-1], lambda lines: lines[1:], lambda lines: [lines[0], lines[2]]]
)
def test_lines_that_are_missing_or_in_another_order_are_damage(path, spoil):
    path.write_bytes(b"".join(spoil(LINES)))
    for read in (records, verify_lines):
        with pytest.raises(StorageError, match="is damaged at line"):
            read(path)
    assert Journal(path).size < len(path.read_bytes())


def test_a_reader_ignores_new_fields_and_counts_new_kinds(path):
    newer = [to_record(event) | {"novelty": 3} for event in one_of_each()]
    newer[4]["rollout_stats"] |= {"mood": 0.5}
    path.write_bytes(chained([*newer, {"kind": "teleported"}, {"kind": "teleported"}, {"kind": ["odd"]}]))
    assert read_by_history(path) == (
        list(one_of_each()),
        ("events that a newer prorl wrote are left out: 2 of kind 'teleported', 1 of kind ['odd']",),
    )


def test_truncate_moves_the_rest_aside(path):
    sizes = fill(path, 4)
    journal = Journal(path)
    for size, behind in ((sizes[3], [3]), (sizes[1], [1, 2])):
        assert [record["step"] for record in journal.behind(size)] == behind
        journal.truncate(size)
    journal.append({"step": "again"})
    assert journal.behind(journal.size) == []
    journal.truncate(journal.size, [{"step": "at once"}])
    journal.append({"step": "then"})
    journal.close()
    assert [record["step"] for record in records(path)] == [0, "again", "at once", "then"]
    kept = [json.loads(line)["step"] for line in journal.discarded_path.read_bytes().splitlines()]
    assert kept == [3, 1, 2]


@pytest.mark.parametrize("wrong", [-1, 3, 10_000])
def test_truncate_refuses_what_is_no_position(path, wrong):
    fill(path, 2)
    content = path.read_bytes()
    journal = Journal(path)
    with pytest.raises(StorageError, match="does not belong to that checkpoint"):
        journal.truncate(wrong)
    journal.close()
    assert path.read_bytes() == content


def test_no_room_leaves_no_half_line(path):
    fill(path, 2)
    content = path.read_bytes()
    journal = Journal(path)
    with files_limited_to(len(content) + 10), pytest.raises(StorageError, match="free some space"):
        journal.append({"text": "x" * 1000})
    assert path.read_bytes() == content
    journal.append({"step": 2})
    journal.close()
    assert len(records(path)) == 3
