"""From the rows of a source to problems: the question, the prompt of its domain, and what judging needs.

Invariants: a converter is a function of one row, which returns a `Prepared` or raises `Drop`; it never guesses an
answer. Prompts ask for the form that extraction reads: a box, or for instructions nothing at all, as in ProRL.
Nothing of a row is executed or unpickled in this process: the sandbox opens HumanEval's tests and LiveCodeBench's
packed tests (`opening.py`).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from string import ascii_uppercase
from typing import Any

from prorl.envs.base import canonical
from prorl.envs.datasets.catalogue import Drop, as_text
from prorl.envs.datasets.opening import ASSERTS, PACKED, opened
from prorl.envs.extract import last_box
from prorl.envs.sandbox.inside.protocol import NotPlain, require_plain
from prorl.envs.sandbox.jobs import Limits
from prorl.envs.types import Solution, Turn
from prorl.envs.verifiers.choice import choice_of, shuffled
from prorl.envs.verifiers.programs import Runner, is_list_of_one, same_output, same_value

BOXED = "Let's think step by step and output the final answer within \\boxed{}."
LETTER = "Let's think step by step and output the letter of the right option within \\boxed{}."

MAX_SHORT_ANSWER = 60  # characters; what is longer is a derivation
YES_NO = {"true": ("True", "False"), "false": ("True", "False"), "yes": ("Yes", "No"), "no": ("Yes", "No")}

MAX_TESTS = 64
MAX_TEST_BYTES = 100_000  # one input and its expected value, as JSON
MAX_TOTAL_BYTES = 1_000_000  # of one problem
FLOAT_TOLERANCE = 1e-6  # EvalPlus's own and most contest checkers'; LiveCodeBench's grader has none

STDIN = "Write a Python program that reads standard input and prints the answer, in one block of ```python."
CALLED = "Write a Python function `{entry}` that solves it, in one block of ```python."
COMPLETE = "Complete this Python program and give all of it in one block of ```python."

_INTEGER = re.compile(r"-?[0-9]+")
# Eurus-2 ends each prompt with its own request for a code block.
_ASKED_ALREADY = re.compile(r"(?s)\s*Write Python code to solve the problem\.\s*Present the code in.*\Z")

_OPTION = re.compile(r"(?m)(?:^|\s)\(?([A-J])[).:]\s+(.+?)(?=\s+\(?[A-J][).:]\s|\s*$)")
_STATED = re.compile(
    r"(?im)\banswer\*{0,2}\s*(?:is|:)[\s:*]*(?:(?:therefore|approximately|about)\s+)?(.+?)\.?\s*$"
)
_MARKED = re.compile(r"(?s)^.*####(?=[^\n]*$)")  # GSM8K's mark of the answer, in the last line
_CHAT = re.compile(r'\s*\[\s*\{\s*"(?:role|content)"')
_QUANTITY = re.compile(r"[-+−]?\s*[\d.]")

Fields = Mapping[str, Any]
Pair = tuple[Any, Any]  # what a program is given, and what it has to give back


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A row as it is stored: everything that asking and judging it needs."""

    question: str  # without instructions on the form of the answer; what duplicates and overlap are found by
    prompt: str  # what the model sees
    payload: Mapping[str, Any]  # JSON; `kind` says how the rest is read (`grading.py`)
    solution: Solution | None = None
    history: tuple[Turn, ...] = ()  # what was said before the prompt


def convert(layout: str, fields: Fields, run: Runner) -> Prepared:
    """One row of a source of this layout; `run` opens what must not be opened in this process.

    Raises Drop: the row cannot be used.
    """
    try:
        return _CONVERTERS[layout](fields, run)
    except KeyError as missing:
        raise Drop(f"no {missing.args[0]} column") from None
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise Drop("a row of another shape") from None


def _short_answer(fields: Fields, _: Runner) -> Prepared:
    question, gold = user_text(fields["prompt"]), _gold(fields["answer"])
    try:  # OlympiadBench's `error`, as text; anything else than one number means none
        tolerance = float(fields.get("tolerance") or 0)
    except (TypeError, ValueError, OverflowError):
        tolerance = 0.0
    return _math(question, gold, tolerance if 0 < tolerance < 1 else None)


