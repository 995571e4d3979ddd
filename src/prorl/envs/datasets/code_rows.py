"""Rows of coding problems: their tests as inputs and expected values, whatever form they were published in.

Invariant: nothing of a row is executed or unpickled in this process. HumanEval's testing programs and LiveCodeBench's
packed tests are opened in the sandbox, which gives back plain data.

Megabytes of tests per problem exist, so they are capped here, evenly over the list: late tests tend to be the hard
ones. ProRL runs all tests of a problem within 5 s in total, which bounds them as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prorl.envs.datasets.openers import OPEN_ASSERTS, OPEN_PACKED
from prorl.envs.datasets.records import DataError, Drop, Prepared
from prorl.envs.datasets.values import as_text, parsed, user_text
from prorl.envs.sandbox.jobs import Job, Limits
from prorl.envs.types import Witness
from prorl.envs.verifiers.programs import Runner, is_list_of_one, same_output, same_value

MAX_TESTS = 64
MAX_TEST_BYTES = 100_000  # one input and its expected value, as JSON
MAX_TOTAL_BYTES = 1_000_000  # of one problem
OPENING = Limits(seconds=30.0, memory_bytes=2 << 30, output_bytes=4 << 20)
FLOAT_TOLERANCE = 1e-6  # EvalPlus's own and most contest checkers'; LiveCodeBench's grader has none

STDIN = "Write a Python program that reads standard input and prints the answer, in one block of ```python."
CALLED = "Write a Python function `{entry}` that solves it, in one block of ```python."
COMPLETE = "Complete this Python program and give all of it in one block of ```python."

_INTEGER = re.compile(r"-?[0-9]+")
# Eurus-2 ends each prompt with its own request for a code block.
_ASKED_ALREADY = re.compile(
    r"\s*Write Python code to solve the problem\.\s*Present the code in.*\Z", re.DOTALL
)


def from_tests(fields: Mapping[str, Any], _: Runner) -> Prepared:
    """A problem with APPS's tests: `{inputs, outputs, fn_name}` as JSON, maybe under `ground_truth`."""
    question = _ASKED_ALREADY.sub("", user_text(fields["prompt"]))
    given = parsed(fields["tests"])
    if isinstance(given, Mapping) and "ground_truth" in given:
        given = parsed(given["ground_truth"])
    if not isinstance(given, Mapping) or not {"inputs", "outputs"} <= given.keys():
        raise Drop("no tests")
    entry = given.get("fn_name") or None
    inputs, outputs = given["inputs"], given["outputs"]
    if len(inputs) != len(outputs):
        raise Drop("not one output per input")
    pairs = _pairs(entry, zip(inputs, outputs, strict=True))
    if entry is not None and any(_has_integer_keys(argument) for given, _ in pairs for argument in given):
        raise Drop("an argument whose keys JSON made text")
    return _problem(question, _how(entry), entry, pairs, tolerance=FLOAT_TOLERANCE, apps=True)


def from_contest(fields: Mapping[str, Any], run: Runner) -> Prepared:
    """A problem of LiveCodeBench; the private tests are a pickle in zlib in base64, which the sandbox opens."""
    question, starter = user_text(fields["prompt"]), as_text(fields.get("starter"))
    metadata = parsed(fields["metadata"])
    entry = metadata.get("func_name") or None
    packed = as_text(fields["private"])
    public = parsed(fields["public"])
    tests = [*public, *(_plain_or_opened(packed, run) if packed else ())]
    pairs = _pairs(entry, ((test["input"], test["output"]) for test in tests))
    asked = f"{question}\n\n```python\n{starter}\n```" if starter else question
    return _problem(asked, COMPLETE if starter else _how(entry), entry, pairs)


def from_asserts(fields: Mapping[str, Any], run: Runner) -> Prepared:
    """A problem of HumanEval+: the sandbox runs its test on its solution and notes what is compared with what."""
    stub, entry = fields["prompt"], as_text(fields["entry"])
    solution = f"{stub}{fields['solution']}"
    opened = _opened(run, OPEN_ASSERTS, [solution, fields["test"], entry])
    pairs = [(arguments, expected) for arguments, expected, _ in opened]
    declared = [tolerance for _, _, tolerance in opened if tolerance]
    tolerance = max([FLOAT_TOLERANCE, *declared])
    answer = f"```python\n{solution.strip()}\n```"
    return _problem(
        f"```python\n{stub.strip()}\n```", COMPLETE, entry, pairs, tolerance=tolerance, answer=answer
    )


