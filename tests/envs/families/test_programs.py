"""List programs and one-liners: what the levels promise, worked answers, and what cheap programs earn."""

import builtins
import os
import re
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.adapters import trl_reward
from prorl.envs.extract import respond
from prorl.envs.families.programs import (
    HELD_OUT_PAIRS,
    HIDDEN,
    INPUTS,
    MAX_CHARS,
    MAX_OPS,
    OPS,
    PROGRAM_LEVELS,
    SHOWN,
    TESTS_HIDDEN,
    ListSynthesis,
    OneLiner,
    expressions,
    parse_program,
    puzzles,
    show,
    trace,
    value,
)
from prorl.envs.sandbox.jobs import CaseResult
from prorl.envs.sandbox.link import SandboxError
from prorl.envs.sandbox.sandbox import Sandbox
from prorl.envs.verifiers.programs import NeedsSandbox
from support.sandbox_tiers import server_pid

LISTS, TASK = ListSynthesis(), OneLiner()
LEVELS = TASK.all_levels
FAMILY = list(expressions())
DOUBLE = tuple((x, 2 * x) for x in range(11, 19))


def drafts(level, count=60, task=TASK):
    rng = Random(level)
    return [task.generate(rng, level) for _ in range(count)]


# list programs


EXAMPLES = """neg: 2 7 5 9 > -2 -7 -5 -9 | inc: 2 -1 > 3 0 | dbl: 2 -1 > 4 -2 | rev: 2 7 5 > 5 7 2 | head: 2 7 5 > 2
    sort: 2 7 5 -1 > -1 2 5 7 | uniq: 2 7 2 5 7 > 2 7 5 | tail: 2 7 5 > 7 5 | init: 2 7 5 > 2 7 | max: 2 7 5 > 7
    even: 2 7 -4 > 2 -4 | odd: 2 7 -5 > 7 -5 | sum: 2 7 5 > 14 | min: 2 7 5 > 2 | neg max: 2 7 5 9 > -2
    max neg: 2 7 5 9 > -9 | tail head:  >  | max:  >  | sum:  > 0"""


@pytest.mark.parametrize("example", EXAMPLES.replace("\n", "|").split("|"))
def test_operators_by_hand(example):
    program, values, expected = re.fullmatch("(.+):(.*)>(.*)", example).groups()
    states = trace(parse_program(program), tuple(map(int, values.split())))
    assert states[-1] == tuple(map(int, expected.split()))


@given(
    st.lists(st.sampled_from(list(OPS)), min_size=1, max_size=MAX_OPS).map(tuple),
    st.lists(st.integers(-99, 99), min_size=1, max_size=9).map(tuple),
)
def test_no_operator_makes_a_list_longer_or_a_value_large(program, given_values):
    for state in trace(program, given_values):
        assert len(state) <= len(given_values)
        assert all(abs(value) <= 9 * 100 * 2**MAX_OPS for value in state)


@pytest.mark.parametrize("level", LISTS.all_levels)
def test_a_list_program_is_as_its_level_says_and_no_operator_of_it_is_idle(level):
    asked = PROGRAM_LEVELS[level - 1]
    for draft in drafts(level, task=LISTS):
        program = parse_program(draft.solution.answer)
        assert len(program) in asked.ops
        assert asked.held_out_pair == any(pair in HELD_OUT_PAIRS for pair in pairwise(program))
        for values, result in draft.payload:
            states = (values, *trace(program, values))
            assert len(set(states)) == len(states)
            assert states[-1] == result != ()
        shown = {pair.split(" =>")[0] for pair in draft.prompt.removesuffix("; ops?").split("; ")}
        hidden = {" ".join(map(str, values)) for values, _ in draft.payload}
        assert (len(shown), len(hidden)) == (3, TESTS_HIDDEN)
        assert not shown & hidden


def test_any_right_program_counts_and_a_half_right_one_counts_half():
    payload = tuple(((n, n + 1), (n + 1,)) for n in range(4)) + tuple(
        ((n + 1, n), (n + 1,)) for n in range(4)
    )
    assert [LISTS.score(payload, text) for text in ("max", "sort tail", "tail", "min")] == [1, 1, 0.5, 0]


NO_PROGRAMS = ["", "   ", "neg foo", "neg|max", "NEG", "__import__", "neg " * (MAX_OPS + 1), "lambda xs: xs"]


@pytest.mark.parametrize("answer", [*NO_PROGRAMS, "rev rev", "2 7 5", "max; min", "dbl " * MAX_OPS])
def test_texts_that_are_no_program_and_idle_programs_pass_nothing(answer):
    assert (parse_program(answer) is None) == (answer not in ("rev rev", "dbl " * MAX_OPS))
    assert all(LISTS.score(draft.payload, answer) == 0 for draft in drafts(2, 20, LISTS))


@pytest.mark.parametrize("level", LISTS.all_levels)
def test_no_single_operator_earns_much(level):
    batch = drafts(level, task=LISTS)
    for name in OPS:
        assert sum(LISTS.score(draft.payload, name) for draft in batch) / len(batch) < 0.25


# one-liners


@pytest.fixture(scope="module", autouse=True)
def sandbox():
    with Sandbox.open() as opened:
        TASK.run_program = opened.run
        yield opened


def examples_of(draft):
    pairs = (pair.removeprefix("f(").split(")=") for pair in draft.prompt.split()[:-1])
    return [(int(x), int(result)) for x, result in pairs]


def test_the_family_has_no_two_expressions_for_one_function_and_puzzles_enough_of_every_level():
    assert len({tuple(value(expression, x) for x in INPUTS) for expression in FAMILY}) == len(FAMILY)
    counts = {level: len(found) for level, found in puzzles().items()}
    assert {len(expression) for expression in FAMILY} == set(counts) == set(LEVELS)
    assert counts[1] > 250
    assert min(counts[level] for level in LEVELS[1:]) > 3000


