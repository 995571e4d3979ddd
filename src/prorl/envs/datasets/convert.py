"""From the rows of a source to problems: the question, the prompt of its domain, and what judging needs.

Invariant: a converter is a function of one row. It returns a `Prepared` or raises `Drop`; it never guesses an
answer. Templates ask for the form that extraction reads: a box, or for instructions nothing at all, as in ProRL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any

from prorl.envs.base import canonical
from prorl.envs.datasets.code_rows import from_asserts, from_contest, from_tests
from prorl.envs.datasets.records import Drop, Layout, Prepared
from prorl.envs.datasets.values import as_text, parsed, user_text
from prorl.envs.extract import last_box
from prorl.envs.types import Witness
from prorl.envs.verifiers.choice import choice_of, shuffled
from prorl.envs.verifiers.programs import Runner

BOXED = "Let's think step by step and output the final answer within \\boxed{}."
LETTER = "Let's think step by step and output the letter of the right option within \\boxed{}."

MAX_SHORT_ANSWER = 60  # characters; what is longer is a derivation
NUMBER_TYPES = frozenset({"float", "integer", "number"})
EXACT_TYPES = frozenset({"fraction", "percentage"})
YES_NO = MappingProxyType(
    {"true": ("True", "False"), "false": ("True", "False"), "yes": ("Yes", "No"), "no": ("Yes", "No")}
)

_OPTION = re.compile(r"(?m)(?:^|\s)\(?([A-J])[).:]\s+(.+?)(?=\s+\(?[A-J][).:]\s|\s*$)")
_LISTED = re.compile(r"\bA[).:]\s")
_STATED = re.compile(r"(?i)\banswer\s*(?:is|:)\s*(.+?)\.?\s*$", re.MULTILINE)
_QUANTITY = re.compile(r"[-+−]?\s*[\d.]")

Fields = Mapping[str, Any]
Converter = Callable[[Fields, Runner], Prepared]


def convert(layout: Layout, fields: Fields, run: Runner) -> Prepared:
    """One row of a source of this layout; `run` opens what must not be opened in this process.

    Raises:
        Drop: the row cannot be used.
    """
    try:
        return _CONVERTERS[layout](fields, run)
    except KeyError as missing:
        raise Drop(f"no {missing.args[0]} column") from None
    except (TypeError, ValueError, AttributeError, IndexError):
        raise Drop("a row of another shape") from None


def _short_answer(fields: Fields, _: Runner) -> Prepared:
    question = user_text(fields["prompt"])
    gold = _gold(fields["answer"])
    tolerance = _tolerance(fields.get("tolerance"))
    payload = {"kind": "math", "gold": gold, "tolerance": tolerance}
    return _asked(question, BOXED, payload, gold)


def _quantity(fields: Fields, _: Runner) -> Prepared:
    return _number(user_text(fields["prompt"]), _gold(fields["answer"]))


def _typed_answer(fields: Fields, _: Runner) -> Prepared:
    question, gold = user_text(fields["prompt"]), _gold(fields["answer"])
    kind = as_text(fields["type"]).lower()
    if kind in NUMBER_TYPES:
        return _number(question, gold)
    if kind in EXACT_TYPES:
        return _asked(question, BOXED, {"kind": "math", "gold": gold, "tolerance": None}, gold)
    if kind == "multiple choice":
        return _choice(question, _options_in(question), gold)
    if kind == "boolean":
        pair = YES_NO.get(gold.lower())
        if pair is None:
            raise Drop("a yes-or-no answer that is neither")
        return _choice(question, pair, gold)
    raise Drop(f"answer type {kind}")


def _worked_solution(fields: Fields, _: Runner) -> Prepared:
    question, solution = user_text(fields["prompt"]), as_text(fields["solution"])
    stated = _STATED.findall(solution)
    gold = (last_box(solution) or (stated[-1] if stated else "")).strip().strip("$").strip()
    if not gold or len(gold) > MAX_SHORT_ANSWER or "\n" in gold:
        raise Drop("no short answer in the solution")
    if _QUANTITY.match(gold):
        return _number(question, gold)
    return _asked(question, BOXED, {"kind": "math", "gold": gold, "tolerance": None}, gold)


def _lettered(fields: Fields, _: Runner) -> Prepared:
    options = _option_texts(fields["options"])
    question = _without_template(user_text(fields["prompt"]), fields.get("template"))
    return _choice(question, options, as_text(fields["answer"]))


def _distractors(fields: Fields, _: Runner) -> Prepared:
    question = user_text(fields["prompt"])
    texts = [as_text(fields[name]) for name in ("answer", "wrong_1", "wrong_2", "wrong_3")]
    order = shuffled(texts, canonical(question))
    options = [texts[position] for position in order]
    return _choice(question, options, ascii_uppercase[list(order).index(0)])


def _instructions(fields: Fields, _: Runner, checkers: str | None = None) -> Prepared:
    prompt, ids, arguments = user_text(fields["prompt"]), fields["ids"], parsed(fields["arguments"])
    if not ids or not isinstance(arguments, Sequence) or len(ids) != len(arguments):
        raise Drop("not one set of arguments per instruction")
    instructions = [
        {"id": name, "kwargs": {key: value for key, value in (given or {}).items() if value is not None}}
        for name, given in zip(ids, arguments, strict=True)
    ]
    payload = {"kind": "instructions", "instructions": instructions, "checkers": checkers}
    return Prepared(question=prompt, prompt=prompt, payload=payload)


_CONVERTERS: Mapping[Layout, Converter] = MappingProxyType(
    {
        "short_answer": _short_answer,
        "quantity": _quantity,
        "typed_answer": _typed_answer,
        "worked_solution": _worked_solution,
        "options": _lettered,
        "distractors": _distractors,
        "tests": from_tests,
        "asserts": from_asserts,
        "contest": from_contest,
        "instructions": _instructions,
        "ifeval": partial(_instructions, checkers="ifeval"),
        "ifbench": partial(_instructions, checkers="ifbench"),
    }
)


def _asked(question: str, how: str, payload: Mapping[str, Any], answer: str) -> Prepared:
    prompt = question if "\\boxed" in question else f"{question}\n{how}"
    return Prepared(
        question=question, prompt=prompt, payload=payload, witness=Witness(steps="", answer=answer)
    )


def _number(question: str, gold: str) -> Prepared:
    return _asked(question, BOXED, {"kind": "quantity", "gold": gold}, gold)


def _choice(question: str, options: Sequence[str], right: str) -> Prepared:
    """`right` is the letter of the right option, or its text."""
    letter = choice_of(right, options)
    if letter is None:
        raise Drop("the right option is not among the options")
    if len({canonical(option) for option in options}) < len(options):
        raise Drop("two options are the same")
    listed = all(option in question for option in options) and _LISTED.search(question)
    lines = (
        [] if listed else [f"{name}. {text}" for name, text in zip(ascii_uppercase, options, strict=False)]
    )
    payload = {"kind": "choice", "gold": letter, "options": list(options)}
    return _asked("\n".join([question, *lines]), LETTER, payload, letter)


def _gold(value: Any) -> str:
    """An answer as text: floats that are whole lose their point, lists become one line, dollars go.

    Raises:
        Drop: there is none.
    """
    parts = value if isinstance(value, list | tuple) else [value]
    texts = [as_text(part).strip("$ ") for part in parts]
    if not texts or not all(texts):
        raise Drop("no answer")
    return ", ".join(texts)


def _tolerance(value: Any) -> float | None:
    """OlympiadBench's `error`: an absolute tolerance, as text; anything else than one number means none."""
    try:
        tolerance = float(value) if value else None
    except (TypeError, ValueError):
        return None
    return tolerance if tolerance is not None and 0 < tolerance < 1 else None