def _typed_answer(fields: Fields, _: Runner) -> Prepared:
    question, kind, answer = user_text(fields["prompt"]), as_text(fields["type"]).lower(), fields["answer"]
    gold = _gold(as_text(answer) if kind == "boolean" else answer)
    if kind in ("float", "integer", "number"):
        return _number(question, gold)
    if kind in ("fraction", "percentage"):
        return _math(question, gold)
    if kind == "multiple choice":
        letters, texts = zip(*found, strict=True) if (found := _OPTION.findall(question)) else ((), ())
        if len(letters) < 2 or "".join(letters) != ascii_uppercase[: len(letters)]:
            raise Drop("no options in the question")
        return _choice(question, [text.strip() for text in texts], gold)
    if kind == "boolean":
        if gold.lower() not in YES_NO:
            raise Drop("a yes-or-no answer that is neither")
        return _choice(question, YES_NO[gold.lower()], gold)
    raise Drop(f"answer type {kind}")


def _worked_solution(fields: Fields, _: Runner) -> Prepared:
    question, solution = user_text(fields["prompt"]), as_text(fields["solution"])
    stated = _STATED.findall(solution)
    gold = (last_box(solution) or (stated[-1] if stated else "")).strip(" *").strip("$").strip()
    if not gold or len(gold) > MAX_SHORT_ANSWER or "\n" in gold:
        raise Drop("no short answer in the solution")
    return _number(question, gold) if _QUANTITY.match(gold) else _math(question, gold)


def _lettered(fields: Fields, run: Runner) -> Prepared:
    (options, labels), question = _options(fields["options"]), user_text(fields["prompt"])
    template = fields.get("template")
    wrapped = template.get("template_prompt") if isinstance(template, Mapping) else None
    if wrapped and "{problem}" in wrapped:
        before, _, after = wrapped.partition("{problem}")
        question = question.removeprefix(before).removesuffix(after).strip()
    return _choice(question, options, _right(fields["answer"], options, labels))


def _distractors(fields: Fields, _: Runner) -> Prepared:
    question = user_text(fields["prompt"])
    texts = [as_text(fields[name]) for name in ("answer", "wrong_1", "wrong_2", "wrong_3")]
    order = shuffled(texts, canonical(question))
    options = [texts[position] for position in order]
    return _choice(question, options, ascii_uppercase[list(order).index(0)])


def _instructions(fields: Fields, _: Runner, checkers: str | None = None) -> Prepared:
    prompt, ids, arguments = user_text(fields["prompt"]), parsed(fields["ids"]), parsed(fields["arguments"])
    if not ids or not isinstance(arguments, Sequence) or len(ids) != len(arguments):
        raise Drop("not one set of arguments per instruction")
    if not all(isinstance(name, str) for name in ids):
        raise Drop("an instruction whose name is no text")
    instructions = [
        {"id": name, "kwargs": {key: value for key, value in (given or {}).items() if value is not None}}
        for name, given in zip(ids, arguments, strict=True)
    ]
    payload = {"kind": "instructions", "instructions": instructions, "checkers": checkers}
    return Prepared(question=prompt, prompt=prompt, payload=payload)


def _own(fields: Fields, _: Runner) -> Prepared:
    question = user_text(fields["prompt"])
    row = {**fields["row"], "prompt": fields["prompt"]}  # TRL's signature asks for it by this name
    payload = {"kind": "own", "gold": fields.get("answer"), "row": row}
    payload = json.loads(json.dumps(payload, default=str))  # dates and bytes, say
    return Prepared(question=question, prompt=question, payload=payload)


def _asked(question: str, how: str, payload: Mapping[str, Any], answer: str) -> Prepared:
    prompt = question if "\\boxed" in question else f"{question}\n{how}"
    solution = Solution(steps="", answer=answer)
    return Prepared(question=question, prompt=prompt, payload=payload, solution=solution)


def _math(question: str, gold: str, tolerance: float | None = None) -> Prepared:
    return _asked(question, BOXED, {"kind": "math", "gold": gold, "tolerance": tolerance}, gold)


def _number(question: str, gold: str) -> Prepared:
    return _asked(question, BOXED, {"kind": "quantity", "gold": gold}, gold)


def _choice(question: str, options: Sequence[str], right: str) -> Prepared:
    """`right` is the letter of the right option, or its text."""
    letter = choice_of(right, options)
    if letter is None:
        raise Drop("the right option is not among the options")
    if len({" ".join(option.split()) for option in options}) < len(options):
        raise Drop("two options are the same")
    payload = {"kind": "choice", "gold": letter, "options": list(options)}
    lettered = [*zip(ascii_uppercase, options, strict=False)]
    if not all(re.search(rf"\b{name}[).:]\s+{re.escape(text)}", question) for name, text in lettered):
        question = "\n".join([question, *(f"{name}. {text}" for name, text in lettered)])
    return _asked(question, LETTER, payload, letter)


