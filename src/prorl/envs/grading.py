"""Grades a response against a gold answer, by kind: the rows of data sets, and whatever a caller brings.

Invariant: the answer is extracted as in every other task (after the thinking; a box or an answer tag), only a
program stands in a code block and only instructions concern the whole text. Math, multiple choice and quantities
are right or wrong; programs and instructions score the fraction that holds, as in ProRL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from prorl.envs.base import NO_ANSWER, verdict_of
from prorl.envs.datasets.catalogue import KINDS, Drop, Kind
from prorl.envs.datasets.convert import convert, payload_of_tests
from prorl.envs.errors import UsageError
from prorl.envs.extract import ANSWER_CLOSE, ANSWER_OPEN, after_thinking, extract_answer, extract_code
from prorl.envs.sandbox.jobs import Limits
from prorl.envs.types import Verdict
from prorl.envs.verifiers import published_checkers
from prorl.envs.verifiers.choice import choice_of
from prorl.envs.verifiers.instructions import UnknownInstructionError, validate, verify
from prorl.envs.verifiers.math import gold_verifies, math_equal
from prorl.envs.verifiers.programs import OwnSandbox, Runner, Tests, judge_program
from prorl.envs.verifiers.quantity import quantity_equal

PROGRAM_SECONDS = 5.0  # over all tests, as in ProRL; the judge's own limit is longer

Payload = Mapping[str, Any]

_OWN_SANDBOX: Runner = OwnSandbox()  # opened by the first program
_ONLY_FOR = {"options": ("choice",), "tolerance": ("math", "code"), "checkers": ("instructions",)}


def grade(
    kind: Kind,
    gold: Any,
    response: str,
    *,
    prompt: str = "",
    options: Sequence[str] | None = None,
    tolerance: float | None = None,
    checkers: published_checkers.Benchmark | None = None,
    run: Runner | None = None,
) -> Verdict:
    """Grade the response of a model, as the rows of data sets are graded in training.

    The answer is sought after the thinking: the last `<answer>…</answer>`, else the last `\\boxed{…}`; for code the
    last block of Python in triple backticks; for instructions the whole text.

    Args:
        kind: `math` and `quantity` (a number with a unit) are right or wrong, and so is `choice`; `code` scores the
            share of the tests passed, `instructions` the share of the instructions followed.
        gold: a text for `math` and `quantity`; for `choice` the letter or the text of the right option; for `code`
            `{"inputs": […], "outputs": […], "fn_name": …}` as APPS and PRIME write it, without `fn_name` texts of
            standard input and output; for `instructions` `[{"id": …, "kwargs": {…}}, …]` as IFEval writes it.
        response: the model's text.
        prompt: what was asked, for instructions that refer to it.
        options: the texts of a `choice`, in the order of their letters.
        tolerance: how far a number may be off: absolute for `math`; for `code` as its verifier says, default 1e-6.
        checkers: grade `instructions` by IFEval's or IFBench's own checkers (`pip install -e '.[evaluations]'`).
        run: the sandbox for programs, by default one that this process opens once.

    Returns:
        A verdict: `score` in [0, 1]; `status` "ok", "wrong" or "error", where the verifier could not tell.

    Raises:
        ProrlError: arguments that cannot be graded, in one sentence.
        SandboxError: `code` on a machine that has no sandbox; also a `ProrlError`.
    """
    check_kind(kind)
    if not isinstance(response, str):
        raise UsageError(f"the response is of type {type(response).__name__}; it must be a text")
    given = {"options": options, "tolerance": tolerance, "checkers": checkers}
    for name, kinds in _ONLY_FOR.items():
        if given[name] is not None and kind not in kinds:
            raise UsageError(f"{name} belongs to kind {' or '.join(kinds)}, not to {kind}")
    if kind == "choice" and not options:
        raise UsageError("kind choice needs options=[text, …], the options in the order of their letters")
    if tolerance is not None and not 0 <= tolerance < 1:
        raise UsageError(f"tolerance is {tolerance}; it must be at least 0 and below 1")
    if checkers not in (None, "ifeval", "ifbench"):
        raise UsageError(f"checkers is {checkers!r}; it must be 'ifeval' or 'ifbench', or be left out")
    layout, wanted = KINDS[kind]["layout"], KINDS[kind]["gold"]
    row: dict[str, Any] = {"prompt": "?", "answer": gold, "options": options, "tolerance": tolerance}
    try:
        if kind == "code":
            payload: Payload = payload_of_tests(gold, tolerance)
        else:
            if kind == "instructions":
                row["ids"] = [asked["id"] for asked in gold]
                row["arguments"] = [asked.get("kwargs") for asked in gold]
            payload = convert(checkers or layout, row, _OWN_SANDBOX).payload
        check_gold(payload, prompt)
    except Drop as why:
        raise UsageError(f"this gold cannot be graded as {kind} ({why}); it must be {wanted}") from None
    except (TypeError, ValueError, AttributeError, KeyError):
        raise UsageError(f"a gold of kind {kind} must be {wanted}, not {repr(gold)[:80]}") from None
    return judge(payload, prompt, response, run or _OWN_SANDBOX)


def judge(payload: Payload, prompt: str, text: str, run: Runner) -> Verdict:
    """Judge a response by what was prepared for its problem; `run` is used for programs only."""
    kind: Kind = payload["kind"]
    if kind == "code":
        source = extract_code(text)
        if source is None:
            return NO_ANSWER
        return judge_program(run, source, tests_of(payload), Limits(seconds=PROGRAM_SECONDS))
    if kind == "instructions":
        tail = after_thinking(text)
        if tail is None:
            return NO_ANSWER
        response = tail.strip().removeprefix(ANSWER_OPEN).removesuffix(ANSWER_CLOSE).strip()
        asked, checkers = payload["instructions"], payload["checkers"]
        if checkers is not None:
            return published_checkers.verify(checkers, asked, response, prompt=prompt)
        return verify(asked, response, prompt=prompt)
    answer = extract_answer(text)
    if answer is None:
        return NO_ANSWER
    return verdict_of(_is_right(payload, answer))


def check_kind(kind: str) -> None:
    """Raises UsageError: there is no such kind."""
    if kind not in KINDS:
        raise UsageError(f"no kind {kind!r}; the kinds are {', '.join(KINDS)}")


def check_gold(payload: Payload, prompt: str) -> None:
    """Check that the known answer of a row would be accepted, or that its instructions can be graded.

    Programs come without a solution to try; that there are tests is checked as they are read. What a reward function
    of the user's own judges is not tried. Raises Drop: it would not.
    """
    if payload["kind"] == "instructions":
        try:
            for instruction in payload["instructions"]:
                if payload["checkers"] is None:
                    validate(instruction)
                else:
                    published_checkers.validate(payload["checkers"], instruction, prompt)
        except UnknownInstructionError as error:
            raise Drop("an instruction that nobody can check") from error
    elif payload["kind"] not in ("code", "own"):
        gold = payload["gold"]
        if not (gold_verifies(gold) if payload["kind"] == "math" else _is_right(payload, gold)):
            raise Drop("a gold that fails its own verifier")


def tests_of(payload: Payload) -> Tests:
    """The tests of a code payload."""
    return Tests(**{field.name: payload[field.name] for field in fields(Tests)})


def _is_right(payload: Payload, answer: str) -> bool:
    gold: str = payload["gold"]
    match payload["kind"]:
        case "choice":
            return choice_of(answer, payload["options"]) == gold
        case "quantity":
            return quantity_equal(answer, gold)
    if math_equal(answer, gold):
        return True
    try:  # plain numbers within an absolute tolerance (OlympiadBench's `error`)
        tolerance = payload["tolerance"]
        return tolerance is not None and abs(float(answer.strip("$ ")) - float(gold)) <= tolerance
    except ValueError:
        return False