def _options_in(question: str) -> tuple[str, ...]:
    """The lettered options that stand in a question.

    Raises:
        Drop: there are none, or their letters do not run A, B, C, …
    """
    found = _OPTION.findall(question)
    if len(found) < 2 or "".join(letter for letter, _ in found) != ascii_uppercase[: len(found)]:
        raise Drop("no options in the question")
    return tuple(text.strip() for _, text in found)


def _option_texts(value: Any) -> tuple[str, ...]:
    """Options as `[{"A": text}, …]`, `{"A": text, …}` or `[text, …]`.

    Parquet gives every option all letters, and None for those that it does not have.
    """
    value = parsed(value)
    if isinstance(value, Mapping):
        value = [{letter: text} for letter, text in sorted(value.items()) if text is not None]
    texts: list[str] = []
    for option in value or ():
        given = (
            [text for text in option.values() if text is not None]
            if isinstance(option, Mapping)
            else [option]
        )
        texts.append(as_text(given[0]) if len(given) == 1 else "")
    if len(texts) < 2 or not all(texts):
        raise Drop("no options")
    return tuple(texts)


def _without_template(prompt: str, template: Any) -> str:
    """A prompt without the instructions that its template wrapped around the problem."""
    wrapped = template.get("template_prompt") if isinstance(template, Mapping) else None
    if not wrapped or "{problem}" not in wrapped:
        return prompt
    before, _, after = wrapped.partition("{problem}")
    return prompt.removeprefix(before).removesuffix(after).strip()