def _gold(value: Any) -> str:
    """An answer as text: what its last box holds. Whole floats lose their point, lists become one line."""
    parts = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(part, bool) for part in parts):
        raise Drop("true or false in place of a text")
    texts = [_MARKED.sub("", as_text(part)) for part in parts]
    texts = [(last_box(text) or text).strip("$ ") for text in texts]  # of a worked solution the box
    if not texts or not all(texts):
        raise Drop("no answer")
    return ", ".join(texts)


def _options(value: Any) -> tuple[tuple[str, ...], list[str]]:
    """Options as `[{"A": text}, …]`, `{"A": text, …}`, `[text, …]` or `{"text": […], "label": […]}`; and the labels.

    Parquet gives every option all letters, and None for those that it does not have. Letters are labels
    where they are not the first ones in order.
    """
    value, labels = parsed(value), []
    if isinstance(value, Mapping) and all(isinstance(value.get(key), list) for key in ("label", "text")):
        value, labels = value["text"], [as_text(label) for label in value["label"]]
    elif isinstance(value, Mapping):
        value = [{letter: text} for letter, text in sorted(value.items()) if text is not None]
    texts: list[str] = []
    for option in value or ():
        given = option.items() if isinstance(option, Mapping) else [("", option)]
        known = [(letter, text) for letter, text in given if text is not None]
        if len(known) != 1 or not isinstance(known[0][1], str | int | float):
            raise Drop("no options")
        texts.append(as_text(known[0][1]))
        labels += [known[0][0]] if known[0][0] else []
    if len(texts) < 2 or not all(texts) or len(labels) not in (0, len(texts)):
        raise Drop("no options")
    return tuple(texts), [] if labels == list(ascii_uppercase[: len(texts)]) else labels


def _right(answer: Any, options: Sequence[str], labels: Sequence[str]) -> str:
    """The right option by its letter or text: where rows have labels, the answer is one; a number is a place from 0,
    and so are digits, as CSV has no numbers, where they are no option.

    Raises Drop: the place or the letter of one option that is the text of another.
    """
    if (said := as_text(answer)) in labels:
        return ascii_uppercase[labels.index(said)]
    digits = said.isdecimal() and len(said) < 3 and said not in options
    letter = ascii_uppercase.find(said.upper()) if len(said) == 1 else -1
    place = answer if type(answer) is int else int(said) if digits else letter
    if 0 <= place < len(options) and not labels:
        if said in options and options[place] != said:
            raise Drop("an answer that is one option's place or letter and another one's text")
        return ascii_uppercase[place]
    return said


# cells


def user_text(value: Any) -> str:
    """What the user says: a text, the last user message of a chat, or of the chat under `input`.

    System prompts are dropped on purpose: Eurus-2's names actions that nothing else here knows. Raises Drop: nothing
    is said.
    """
    value = _chat(value)
    if isinstance(value, list | tuple):
        turns = [turn for turn in value if isinstance(turn, Mapping) and turn.get("role") == "user"]
        value = _said(turns[-1]) if turns else None
    if not isinstance(value, str) or not value.strip():
        raise Drop("no prompt")
    return value.strip()


def history_of(value: Any) -> tuple[Turn, ...]:
    """What is said in a chat, or the chat under `input`, before its last user message.

    Raises Drop: a turn that is no text.
    """
    value = _chat(value)
    if not isinstance(value, list | tuple):
        return ()
    turns = [turn for turn in value if isinstance(turn, Mapping)]
    last = max(place for place, turn in enumerate(turns) if turn.get("role") == "user")
    return tuple((str(turn.get("role") or "user"), _said(turn)) for turn in turns[:last])


def _chat(value: Any) -> Any:
    """What stands in a cell, or under its `input`; a chat as JSON, which CSV makes of it, is read."""
    value = parsed(value) if isinstance(value, str) and _CHAT.match(value) else value
    return value.get("input") if isinstance(value, Mapping) else value


