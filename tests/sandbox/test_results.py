"""Reading what a child left behind, which a program may have written itself: never an exception, never too much."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.sandbox import results
from prorl.sandbox.jobs import Limits
from prorl.sandbox.link import Reply

LIMITS = Limits(seconds=5.0)


def reply(*lines: object, raw: bytes = b"", ready: bytes = b".", **changes: object) -> Reply:
    report = ready + b"".join(json.dumps(line).encode() + b"\n" for line in lines) + raw
    fields = {"output": b"", "cause": "exit", "signal": 0, "cpu_seconds": 0.0, "seconds": 0.1, **changes}
    return Reply(report=report, **fields)


def statuses(answer: Reply, count: int = 2) -> list[str]:
    return [result.status for result in results.read(answer, count, LIMITS)]


def test_lines_in_order_are_results():
    read = results.read(reply([0, "ok", {"a": [1.5]}, ""], [1, "runtime_error", None, "why"]), 2, LIMITS)
    assert (read[0].status, read[0].value) == ("ok", {"a": [1.5]})
    assert (read[1].status, read[1].value, read[1].note) == ("runtime_error", None, "why")


def test_a_child_that_was_never_confined_is_the_sandboxs_failure():
    assert statuses(reply(raw=b"OSError: no Landlock", ready=b"")) == ["sandbox_error"] * 2


def test_duplicates_gaps_and_partial_lines_end_the_reading():
    first = [0, "ok", 1, ""]
    assert statuses(reply(first, first)) == ["ok", "runtime_error"]
    assert statuses(reply([1, "ok", 1, ""], first)) == ["runtime_error"] * 2
    assert statuses(reply(first, raw=b'[1,"ok",1,""]')) == ["ok", "runtime_error"]


def test_extra_lines_change_nothing():
    lines = [[index, "ok", index, ""] for index in range(5)]
    assert statuses(reply(*lines)) == ["ok", "ok"]


def test_one_line_can_speak_for_the_rest_but_not_well_of_it():
    assert statuses(reply([0, "ok", 1, ""], [-1, "memory", None, ""])) == ["ok", "memory"]
    assert statuses(reply([-1, "ok", 1, ""])) == ["runtime_error"] * 2


def test_the_end_of_the_process_speaks_for_inputs_without_a_line():
    assert statuses(reply(cause="time")) == ["time"] * 2
    assert statuses(reply(cause="output")) == ["output"] * 2
    assert statuses(reply(signal=11)) == ["runtime_error"] * 2
    assert statuses(reply(signal=9)) == ["memory"] * 2
    assert statuses(reply(signal=9, cpu_seconds=6.0)) == ["time"] * 2
    assert statuses(reply(signal=24, cpu_seconds=5.0)) == ["time"] * 2


def test_values_that_would_hurt_whoever_compares_them_are_refused():
    deep = "[" * 500 + "]" * 500
    for value in (deep, "[" * 100_000, '"\\ud800"', "1" * 5000, '{"\\udfff": 1}'):
        assert statuses(reply(raw=f'[0,"ok",{value},""]\n'.encode()), 1) == ["runtime_error"]


def test_notes_are_short_and_printable():
    (result,) = results.read(reply([0, "runtime_error", None, "\x1b[31m\n\ud800" + "x" * 999]), 1, LIMITS)
    assert result.note.isprintable()
    assert len(result.note) <= 200


@given(report=st.binary(max_size=200), count=st.integers(0, 3))
def test_no_bytes_raise_and_none_claim_that_the_sandbox_failed(report, count):
    read = results.read(reply(raw=report), count, LIMITS)
    assert len(read) == count
    assert all(result.status != "sandbox_error" for result in read)


@settings(max_examples=50)
@given(
    index=st.integers(-2, 3),
    status=st.sampled_from(["ok", "sandbox_error", "time", "memory", "nonsense", 3, None, []]),
    value=st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5),
)
def test_well_formed_lines_never_raise(index, status, value):
    read = results.read(reply([index, status, value, ""]), 2, LIMITS)
    assert all(result.status != "sandbox_error" for result in read)
