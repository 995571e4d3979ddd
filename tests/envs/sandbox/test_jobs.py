"""What may come out of a program, and reading what a child left: never an exception, never too much."""

import json
from collections import Counter, OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.sandbox import jobs
from prorl.envs.sandbox.inside.protocol import MAX_DEPTH, MAX_INT_BITS, NotPlain, encode, require_plain
from prorl.envs.sandbox.jobs import Limits, Reply
from support.parsing import cost

LIMITS = Limits(seconds=5.0)


def reply(*lines, raw=b"", ready=b".", **changes):
    report = ready + b"".join(json.dumps(line).encode() + b"\n" for line in lines) + raw
    ended = {"output": b"", "cause": "exit", "signal": 0, "cpu_seconds": 0.0, "peak_bytes": 0, "seconds": 0.1}
    return Reply(report=report, **(ended | changes))


def statuses(answer, count=2):
    return [result.status for result in jobs.read(answer, count, LIMITS)]


def test_lines_in_order_are_results():
    read = jobs.read(reply([0, "ok", {"a": [1.5]}, ""], [1, "runtime_error", None, "why"]), 2, LIMITS)
    assert (read[0].status, read[0].value) == ("ok", {"a": [1.5]})
    assert (read[1].status, read[1].value, read[1].note) == ("runtime_error", None, "why")


FIRST = [0, "ok", 1, ""]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(raw=b"OSError: no Landlock", ready=b""), ["sandbox_error"] * 2),  # never confined
        # duplicates, gaps and partial lines end the reading
        (reply(FIRST, FIRST), ["ok", "runtime_error"]),
        (reply([1, "ok", 1, ""], FIRST), ["runtime_error"] * 2),
        (reply(FIRST, raw=b'[1,"ok",1,""]'), ["ok", "runtime_error"]),
        (reply(*([index, "ok", index, ""] for index in range(5))), ["ok", "ok"]),
        # one line can speak for the rest, but not well of it
        (reply(FIRST, [-1, "memory", None, ""]), ["ok", "memory"]),
        (reply([-1, "ok", 1, ""]), ["runtime_error"] * 2),
        # the end of the process speaks for inputs without a line
        (reply(cause="time"), ["time"] * 2),
        (reply(cause="output"), ["output"] * 2),
        (reply(signal=11), ["runtime_error"] * 2),
        (reply(signal=9), ["memory"] * 2),
        (reply(signal=9, cpu_seconds=6.0), ["time"] * 2),
        (reply(signal=24, cpu_seconds=5.0), ["time"] * 2),
    ],
)
def test_lines_count_in_order_and_the_end_of_the_process_speaks_for_the_rest(answer, said):
    assert statuses(answer) == said


def test_values_that_would_hurt_whoever_compares_them_are_refused():
    deep = "[" * 500 + "]" * 500
    for value in (deep, "[" * 100_000, '"\\ud800"', "1" * 5000, '{"\\udfff": 1}'):
        assert statuses(reply(raw=f'[0,"ok",{value},""]\n'.encode()), 1) == ["runtime_error"]


def test_a_line_is_as_long_as_a_result_may_be():
    limits = Limits(output_bytes=1000)
    for length, status in ((998, "ok"), (6000, "output")):
        read = jobs.read(reply([0, "ok", "x" * length, ""], [1, "ok", 1, ""]), 2, limits)
        assert [result.status for result in read] == [status, "ok"]


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ([0] * 333, "ok"),  # 1000 bytes with spaces, as whoever wrote the expected value may have counted
        ([[]] * 250, "ok"),
        ("[{,:" * 240 + '"' + "\\" * 9 + ",", "ok"),  # what stands in a text is no value
        ([0] * 600, "output"),
        ([[]] * 300, "output"),
        ({f"{n}": n for n in range(300)}, "output"),
        ([""] * 600, "output"),
        (["\\", '"', '\\"'] * 200, "output"),
    ],
)
def test_values_are_counted_before_they_are_parsed(value, status):
    compact = json.dumps([0, "ok", value, ""], separators=(",", ":")).encode() + b"\n"
    (result,) = jobs.read(reply(raw=compact), 1, Limits(output_bytes=1000))
    assert (result.status, result.value) == (status, value if status == "ok" else None)


def test_all_lines_share_the_bound_on_values():
    lines = [[index, "ok", [0] * 200, ""] for index in range(5)]
    read = jobs.read(reply(*lines), 5, Limits(output_bytes=1000))
    assert [result.status for result in read] == ["ok", "ok", "output", "output", "output"]