@given(st.sampled_from(FAMILY), st.sampled_from(INPUTS))
def test_an_expression_is_what_python_makes_of_its_text(expression, x):
    assert value(expression, x) == eval(show(expression), {"x": x})


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_a_number_of_operators_and_what_is_shown_fits_one_expression_of_the_family(level):
    for draft in drafts(level, 8):
        text = draft.solution.answer.replace("//", "/")
        assert sum(text.count(operator) for operator in "+-*/%") == level
        shown, hidden = dict(examples_of(draft)), {x for x, _ in draft.payload}
        assert (len(shown), len(hidden)) == (len(SHOWN), HIDDEN)
        assert not shown.keys() & hidden
        fitting = [show(e) for e in FAMILY if all(value(e, x) == result for x, result in shown.items())]
        assert fitting == [draft.solution.answer]


@pytest.mark.parametrize("level", LEVELS)
def test_no_constant_and_no_short_expression_earns_much(level):
    batch = drafts(level, 200)
    outputs = [Counter(result for _, result in draft.payload) for draft in batch]
    assert max(max(found.values()) for found in outputs) <= HIDDEN / 4
    assert max(sum(outputs, Counter()).values()) / (HIDDEN * len(batch)) < 0.06
    for expression in (expression for expression in FAMILY if len(expression) < 3):
        passed = sum(value(expression, x) == result for draft in batch[:100] for x, result in draft.payload)
        assert passed / (HIDDEN * 100) < 0.15, show(expression)


def test_the_working_takes_differences_and_then_the_factors():
    by_answer = {draft.solution.answer: draft for level in (1, 2, 3) for draft in drafts(level, 2000)}
    draft = by_answer["x*x+5"]
    (start, low), (_, middle), (_, high), _ = examples_of(draft)
    factors = " ".join(str((start + offset) ** 2) for offset in SHOWN)
    assert draft.solution.steps == f"{middle - low} {high - middle}; x*x: {factors}"
    assert by_answer["x*3"].solution.steps == "3 3"
    assert by_answer["x+7"].solution.steps == "1 1"


RIGHT = ("x*2", "2*x", "x+x", "x << 1", "sum([x, x])", "(lambda y: y*2)(x)", "x*2.0")
WRONG = (
    *("x*2 == x*2", "str(x*2)", "x", "y*2", "x*2,", "x*2 x*2", "return x*2", "x*2 #", "x*2\nx*2", "x*2\rx*2"),
    *("x*2\u2028", "x×2", "х*2", "1/0", "x*2" + " " * MAX_CHARS + "+0", "", "'''", "\x00", "\ud800"),
    "9**9**9**9",
)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        *((answer, 1) for answer in RIGHT),
        *((answer, 0) for answer in WRONG),
        *(("x*2 if x < 15 else 0", 0.5), ("24", 0.125), ("x*2 if x != 18 else exit()", 0.875)),
        *(("x*2+0", 1), ("x*2+1", 0)),
    ],
)
def test_an_answer_is_python_and_earns_its_share_of_the_tests(answer, score):
    assert TASK.score(DOUBLE, answer).score == score


@pytest.mark.parametrize(
    "answer",
    [
        "__import__('os').kill(__import__('os').getppid(), 9)",
        "open('/etc/passwd').read()",
        "[c for c in ().__class__.__base__.__subclasses__()]",
        "type('A', (int,), {'__eq__': lambda *_: True})(0)",
        "__import__('os')._exit(0)",
        "x) or __import__('sys').exit(0",
        "[i for i in iter(int, 1)]",
    ],
)
def test_an_answer_that_attacks_earns_nothing(sandbox, answer):
    server = server_pid(sandbox)
    verdict = TASK.verify(TASK.problem(0, "validation"), respond("", answer))
    assert (verdict.score, verdict.status) == (0.0, "wrong"), verdict
    assert server_pid(sandbox) == server


def test_an_answer_is_run_once_but_again_after_a_failing_sandbox_or_a_stall():
    task = OneLiner()
    assert isinstance(task, NeedsSandbox)
    problem = task.problem(0, "train")
    jobs = []

    def flaky(job):
        jobs.append(job)
        failures = [CaseResult(status="sandbox_error", note="server lost"), CaseResult(status="time")]
        found = failures[len(jobs) - 1] if len(jobs) <= 2 else CaseResult(status="ok", value=0)
        return (found,) * len(job.inputs)

    task.run_program = flaky
    verdicts = [task.verify(problem, respond("", "x*0")) for _ in range(4)]
    assert [verdict.status for verdict in verdicts] == ["error", "wrong", "wrong", "wrong"]
    assert "server lost" in verdicts[0].note
    assert verdicts[1].note == "time"
    assert len(jobs) == 3


def test_a_machine_without_a_sandbox_is_told_and_no_verdict():
    def refuse(job):
        raise SandboxError("programs cannot be run safely here")

    task = OneLiner()
    task.run_program = refuse
    with pytest.raises(SandboxError, match="cannot be run safely"):
        trl_reward(task)(["?"], [respond("", "x")], index=[0], split=["train"])


def test_nothing_of_an_answer_is_run_in_this_process(monkeypatch):
    def refuse(*_):
        raise AssertionError("an answer was run in the trainer")

    for name in ("eval", "exec", "compile"):
        monkeypatch.setattr(builtins, name, refuse)
    assert TASK.score(DOUBLE, "__import__('os').environ.setdefault('ONE_LINER_RAN', '1')").score == 0
    assert TASK.score(DOUBLE, "x*2").score == 1
    assert "ONE_LINER_RAN" not in os.environ
