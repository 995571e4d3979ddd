"""One-liners: what the ladder promises, that puzzles have one solution, and what answers earn in the sandbox."""

import builtins
import os
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.extract import respond
from prorl.envs.families.one_liner import (
    HIDDEN,
    INPUTS,
    MAX_CHARS,
    SHOWN,
    OneLiner,
    expressions,
    puzzles,
    show,
    value,
)
from prorl.envs.sandbox.jobs import CaseResult
from prorl.envs.sandbox.sandbox import Sandbox
from prorl.envs.verifiers.programs import NeedsSandbox

TASK = OneLiner()
LEVELS = (*TASK.levels, *TASK.ood_levels)
DOUBLE = tuple((x, 2 * x) for x in range(11, 19))
ATOMS = (
    "x",
    "1",
    "2",
    "9",
    "0",
    "+",
    "-",
    "*",
    "//",
    "%",
    "**",
    "(",
    ")",
    " ",
    "if",
    "else",
    "or",
    "lambda",
    ":",
    "=",
)
WITNESSES = st.sampled_from([show(expression) for expression in expressions()])


@pytest.fixture(scope="module", autouse=True)
def sandbox():
    with Sandbox.open() as opened:
        TASK.use_sandbox(opened.run)
        yield opened


def drafts(level, count=60):
    rng = Random(level)
    return [TASK.generate(rng, level) for _ in range(count)]


def examples_of(draft):
    pairs = (pair.removeprefix("f(").split(")=") for pair in draft.prompt.split()[:-1])
    return [(int(x), int(result)) for x, result in pairs]


def test_the_family_has_no_two_expressions_for_one_function():
    family = list(expressions())
    assert {len(expression) for expression in family} == set(LEVELS)
    assert len({tuple(value(expression, x) for x in INPUTS) for expression in family}) == len(family)


@given(st.sampled_from(list(expressions())), st.sampled_from(INPUTS))
def test_an_expression_is_what_python_makes_of_its_text(expression, x):
    assert value(expression, x) == eval(show(expression), {"x": x})


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_a_number_of_operators(level):
    for draft in drafts(level):
        text = draft.witness.answer.replace("//", "/")
        assert sum(text.count(operator) for operator in "+-*/%") == level


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_shown_fits_one_expression_of_the_family(level):
    family = list(expressions())
    for draft in drafts(level, 8):
        shown = examples_of(draft)
        fitting = [e for e in family if all(value(e, x) == result for x, result in shown)]
        assert [show(expression) for expression in fitting] == [draft.witness.answer]


@pytest.mark.parametrize("level", LEVELS)
def test_hidden_inputs_are_distinct_and_never_shown(level):
    for draft in drafts(level):
        shown = {x for x, _ in examples_of(draft)}
        hidden = {x for x, _ in draft.payload}
        assert len(shown) == len(SHOWN)
        assert len(hidden) == HIDDEN
        assert not shown & hidden


@pytest.mark.parametrize("level", LEVELS)
def test_no_constant_passes_more_than_a_quarter_or_much_on_average(level):
    batch = drafts(level, 200)
    earned = Counter()
    for draft in batch:
        outputs = Counter(result for _, result in draft.payload)
        assert max(outputs.values()) <= HIDDEN / 4
        earned.update(outputs)
    assert max(earned.values()) / (HIDDEN * len(batch)) < 0.06


@pytest.mark.parametrize("level", LEVELS)
def test_no_short_expression_earns_much(level):
    batch = drafts(level, 100)
    short = [expression for expression in expressions() if len(expression) < 3]
    for expression in short:
        passed = sum(value(expression, x) == result for draft in batch for x, result in draft.payload)
        assert passed / (HIDDEN * len(batch)) < 0.15, show(expression)


@pytest.mark.parametrize("level", LEVELS)
def test_prompts_and_answers_are_short(level):
    for draft in drafts(level, 200):
        assert len(draft.prompt) <= 60
        assert len(draft.witness.answer) <= 12
        assert len(draft.witness.steps) <= 60


def test_every_level_has_puzzles_enough():
    counts = {level: len(found) for level, found in puzzles().items()}
    assert set(counts) == set(LEVELS)
    assert counts[1] > 250
    assert min(counts[level] for level in LEVELS[1:]) > 3000