def _said(turn: Mapping[str, Any]) -> str:
    """The text of a turn, or of its parts. Raises Drop: it is no text, as a call of a tool or a picture."""
    content = turn.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts: list[Any] = [
        part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"
    ]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise Drop("a turn that is no text")
    return "\n".join(texts)


def parsed(value: Any) -> Any:
    """Strict JSON where a cell holds it as text (else a `Drop`); anything else as it is."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise Drop("a cell that is no JSON") from None


# coding problems


def _tests(fields: Fields, _: Runner) -> Prepared:
    """A problem with APPS's tests as JSON, maybe under `ground_truth`."""
    question = _ASKED_ALREADY.sub("", user_text(fields["prompt"]))
    given = parsed(fields["tests"])
    if isinstance(given, Mapping) and "ground_truth" in given:
        given = parsed(given["ground_truth"])
    entry, pairs = read_tests(given)
    payload = _code_payload(entry, _chosen(entry, pairs), FLOAT_TOLERANCE, apps=True)
    return Prepared(question=question, prompt=f"{question}\n\n{_how(entry)}", payload=payload)


def read_tests(given: Any) -> tuple[str | None, list[Pair]]:
    """The function to call, None for a script, and its tests, from APPS's and PRIME's `{inputs, outputs, fn_name}`.

    Those are texts or lists of lines for a script; for a function lists of arguments and results, or texts with one
    JSON value per line. Raises Drop: there are no tests, or they cannot be read.
    """
    if not isinstance(given, Mapping) or not {"inputs", "outputs"} <= given.keys():
        raise Drop("no tests")
    entry = given.get("fn_name") or None
    inputs, outputs = given["inputs"], given["outputs"]
    if not isinstance(inputs, list | tuple) or not isinstance(outputs, list | tuple):
        raise Drop("inputs and outputs that are no lists")
    if len(inputs) != len(outputs):
        raise Drop("not one output per input")
    pairs = _pairs(entry, zip(inputs, outputs, strict=True))
    if not pairs:
        raise Drop("no tests")
    arguments = [argument for given, _ in pairs for argument in given] if entry is not None else []
    if any(isinstance(given, dict) and given and all(map(_INTEGER.fullmatch, given)) for given in arguments):
        raise Drop("an argument whose keys JSON made text")  # APPS's problems write them as integers
    return entry, pairs


def payload_of_tests(given: Any, tolerance: float | None) -> dict[str, Any]:
    """What judging a program by all tests that are given needs; `tolerance` is by default that of data sets.

    Raises Drop: they cannot be read; a script's output, or a function's results, are longer than the sandbox reads.
    """
    entry, pairs = read_tests(parsed(given))
    sizes = [len(json.dumps(expected)) for _, expected in pairs]
    if (max if entry is None else sum)(sizes) > Limits().output_bytes:
        raise Drop("tests too large: of results over 1 MiB nothing is read")
    return _code_payload(entry, pairs, FLOAT_TOLERANCE if tolerance is None else tolerance, apps=True)


def _code_payload(
    entry: str | None, pairs: Sequence[Pair], tolerance: float | None, *, apps: bool = False
) -> dict[str, Any]:
    """What judging a program needs; `apps` says that expected results may be wrapped in a list of one."""
    expected = [value for _, value in pairs]
    return {
        "kind": "code",
        "entry": entry,
        "inputs": [given for given, _ in pairs],
        "expected": expected,
        "tolerance": tolerance,
        # APPS wraps some results in a list of one and others not; one that is no such list says that none is
        "maybe_wrapped": apps and entry is not None and all(is_list_of_one(value) for value in expected),
    }


def _contest(fields: Fields, run: Runner) -> Prepared:
    """A problem of LiveCodeBench; the private tests are a pickle in zlib in base64, which the sandbox opens."""
    question, starter = user_text(fields["prompt"]), as_text(fields.get("starter"))
    entry = parsed(fields["metadata"]).get("func_name") or None
    packed, tests = as_text(fields["private"]), list(parsed(fields["public"]))
    if packed.startswith("["):  # JSON in some mirrors
        tests += parsed(packed)
    elif packed:
        tests += opened(run, PACKED, [packed, MAX_TESTS, MAX_TEST_BYTES, MAX_TOTAL_BYTES])
    pairs = _pairs(entry, ((test["input"], test["output"]) for test in tests))
    how = _how(entry)
    if starter:
        question, how = f"{question}\n\n```python\n{starter}\n```", COMPLETE
    payload = _code_payload(entry, _chosen(entry, pairs), None)
    return Prepared(question=question, prompt=f"{question}\n\n{how}", payload=payload)