def test_reading_a_report_costs_as_much_as_the_values_that_it_may_hold(monkeypatch):
    monkeypatch.setattr(jobs, "READ_SECONDS", 600.0)
    deep = "[" + ",".join(["[" * 97 + "]" * 97] * 2600) + "]"
    lines = "".join(f'[{index},"ok",{deep},""]\n' for index in range(16)).encode()
    with cost() as spent:
        found = statuses(reply(raw=lines), 16)
    assert found == ["ok"] * 2 + ["output"] * 14
    assert spent.parses < 16  # two lines are parsed, copied and checked; sixteen would be five times as much


def test_a_report_that_takes_too_long_to_read_is_out_of_time(monkeypatch):
    monkeypatch.setattr(jobs, "READ_SECONDS", -1.0)
    assert statuses(reply([0, "ok", 1, ""], [1, "ok", 1, ""])) == ["time"] * 2


@pytest.mark.parametrize(
    ("changes", "outside"),
    [
        ({"signal": 9}, True),
        ({"signal": 15}, True),
        ({"signal": 0}, False),
        ({"signal": 11}, False),
        ({"signal": 24}, False),
        ({"signal": 9, "cpu_seconds": 5.0}, False),  # the limit on processor time
        ({"signal": 9, "peak_bytes": 128 << 20}, False),  # memory that it took itself
    ],
)
def test_only_a_kill_that_the_program_cannot_bring_about_is_one_from_outside(changes, outside):
    assert jobs.killed_from_outside(reply(**changes), LIMITS) == outside


def test_notes_are_short_and_printable():
    (result,) = jobs.read(reply([0, "runtime_error", None, "\x1b[31m\n\ud800" + "x" * 999]), 1, LIMITS)
    assert result.note.isprintable()
    assert len(result.note) <= 200


@given(report=st.binary(max_size=200), count=st.integers(0, 3))
def test_no_bytes_raise_and_none_claim_that_the_sandbox_failed(report, count):
    read = jobs.read(reply(raw=report), count, LIMITS)
    assert len(read) == count
    assert all(result.status != "sandbox_error" for result in read)


@settings(max_examples=50)
@given(
    index=st.integers(-2, 3),
    status=st.sampled_from(["ok", "sandbox_error", "time", "memory", "nonsense", 3, None, []]),
    value=st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5),
)
def test_well_formed_lines_never_raise(index, status, value):
    read = jobs.read(reply([index, status, value, ""]), 2, LIMITS)
    assert all(result.status != "sandbox_error" for result in read)


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize("value", [{1, 2}, b"x", 1j, {(1, 2): 3}, {1: 2, "1": 3}, [object()], range(3), ...])
def test_anything_of_another_type_is_not(value):
    with pytest.raises(NotPlain):
        encode(value, 1 << 20)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Point(1, 2), "[1,2]"),
        ((1, (0.1,), float("inf")), "[1,[0.1],Infinity]"),
        (OrderedDict(a=1), '{"a":1}'),
        (defaultdict(list, {1: (2,)}), '{"1":[2]}'),
        (Counter("aab"), '{"a":2,"b":1}'),
        ({True: 1, None: 2, 0.5: 3}, '{"true":1,"null":2,"0.5":3}'),
        (type("I", (int,), {"__eq__": lambda self, other: True, "__repr__": lambda self: "9"})(1), "1"),
        (type("S", (str,), {"__str__": lambda self: "other"})("x"), '"x"'),
        (type("F", (float,), {"__float__": lambda self: 9.0})(1.5), "1.5"),
        (type("L", (list,), {"__iter__": lambda self: iter([9])})([1]), "[1]"),
        (type("D", (dict,), {"items": lambda self: [("b", 9)]})(a=1), '{"a":1}'),
        (Decimal("0.5"), "0.5"),
        (Fraction(1, 2), "0.5"),
    ],
)
def test_a_result_is_what_its_base_type_holds(value, text):
    assert encode(value, 1 << 20) == text
    if type(value) not in (dict, tuple):
        with pytest.raises(NotPlain):
            require_plain(value)


def test_depth_and_digits_are_bounded():
    nested: list[object] = []
    for _ in range(MAX_DEPTH - 1):
        nested = [nested]
    assert encode(nested, 1 << 20) is not None
    with pytest.raises(NotPlain, match="deeply"):
        encode([[nested]], 1 << 20)
    assert encode((1 << MAX_INT_BITS) - 1, 1 << 20) is not None
    with pytest.raises(NotPlain, match="digits"):
        encode(1 << MAX_INT_BITS, 1 << 20)
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotPlain, match="deeply"):
        encode(loop, 1 << 20)


def test_what_is_too_long_is_told_apart():
    assert (encode("x" * 8, 10), encode("x" * 9, 10)) == ('"xxxxxxxx"', None)