def _problem(
    question: str,
    how: str,
    entry: str | None,
    pairs: Sequence[tuple[Any, Any]],
    *,
    tolerance: float | None = None,
    answer: str | None = None,
    apps: bool = False,
) -> Prepared:
    kept = _capped(pairs)
    expected = [value for _, value in kept]
    _require_telling(entry, expected)
    payload = {
        "kind": "code",
        "entry": entry,
        "inputs": [given for given, _ in kept],
        "expected": expected,
        "tolerance": tolerance,
        # APPS wraps some results in a list of one and others not; one that is no such list says that none is
        "maybe_wrapped": apps and entry is not None and all(is_list_of_one(value) for value in expected),
    }
    witness = Witness(steps="", answer=answer) if answer else None
    return Prepared(question=question, prompt=f"{question}\n\n{how}", payload=payload, witness=witness)


def _capped(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """At most `MAX_TESTS` tests, evenly over the list, that fit the caps on bytes.

    Raises:
        Drop: there are none, or none is small enough.
    """
    if not pairs:
        raise Drop("no tests")
    sizes = [len(json.dumps(pair)) for pair in pairs]
    small = [pair for pair, size in zip(pairs, sizes, strict=True) if size <= MAX_TEST_BYTES]
    count = min(len(small), MAX_TESTS)
    chosen = [small[position * len(small) // count] for position in range(count)]
    kept: list[tuple[Any, Any]] = []
    room = MAX_TOTAL_BYTES
    for pair in chosen:
        room -= len(json.dumps(pair))
        if room < 0:
            break
        kept.append(pair)
    if not kept:
        raise Drop("tests too large")
    return kept


def _how(entry: str | None) -> str:
    return STDIN if entry is None else CALLED.format(entry=entry)


def _pairs(entry: str | None, tests: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Inputs and expected values as a sandbox takes them: texts for a script, arguments and a result for a call."""
    if entry is None:
        return [(_lines(given), _lines(expected)) for given, expected in tests]
    return [(_arguments(given), _result(expected)) for given, expected in tests]


def _lines(value: Any) -> str:
    """Standard input or output: a text, or a list of its lines."""
    if isinstance(value, list):
        return "\n".join(as_text(line) for line in value)
    if not isinstance(value, str):
        raise Drop("tests that are no text")
    return value


def _arguments(value: Any) -> list[Any]:
    """Positional arguments: a list of them, or a text with one JSON value per line."""
    if isinstance(value, str):
        return [parsed(line) for line in value.split("\n") if line.strip()]
    if not isinstance(value, list):
        raise Drop("tests that are no arguments")
    return value


def _result(value: Any) -> Any:
    return parsed(value) if isinstance(value, str) else value


def _has_integer_keys(argument: Any) -> bool:
    """APPS's problems write such dicts with integers, which JSON does not know."""
    return isinstance(argument, dict) and bool(argument) and all(_INTEGER.fullmatch(key) for key in argument)


def _require_telling(entry: str | None, expected: Sequence[Any]) -> None:
    """See that the tests tell a solution from a program that always says the same.

    Raises:
        Drop: they do not.
    """
    if entry is None and not any(text.split() for text in expected):
        raise Drop("expected outputs that are all empty")
    if entry is not None and all(value in (None, "", [], {}) for value in expected):
        raise Drop("expected outputs that are all empty")
    same = same_output if entry is None else same_value
    if len(expected) > 1 and all(same(value, expected[0], None) for value in expected):
        raise Drop("one expected output for all tests")


def _plain_or_opened(packed: str, run: Runner) -> list[Any]:
    """Private tests: JSON in some mirrors, packed in the others."""
    if packed.startswith("["):
        return list(parsed(packed))
    return list(_opened(run, OPEN_PACKED, [packed, MAX_TESTS, MAX_TEST_BYTES, MAX_TOTAL_BYTES]))


def _opened(run: Runner, source: str, arguments: list[Any]) -> Any:
    """What `opened(*arguments)` of a trusted program returns, inside the sandbox.

    Raises:
        Drop: it failed on this row.
        DataError: the sandbox itself failed, which would silently drop all rows.
    """
    (result,) = run(Job(source=source, entry="opened", inputs=(arguments,), limits=OPENING))
    if result.status == "sandbox_error":
        raise DataError(f"the sandbox that opens packed tests failed ({result.note}): see `prorl doctor`")
    if result.status != "ok" or not isinstance(result.value, list):
        raise Drop("tests that cannot be opened")
    return result.value