def _asserts(fields: Fields, run: Runner) -> Prepared:
    """A problem of HumanEval+: the sandbox runs its test on its solution and returns what it compares with what."""
    stub, entry = fields["prompt"], as_text(fields["entry"])
    solution = f"{stub}{fields['solution']}"
    compared = opened(run, ASSERTS, [solution, fields["test"], entry])
    if not all(same_value(out, right, error or FLOAT_TOLERANCE) for _, out, right, error in compared):
        raise Drop("a solution that fails its own test")
    pairs = [(arguments, right) for arguments, _, right, _ in compared]
    tolerance = max([FLOAT_TOLERANCE, *(error for *_, error in compared if error)])
    question, answer = (f"```python\n{source.strip()}\n```" for source in (stub, solution))
    payload = _code_payload(entry, _chosen(entry, pairs), tolerance)
    known = Solution(steps="", answer=answer)
    return Prepared(question=question, prompt=f"{question}\n\n{COMPLETE}", payload=payload, solution=known)


def _chosen(entry: str | None, pairs: Sequence[Pair]) -> list[Pair]:
    """At most `MAX_TESTS` tests, evenly over the list, that fit the caps on bytes and tell programs apart.

    Raises Drop: there are none, or a program passes them that always says the same.
    """
    if not pairs:
        raise Drop("no tests")
    sized = [(pair, size) for pair in pairs if (size := len(json.dumps(pair))) <= MAX_TEST_BYTES]
    count = min(len(sized), MAX_TESTS)
    spread = [sized[position * len(sized) // count] for position in range(count)]
    totals = accumulate(size for _, size in spread)
    kept = [pair for (pair, _), total in zip(spread, totals, strict=True) if total <= MAX_TOTAL_BYTES]
    if not kept:
        raise Drop("tests too large")
    expected = [value for _, value in kept]
    if all(value in (None, "", [], {}) if entry is not None else not value.split() for value in expected):
        raise Drop("expected outputs that are all empty")
    same = same_output if entry is None else same_value
    if len(expected) > 1 and all(same(value, expected[0], None) for value in expected):
        raise Drop("one expected output for all tests")
    return kept


def _how(entry: str | None) -> str:
    return STDIN if entry is None else CALLED.format(entry=entry)


def _pairs(entry: str | None, tests: Iterable[Pair]) -> list[Pair]:
    """Inputs and expected values as a sandbox takes them: texts for a script, arguments and a result for a call."""
    if entry is None:
        return [(_lines(given), _lines(expected)) for given, expected in tests]
    if not isinstance(entry, str) or not entry.isidentifier():
        raise Drop("a function of a name that Python does not allow")
    pairs = [
        (_arguments(given), parsed(expected) if isinstance(given, str) else _plain(expected))
        for given, expected in tests
    ]
    try:
        require_plain(pairs)
    except NotPlain as error:
        raise Drop(f"tests with {error}") from None
    return pairs


def _lines(value: Any) -> str:
    """Standard input or output: a text, or a list of its lines."""
    if isinstance(value, list):
        return "\n".join(line if isinstance(line, str) else as_text(line) for line in value)
    if not isinstance(value, str):
        raise Drop("tests that are no text")
    return value


def _plain(value: Any) -> Any:
    """A result as it comes back from the sandbox: keys are texts, tuples lists."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        raise Drop("a result that JSON cannot say") from None


def _arguments(value: Any) -> list[Any]:
    """Positional arguments: a list of them, or a text with one JSON value per line."""
    if isinstance(value, str):
        return [parsed(line) for line in value.split("\n") if line.strip()]
    if not isinstance(value, list):
        raise Drop("tests that are no arguments")
    return value


_CONVERTERS: Mapping[str, Callable[[Fields, Runner], Prepared]] = {
    "short_answer": _short_answer,
    "quantity": lambda row, _: _number(user_text(row["prompt"]), _gold(row["answer"])),
    "typed_answer": _typed_answer,
    "worked_solution": _worked_solution,
    "options": _lettered,
    "distractors": _distractors,
    "tests": _tests,
    "asserts": _asserts,
    "contest": _contest,
    "instructions": _instructions,
    "ifeval": partial(_instructions, checkers="ifeval"),
    "ifbench": partial(_instructions, checkers="ifbench"),
    "own": _own,
}
