"""How results are compared and counted. The results are given here; programs that run are in tests/envs/sandbox."""

import json
import math
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.sandbox.jobs import CaseResult, Job, Limits
from prorl.envs.verifiers.programs import OwnSandbox, judge_program, same_output, same_value
from prorl.envs.verifiers.programs import Tests as HiddenTests
from support.timing import cpu_seconds

LIMITS = Limits()
STATUSES = ("compile_error", "runtime_error", "time", "memory", "output")
plain, comparable = (
    st.recursive(
        st.none() | st.booleans() | st.integers() | floats | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
    for floats in (st.floats(), st.floats(allow_nan=False))
)
tolerances = st.none() | st.sampled_from((0.0, 1e-9, 1e-6, 0.5))
outputs = st.text(st.sampled_from("0123456789.-+eE naif\n\t_٣\x00"), max_size=30)


def judge(results, expected, *, entry="f", tolerance=None):
    """The verdict on a program that gave these results."""
    tests = HiddenTests(entry=entry, inputs=[[0]] * len(expected), expected=expected, tolerance=tolerance)
    return judge_program(lambda job: tuple(results), "", tests, LIMITS)


def ok(value):
    return CaseResult(status="ok", value=value)


@pytest.mark.parametrize(("got", "expected", "same"), [
    (3, 3, True), (True, True, True), (True, 1, True), (1, True, True), (0, False, True),
    (0, None, False), (0, "", False), (3.0, 3, True), (10**16 + 1, 10**16, False),
    (1e16, 10**16 + 1, False), ("1", 1, False), (3, 3.0, True), (3.1, 3.0, False), (True, 1.0, True),
    (0.1 + 0.2, 0.3, False), (math.nan, math.nan, False), (math.inf, math.inf, True),
    (-math.inf, math.inf, False), (10**400, 1e308, False), ("a", "a", True), ("a ", "a", False),
    ("é", "e\u0301", False),
    ("а", "a", False),  # Cyrillic
    ("3", 3, False), ([1, 2], [1, 2], True), ([1, 2], (1, 2), True), ([1, 2], [2, 1], False),
    ([1], [1, 2], False), ([1, 2, 3], [1, 2], False), ([[1], [2.0]], [[1], [2.0]], True),
    ([[1], [True]], [[1], [1]], True), ([], {}, False), ({}, [], False), ("ab", ["a", "b"], False),
    ({"a": [1]}, {"a": [1]}, True), ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    ({"a": 1}, {"a": 1, "b": None}, False), ({"a": 1, "b": None}, {"a": 1}, False),
    ({"1": 1}, {1: 1}, False),
])  # fmt: skip
def test_values_are_compared_by_type_and_by_parts(got, expected, same):
    assert same_value(got, expected, None) is same


@pytest.mark.parametrize(("got", "expected", "same"), [
    (0.1 + 0.2, 0.3, True), (1e9 + 2, 1e9, False), (1e9 + 0.1, 1e9, True), (1e-10, 0.0, True),
    (3.0000000001, 3, True), (4, 3.0, False),
    (100000001, 100000000, False),  # two integers are counts
    (100000000.05, 100000000, False),  # for an integer the tolerance is absolute
    (1e16, 10**16 + 1, False),  # which the floats do not tell apart
    (10**400, 1.0, False), (1.0, math.inf, False), (math.inf, 1.0, False), (math.nan, 1.0, False),
    (True, 1.0, True), ("1.0", 1.0, False),
    ([1.0000000001, {"a": 2.0}], [1.0, {"a": 2.0000000001}], True),
])  # fmt: skip
def test_a_tolerance_is_for_floats_only(got, expected, same):
    assert same_value(got, expected, 1e-9) is same


@given(comparable)
def test_what_went_through_json_is_itself(value):
    assert same_value(json.loads(json.dumps(value)), value, None)


@given(plain, plain, tolerances)
def test_comparison_never_fails_and_agrees_with_python_about_what_differs(got, expected, tolerance):
    same = same_value(got, expected, tolerance)
    if tolerance is None and same:
        assert got == expected
    if tolerance is None and repr(got) == repr(expected) and "nan" not in repr(got):
        assert same


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def test_hostile_results_cost_no_more_than_the_expected_value():
    deep, wide, long = nested(100_000), [[0] * 1000] * 1000, "x" * 10**7

    def compare():
        for hostile in (deep, wide, long, 10**100_000, {long: deep}, [wide, deep]):
            for expected in (0, 0.5, "x", [], [0], [[0]], {"a": 1}, None, True):
                assert not same_value(hostile, expected, 1e-6)

    assert cpu_seconds(compare, enough=1) < 1
    assert same_value(deep, nested(100_000), None)


@pytest.mark.parametrize(("got", "expected", "same"), [
    ("1 2\n", "1 2", True), ("1  2 \n\n", "1 2\n", True), ("1\r\n2\r\n", "1\n2\n", True),
    ("1\n2", "1 2", False), ("1 2", "1\n2", False), ("\n1", "1", True), ("1\n\n2", "1\n2", True),
    (" 1 \n", "1", True), ("YES", "Yes", False), ("YES NO", "YES", False), ("", "", True),
    ("", "0", False), ("1.0", "1", True), ("0.500000", "0.5", True), ("+.5", "0.50", True),
    ("0.30000000000000004", "0.3", False),  # LiveCodeBench's grader has no tolerance
    ("10000000000000001", "10000000000000000", False), ("1e16", "10000000000000001", False),
    ("1e16", "10000000000000000", True),
    ("007", "7", False),  # digits may be a text
    ("True", "1", False), ("1e999999999999", "1", False), ("100000.9", "100000", False),
    ("1e5", "100000", True), ("١", "1", False), ("1_0", "10", False),
])  # fmt: skip
def test_outputs_are_compared_word_by_word_in_their_lines(got, expected, same):
    assert same_output(got, expected, None) is same


@pytest.mark.parametrize(("got", "expected", "same"), [
    ("0.333333333", "0.3333333333", True), ("0.34", "0.3333333333", False), ("5.0", "5", True),
    ("1e5", "100000", True), ("100001", "100000", False),
    ("500000000.5", "500000000", False),  # half for a whole
    ("1.4142135623730951", "1.41421356", True), ("2.0000000000000004", "2", True),
    ("10000000000000000.0", "10000000000000001", False),
    ("1000000001", "1000000000", False),  # both are written as integers
    ("-.5", "-0.5", True), ("nan", "0.5", False), ("inf", "0.5", False), ("1e999", "0.5", False),
    ("0.5", "1e999", False), ("0_0.5", "0.5", False), ("٠.5", "0.5", False), ("0.5 x", "0.5", False),
    ("0.5 x", "0.5 y", False), ("0.5 x", "0.50 x", True), ("9" * 500 + ".0", "0.5", False),
    ("0." + "5" * 500, "0.5", False),  # nobody writes so many digits
])  # fmt: skip
def test_a_tolerance_reads_numbers_and_nothing_else(got, expected, same):
    assert same_output(got, expected, 1e-6) is same


@given(outputs, outputs, tolerances)
def test_comparing_outputs_never_fails_and_is_reflexive(got, expected, tolerance):
    assert same_output(got, got, tolerance)
    if tolerance is None and same_output(got, expected, None):
        assert len(got.split()) == len(expected.split())


def test_the_score_is_the_share_of_all_tests():
    verdict = judge([ok(1), ok(2), ok(9), CaseResult(status="memory")], [1, 2, 3, 4])
    assert (verdict.score, verdict.status) == (0.5, "wrong")
    assert verdict.note == "memory:1 passed:2 wrong:1"
    verdict = judge([ok("1"), ok("2\n")], ["1", "2"], entry=None)
    assert (verdict.score, verdict.status) == (1.0, "ok")


@pytest.mark.parametrize("status", ["compile_error", "time"])
def test_no_program_that_does_not_compile_or_runs_out_of_time_scores(status):
    verdict = judge([ok(1), ok(2), CaseResult(status=status)], [1, 2, 3])
    assert (verdict.score, verdict.status, verdict.note) == (0.0, "wrong", status)


@pytest.mark.parametrize(("results", "passed"), [
    ([3, 4], 2),  # APPS's lists of one are around the results
    ([[3], [4]], 2),  # … or are the results
    ([3, [4]], 1),  # but not now this, now that
    ([[3], 5], 1), ([[[3]], [[4]]], 0),
])  # fmt: skip
def test_lists_of_one_that_may_be_wrapped_are_read_one_way_in_all_tests(results, passed):
    given = tuple(ok(value) for value in results)
    tests = HiddenTests(entry="f", inputs=([0], [1]), expected=([3], [4]), maybe_wrapped=True)
    assert judge_program(lambda job: given, "", tests, LIMITS).score == passed / 2


def test_a_broken_sandbox_is_an_error_whatever_passed():
    verdict = judge([ok(1), CaseResult(status="sandbox_error", note="server lost")], [1, 2])
    assert (verdict.score, verdict.status, verdict.note) == (0.0, "error", "sandbox: server lost")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_that_are_not_one_per_input_are_an_error(count):
    verdict = judge([ok(1)] * count, [1, 1])
    assert (verdict.score, verdict.status) == (0.0, "error")
    assert f"{count} results for 2 inputs" in verdict.note


@st.composite
def judged(draw):
    """The verdict on any results, for tests of any expected values."""
    expected = draw(st.lists(plain, min_size=1, max_size=4))
    result = st.builds(ok, plain | st.sampled_from(expected)) | st.builds(
        CaseResult, status=st.sampled_from(STATUSES)
    )
    results = draw(st.lists(result, min_size=len(expected), max_size=len(expected)))
    return judge(results, expected, tolerance=draw(tolerances))


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_any_results_give_a_verdict(count):
    @settings(max_examples=count)
    @given(judged())
    def check(verdict):
        assert 0 <= verdict.score <= 1
        assert verdict.status == ("ok" if verdict.score == 1 else "wrong")

    check()


def test_a_job_holds_inputs_and_no_expected_value():
    jobs = []
    tests = HiddenTests(entry="f", inputs=([1], [2]), expected=(111, 222))
    judge_program(lambda job: jobs.append(job) or (ok(111), ok(222)), "source", tests, LIMITS)
    short = replace(LIMITS, output_bytes=1 << 16)
    assert jobs == [Job(source="source", entry="f", inputs=([1], [2]), limits=short)]


@pytest.mark.parametrize(("characters", "output_bytes"), [(4096, 1 << 16), (4097, LIMITS.output_bytes)])
def test_only_long_values_may_have_long_outputs(characters, output_bytes):
    jobs = []
    tests = HiddenTests(entry=None, inputs=("", ""), expected=("1", "x" * characters))
    judge_program(lambda job: jobs.append(job) or (ok("1"), ok("1")), "source", tests, LIMITS)
    assert [job.limits.output_bytes for job in jobs] == [output_bytes]


def test_a_task_without_a_sandbox_opens_one_that_works_for_all_threads_and_in_a_fork():
    run = OwnSandbox()

    def score(_):
        tests = HiddenTests(entry="f", inputs=([1], [2]), expected=(2, 3))
        return judge_program(run, "def f(x): return x + 1", tests, LIMITS).score

    assert score(0) == 1
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(score, range(8))) == [1] * 8
        busy = threads.submit(run, Job(source="import time; time.sleep(1)", inputs=("",)))
        fork = get_context("fork").Process(target=lambda: sys.exit(int(score(0))))
        fork.start()
        fork.join(60)
        assert fork.exitcode == 1
        assert [result.status for result in busy.result()] == ["ok"]
    run = pickle.loads(pickle.dumps(run))
    assert score(0) == 1
