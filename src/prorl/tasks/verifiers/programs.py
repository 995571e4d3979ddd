"""Judges a program by what it returns or prints on hidden tests, run by a sandbox.

Invariant: what a program did is compared here, in the parent, and the expected values never leave it: a program can
only be right by computing them. Results are hostile data. They are walked along the shape of the expected value, so
that their depth and their type's own idea of equality never matter, and the work is bounded by the expected value.
"""

from __future__ import annotations

import math
import re
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from prorl.sandbox.jobs import CaseResult, Job, Limits
from prorl.sandbox.sandbox import Policy, Sandbox
from prorl.types import Verdict

Runner = Callable[[Job], tuple[CaseResult, ...]]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MAX_NUMBER_CHARS = 400  # a float written out in full has 309 digits before its point
_SHORT, _SHORT_BYTES = 1 << 12, 1 << 16  # characters of an expected value; output


@runtime_checkable
class NeedsSandbox(Protocol):
    """A task that runs programs. Whoever verifies hands it a sandbox, so that a process keeps only one open."""

    def use_sandbox(self, run: Runner) -> None:
        """Judge with `run` from now on, usually `Sandbox.run`."""


class OwnSandbox:
    """A sandbox that is opened by the first job, for tasks which may never run one."""

    def __init__(self, policy: Policy = Policy()) -> None:
        self._policy = policy
        self._run: Runner | None = None

    def __call__(self, job: Job) -> tuple[CaseResult, ...]:
        """Run a job.

        Raises:
            SandboxError: this machine has no sandbox that the policy allows.
        """
        if self._run is None:
            sandbox = Sandbox.open(self._policy)
            weakref.finalize(self, sandbox.close)
            self._run = sandbox.run
        return self._run(job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The hidden tests of one problem: what goes in, and what has to come out.

    With `entry`, an input is a list of positional arguments and its expected value is plain data; without, both are
    texts, of standard input and of standard output. `tolerance` is relative above 1 and absolute below, for floats
    only; None compares them exactly.

    Raises:
        ValueError: no tests, not one expected value per input, or a tolerance outside [0, 1).
    """

    entry: str | None
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if not self.inputs or len(self.inputs) != len(self.expected):
            raise ValueError(
                f"{len(self.inputs)} inputs with {len(self.expected)} expected values are no tests"
            )
        if self.tolerance is not None and not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance is {self.tolerance}; it must be at least 0 and below 1")


def judge_program(run: Runner, source: str, tests: Tests, limits: Limits) -> Verdict:
    """The share of all tests that a program passes; "ok" only for all of them.

    As in ProRL, a program that does not compile, or that uses up the time of all its tests together, scores 0.
    A failure of the sandbox on any test says nothing about the program: status "error".
    """
    # what no right program makes is not worth reading; a limit nearer to the expected values would give them away
    if all(len(str(expected)) <= _SHORT for expected in tests.expected):
        limits = replace(limits, output_bytes=min(limits.output_bytes, _SHORT_BYTES))
    job = Job(source=source, entry=tests.entry, inputs=tests.inputs, limits=limits)
    results = run(job)
    if len(results) != len(tests.inputs):
        note = f"the sandbox gave {len(results)} results for {len(tests.inputs)} inputs"
        return Verdict(score=0.0, status="error", note=note)
    outcomes = Counter(
        _outcome(result, expected, tests) for result, expected in zip(results, tests.expected, strict=True)
    )
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


def same_value(got: Any, expected: Any, tolerance: float | None) -> bool:
    """Whether a result is the expected plain data: lists and dicts by their parts, leaves by type and value.

    A bool is not an int, and a float is not an int; an int counts where a float of the same value is expected.
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
        elif not _same_leaf(got, expected, tolerance):
            return False
    return True


def same_output(got: str, expected: str, tolerance: float | None) -> bool:
    """Whether a program printed what it should: the same words in the same lines, spacing and final lines aside.

    With a tolerance two numbers agree within it, unless both are written as integers.
    """
    lines, expected_lines = (text.rstrip().split("\n") for text in (got, expected))
    return len(lines) == len(expected_lines) and all(
        _same_words(line.split(), wanted.split(), tolerance)
        for line, wanted in zip(lines, expected_lines, strict=True)
    )


def _outcome(result: CaseResult, expected: Any, tests: Tests) -> str:
    if result.status != "ok":
        return result.status
    if tests.entry is not None:
        same = same_value(result.value, expected, tests.tolerance)
    else:
        same = isinstance(result.value, str) and same_output(result.value, expected, tests.tolerance)
    return "passed" if same else "wrong"


def _same_leaf(got: Any, expected: Any, tolerance: float | None) -> bool:
    inexact = type(expected) is float or (
        tolerance is not None and type(got) is float and type(expected) is int
    )
    if inexact:
        return type(got) in (int, float) and _close(got, expected, tolerance)
    return type(got) is type(expected) and bool(got == expected)


def _same_words(words: list[str], expected: list[str], tolerance: float | None) -> bool:
    if words == expected:
        return True
    if tolerance is None or len(words) != len(expected):
        return False
    return all(_same_word(word, wanted, tolerance) for word, wanted in zip(words, expected, strict=True))


def _same_word(word: str, expected: str, tolerance: float) -> bool:
    if word == expected:
        return True
    # Python's own float() reads "nan", "1_0" and the digits of every script.
    if not (_is_written(_NUMBER, word) and _is_written(_NUMBER, expected)):
        return False
    if _is_written(_INTEGER, word) and _is_written(_INTEGER, expected):
        return False
    return _close(float(word), float(expected), tolerance)


def _is_written(form: re.Pattern[str], word: str) -> bool:
    return len(word) <= _MAX_NUMBER_CHARS and form.fullmatch(word) is not None


def _close(got: float, expected: float, tolerance: float | None) -> bool:
    if got == expected:
        return True
    if tolerance is None or not math.isfinite(expected):
        return False
    try:
        return abs(got - expected) <= tolerance * max(1.0, abs(expected))
    except OverflowError:  # an int beyond the floats
        return False
