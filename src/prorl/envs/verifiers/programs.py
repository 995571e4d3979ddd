"""Judges a program by what it returns or prints on hidden tests, run by a sandbox.

Invariant: what a program did is compared here, in the parent, and the expected values never leave it: a program can
only be right by computing them. Results are hostile data. They are walked along the shape of the expected value, so
that their depth and their type's own idea of equality never matter, and the work is bounded by the expected value.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from itertools import chain
from threading import local
from typing import Any, Protocol, runtime_checkable

from prorl.envs.sandbox.jobs import CaseResult, Job, Limits
from prorl.envs.sandbox.sandbox import Policy, Sandbox
from prorl.envs.types import Verdict

Runner = Callable[[Job], tuple[CaseResult, ...]]
Number = int | float | Decimal

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DECIMAL = Context(prec=1000, traps=[])  # exact for every word and float
_MAX_FLOAT_BITS = 1100  # an integer beyond is near no float
_MAX_NUMBER_CHARS = 400  # a float written out in full has 309 digits before its point
_SHORT, _SHORT_BYTES = 1 << 12, 1 << 16  # characters of an expected value; output


@runtime_checkable
class NeedsSandbox(Protocol):
    """A task that runs programs by `run_program`. Whoever verifies sets it, so that all share one sandbox."""

    run_program: Runner


class OwnSandbox(local):
    """A sandbox for each thread and each fork that asks, opened by its first job: a task may never run one."""

    _sandbox: Sandbox
    _process = 0  # that opened it

    def __init__(self, policy: Policy = Policy()) -> None:
        self._policy = policy

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnSandbox, (self._policy,)

    def __call__(self, job: Job) -> tuple[CaseResult, ...]:
        """Run a job. Raises SandboxError: this machine has no sandbox that the policy allows."""
        if self._process != os.getpid():
            self._sandbox, self._process = Sandbox.open(self._policy), os.getpid()
        return self._sandbox.run(job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The hidden tests of one problem: what goes in, and what has to come out.

    With `entry`, an input is a list of positional arguments and its expected value is plain data; without, both are
    texts, of standard input and of standard output. `tolerance` is for numbers one of which is a float, absolute
    where an integer or a number below 1 is expected and relative above; None compares their exact values. With
    `maybe_wrapped` every expected value is a list of one, and all these lists or all their elements are right.
    """

    entry: str | None
    inputs: Sequence[Any]
    expected: Sequence[Any]
    tolerance: float | None = None
    maybe_wrapped: bool = False


def judge_program(run: Runner, source: str, tests: Tests, limits: Limits) -> Verdict:
    """The share of all tests that a program passes; "ok" only for all of them.

    As in ProRL, a program that does not compile, or that uses up the time of all its tests together, scores 0.
    A failure of the sandbox on any test says nothing about the program: status "error".
    """
    # what no right program makes is not worth reading; a limit nearer to the expected values would give them away
    if all(len(str(expected)) <= _SHORT for expected in tests.expected):
        limits = replace(limits, output_bytes=min(limits.output_bytes, _SHORT_BYTES))
    job = Job(source=source, entry=tests.entry, inputs=tuple(tests.inputs), limits=limits)
    results = run(job)
    if len(results) != len(tests.inputs):
        note = f"the sandbox gave {len(results)} results for {len(tests.inputs)} inputs"
        return Verdict(score=0.0, status="error", note=note)
    outcomes = _outcomes(results, tests.expected, tests)
    if tests.maybe_wrapped:
        unwrapped = _outcomes(results, [value for (value,) in tests.expected], tests)
        outcomes = max(outcomes, unwrapped, key=lambda counts: counts["passed"])
    if outcomes["sandbox_error"]:
        reason = next(result.note for result in results if result.status == "sandbox_error")
        return Verdict(score=0.0, status="error", note=f"sandbox: {reason}")
    for fatal in ("compile_error", "time"):
        if outcomes[fatal]:
            return Verdict(score=0.0, status="wrong", note=fatal)
    if outcomes["passed"] == len(results):
        return Verdict(score=1.0, status="ok")
    note = " ".join(f"{outcome}:{count}" for outcome, count in sorted(outcomes.items()))
    return Verdict(score=outcomes["passed"] / len(results), status="wrong", note=note)


