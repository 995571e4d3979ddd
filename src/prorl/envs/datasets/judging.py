"""How a response to a prepared row is judged, by the kind of its payload.

Invariant: the answer is extracted as in every other task (after the thinking; a box or an answer tag), only a
program stands in a code block and only instructions concern the whole text. Math, multiple choice and quantities
are right or wrong; programs and instructions score the fraction that holds, as in ProRL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from prorl.envs.base import NO_ANSWER
from prorl.envs.datasets.records import Kind
from prorl.envs.extract import (
    ANSWER_CLOSE,
    ANSWER_OPEN,
    after_thinking,
    extract_answer,
    extract_code,
    last_box,
)
from prorl.envs.sandbox.jobs import Limits
from prorl.envs.types import Verdict
from prorl.envs.verifiers import published_checkers
from prorl.envs.verifiers.choice import choice_of
from prorl.envs.verifiers.instructions import Instruction, verify
from prorl.envs.verifiers.math import math_equal
from prorl.envs.verifiers.programs import Runner, Tests, judge_program
from prorl.envs.verifiers.quantity import quantity_equal

PROGRAM_SECONDS = (
    5.0  # over all tests, as in ProRL; the judge's own limit is longer, as it covers the way there
)

Payload = Mapping[str, Any]


def judge(payload: Payload, prompt: str, text: str, run: Runner) -> Verdict:
    """Judge a response by what was prepared for its problem; `run` is used for programs only."""
    return _JUDGES[payload["kind"]](payload, prompt, text, run)


def tests_of(payload: Payload) -> Tests:
    """The tests of a code payload.

    Raises:
        ValueError: they are none.
    """
    return Tests(
        entry=payload["entry"],
        inputs=tuple(payload["inputs"]),
        expected=tuple(payload["expected"]),
        tolerance=payload["tolerance"],
        maybe_wrapped=payload["maybe_wrapped"],
    )


def instructions_of(payload: Payload) -> tuple[Instruction, ...]:
    """The instructions of an instruction payload."""
    return tuple(Instruction(id=given["id"], kwargs=given["kwargs"]) for given in payload["instructions"])


def _math(payload: Payload, _prompt: str, text: str, _: Runner) -> Verdict:
    answer = _answer(text)
    if answer is None:
        return NO_ANSWER
    gold, tolerance = payload["gold"], payload["tolerance"]
    return _right(math_equal(answer, gold) or (tolerance is not None and _near(answer, gold, tolerance)))


def _choice(payload: Payload, _prompt: str, text: str, _: Runner) -> Verdict:
    answer = _answer(text)
    if answer is None:
        return NO_ANSWER
    return _right(choice_of(answer, payload["options"]) == payload["gold"])


def _quantity(payload: Payload, _prompt: str, text: str, _: Runner) -> Verdict:
    answer = _answer(text)
    if answer is None:
        return NO_ANSWER
    return _right(quantity_equal(answer, payload["gold"]))


def _code(payload: Payload, _prompt: str, text: str, run: Runner) -> Verdict:
    source = extract_code(text)
    if source is None:
        return NO_ANSWER
    return judge_program(run, source, tests_of(payload), Limits(seconds=PROGRAM_SECONDS))


def _instructions(payload: Payload, prompt: str, text: str, _: Runner) -> Verdict:
    tail = after_thinking(text)
    if tail is None:
        return NO_ANSWER
    response = tail.strip().removeprefix(ANSWER_OPEN).removesuffix(ANSWER_CLOSE).strip()
    instructions = instructions_of(payload)
    if payload["checkers"] is not None:
        return published_checkers.verify(payload["checkers"], instructions, response, prompt=prompt)
    return verify(instructions, response, prompt=prompt)


_JUDGES: Mapping[Kind, Callable[[Payload, str, str, Runner], Verdict]] = MappingProxyType(
    {
        "math": _math,
        "choice": _choice,
        "quantity": _quantity,
        "code": _code,
        "instructions": _instructions,
    }
)


def _answer(text: str) -> str | None:
    """The extracted answer; a box inside an answer tag is unwrapped."""
    answer = extract_answer(text)
    return answer if answer is None else (last_box(answer) or answer)


def _right(right: bool) -> Verdict:
    return Verdict(score=1.0, status="ok") if right else Verdict(score=0.0, status="wrong")


def _near(answer: str, gold: str, tolerance: float) -> bool:
    """Whether two plain numbers are within an absolute tolerance (OlympiadBench's `error`)."""
    try:
        return abs(float(answer.strip("$ ")) - float(gold)) <= tolerance
    except ValueError:
        return False