def test_the_working_takes_differences_and_then_the_factors():
    by_answer = {draft.witness.answer: draft for level in (1, 2, 3) for draft in drafts(level, 2000)}
    draft = by_answer["x*x+5"]
    (start, low), (_, middle), (_, high), _ = examples_of(draft)
    factors = " ".join(str((start + offset) ** 2) for offset in SHOWN)
    assert draft.witness.steps == f"{middle - low} {high - middle}; x*x: {factors}"
    assert by_answer["x*3"].witness.steps == "3 3"
    assert by_answer["x+7"].witness.steps == "1 1"


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("x*2", 1),
        ("2*x", 1),
        ("x+x", 1),
        ("x << 1", 1),
        ("sum([x, x])", 1),
        ("(lambda y: y*2)(x)", 1),
        ("x*2 if x < 15 else 0", 0.5),
        ("x*2.0", 1),
        ("x*2 == x*2", 0),
        ("str(x*2)", 0),
        ("x", 0),
        ("24", 0.125),
        ("y*2", 0),
        ("x*2,", 0),
        ("x*2 x*2", 0),
        ("return x*2", 0),
        ("x*2 #", 0),
        ("x*2\nx*2", 0),
        ("x*2\rx*2", 0),
        ("x*2\u2028", 0),
        ("x×2", 0),
        ("х*2", 0),  # Cyrillic
        ("1/0", 0),
        ("x*2 if x != 18 else exit()", 0.875),
        ("x*2" + " " * MAX_CHARS + "+0", 0),
        ("", 0),
        ("'''", 0),
        ("\x00", 0),
        ("\ud800", 0),
        ("9**9**9**9", 0),
    ],
)
def test_an_answer_is_python_and_earns_its_share_of_the_tests(answer, score):
    assert TASK.score(DOUBLE, answer) == score


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
    server = sandbox.server_pid
    verdict = TASK.verify(TASK.problem(0, "exam"), respond("", answer))
    assert (verdict.score, verdict.status) == (0.0, "wrong"), verdict
    assert sandbox.server_pid == server


@pytest.mark.parametrize("level", LEVELS)
def test_the_witness_passes_and_a_near_miss_does_not(level):
    for draft in drafts(level, 5):
        assert TASK.score(draft.payload, draft.witness.answer) == 1
        assert TASK.score(draft.payload, draft.witness.answer + "+0") == 1
        assert TASK.score(draft.payload, draft.witness.answer + "+1") == 0


def test_a_response_without_an_answer_is_told_apart():
    verdict = TASK.verify(TASK.problem(0, "train"), "<think>x*2")
    assert (verdict.score, verdict.status, verdict.answered) == (0.0, "wrong", False)


def test_a_failing_sandbox_is_an_error_and_no_score():
    task = OneLiner()
    assert isinstance(task, NeedsSandbox)
    broken = CaseResult(status="sandbox_error", note="server lost")
    task.use_sandbox(lambda job: (broken,) * len(job.inputs))
    problem = task.problem(0, "train")
    verdict = task.verify(problem, respond("", problem.witness.answer))
    assert (verdict.score, verdict.status) == (0.0, "error")
    assert "server lost" in verdict.note


def test_nothing_of_an_answer_is_run_in_this_process(monkeypatch):
    def refuse(*_):
        raise AssertionError("an answer was run in the trainer")

    for name in ("eval", "exec", "compile"):
        monkeypatch.setattr(builtins, name, refuse)
    marker = "__import__('os').environ.setdefault('ONE_LINER_RAN', '1')"
    assert TASK.score(DOUBLE, marker) == 0
    assert TASK.score(DOUBLE, "x*2") == 1
    assert "ONE_LINER_RAN" not in os.environ


@st.composite
def mutants(draw):
    """A right expression with a piece of it replaced, dropped or doubled."""
    text = draw(WITNESSES)
    cut = draw(st.integers(0, len(text)))
    end = draw(st.integers(cut, len(text)))
    return (
        text[:cut]
        + draw(st.sampled_from(("", "x", "0", "-", "(", "**", " ", "\n", "\u0660", "#")))
        + text[end:]
    )


answers = (
    mutants() | st.lists(st.sampled_from(ATOMS), max_size=10).map("".join) | st.text(max_size=MAX_CHARS + 2)
)


def holds(answer):
    problem = TASK.problem(len(answer) % 7, "exam")
    verdict = TASK.verify(problem, respond("", answer))
    assert 0 <= verdict.score <= 1
    assert verdict.status == ("ok" if verdict.score == 1 else "wrong")


@settings(max_examples=150)
@given(answers)
def test_any_answer_gets_a_score(answer):
    holds(answer)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(answers)
def test_ten_thousand_answers_get_a_score(answer):
    holds(answer)


def test_an_answer_is_run_once_and_an_error_is_tried_again():
    task = OneLiner()
    problem = task.problem(0, "train")
    jobs = []

    def flaky(job):
        jobs.append(job)
        if len(jobs) == 1:
            return (CaseResult(status="sandbox_error", note="lost"),) * len(job.inputs)
        return (CaseResult(status="ok", value=0),) * len(job.inputs)

    task.use_sandbox(flaky)
    verdicts = [task.verify(problem, respond("", "x*0")) for _ in range(4)]
    assert [verdict.status for verdict in verdicts] == ["error", "wrong", "wrong", "wrong"]
    assert len(jobs) == 2