def is_list_of_one(value: Any) -> bool:
    """Whether a value has the form of a result that APPS has wrapped."""
    return isinstance(value, list | tuple) and len(value) == 1


def same_value(got: Any, expected: Any, tolerance: float | None) -> bool:
    """Whether a result is the expected plain data: lists and dicts by their parts, leaves by value.

    As `==` of Python, which LiveCodeBench's and PRIME's graders use, has it: True is 1 is 1.0, and "1" is neither.
    Tuples are lists. NaN equals nothing.
    """
    pairs = [(got, expected)]
    while pairs:
        got, expected = pairs.pop()
        if isinstance(expected, list | tuple):
            if not isinstance(got, list | tuple) or len(got) != len(expected):
                return False
            pairs.extend(zip(got, expected, strict=True))
        elif isinstance(expected, dict):
            if not isinstance(got, dict) or got.keys() != expected.keys():
                return False
            pairs.extend((got[key], value) for key, value in expected.items())
        elif isinstance(expected, int | float) and isinstance(got, int | float):
            if not _same_number(got, expected, tolerance):
                return False
        elif type(got) is not type(expected) or got != expected:
            return False
    return True


def same_output(got: str, expected: str, tolerance: float | None) -> bool:
    """Whether a program printed what it should: the same words in the same lines, spacing and blank lines aside.

    Two words that are numbers agree by value, as in LiveCodeBench's grader: 0.5 is 0.500000. Two integers must be
    written alike.
    """
    lines, wanted = (
        [words for line in text.split("\n") if (words := line.split())] for text in (got, expected)
    )
    if [len(words) for words in lines] != [len(words) for words in wanted]:
        return False
    pairs = zip(chain.from_iterable(lines), chain.from_iterable(wanted), strict=True)
    return all(_same_word(word, other, tolerance) for word, other in pairs)


def _outcomes(results: Sequence[CaseResult], expected: Sequence[Any], tests: Tests) -> Counter[str]:
    same = same_value if tests.entry is not None else same_output
    outcomes: Counter[str] = Counter()
    for result, value in zip(results, expected, strict=True):
        passed = result.status == "ok" and same(result.value, value, tests.tolerance)
        outcomes["passed" if passed else "wrong" if result.status == "ok" else result.status] += 1
    return outcomes


def _same_word(word: str, expected: str, tolerance: float | None) -> bool:
    if word == expected:
        return True
    # Python's own float() reads "nan", "1_0" and the digits of every script.
    if not all(len(each) <= _MAX_NUMBER_CHARS and _NUMBER.fullmatch(each) for each in (word, expected)):
        return False
    whole = _INTEGER.fullmatch(expected) is not None
    if whole and _INTEGER.fullmatch(word):
        return False
    wanted = int(expected) if whole else _DECIMAL.create_decimal(expected)
    return _same_number(_DECIMAL.create_decimal(word), wanted, tolerance)


def _same_number(got: Number, expected: Number, tolerance: float | None) -> bool:
    """In decimals, because a float cannot tell 10000000000000001 from its neighbours."""
    if got == expected:
        return True
    whole = isinstance(expected, int)
    if tolerance is None or (isinstance(got, int) and (whole or got.bit_length() > _MAX_FLOAT_BITS)):
        return False
    result, wanted = Decimal(got), Decimal(expected)
    if not (result.is_finite() and wanted.is_finite()):
        return False
    scale = Decimal(1) if whole else max(Decimal(1), wanted.copy_abs())
    return _DECIMAL.subtract(result, wanted).copy_abs() <= _DECIMAL.multiply(Decimal(tolerance), scale)
