"""Instructions in, a score out: reading them at load time, checking each, strictly or loosely, and adding up.

The response is the text after the thinking. An instruction that cannot be checked raises at load (`read`,
`validate`) and makes the verdict an error later; it is never counted as met or as missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from prorl.envs.types import Verdict
from prorl.envs.verifiers.instructions.arguments import UnknownInstructionError
from prorl.envs.verifiers.instructions.content import MAX_CHARS, floor, says_something
from prorl.envs.verifiers.instructions.table import RULES, Rule
from prorl.envs.verifiers.instructions.text import words

Mode = Literal["strict", "loose"]
Grading = Literal["fraction", "binary"]

KNOWN_IDS = frozenset(RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One verifiable instruction, as the data sets give it; arguments that are None count as absent."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """An instruction with its rule and its arguments read."""

    rule: Rule
    arguments: dict[str, Any]

    def met(self, response: str) -> bool:
        """Whether the response meets it, whatever else the response says or does not say."""
        return self.rule.test(response, **self.arguments)


def read(ids: Sequence[str], kwargs: Sequence[Mapping[str, Any] | None]) -> tuple[Instruction, ...]:
    """The instructions of a row of IFEval's columns `instruction_id_list` and `kwargs`, validated.

    Raises:
        UnknownInstructionError: the columns differ in length, are empty, or one of the instructions is invalid.
    """
    if len(ids) != len(kwargs):
        raise UnknownInstructionError(
            f"{len(ids)} instruction ids stand beside {len(kwargs)} sets of arguments"
        )
    found = tuple(Instruction(id=name, kwargs=given or {}) for name, given in zip(ids, kwargs, strict=True))
    _read_all(found)
    return found


def validate(instruction: Instruction) -> None:
    """Accept an instruction that can be checked, and that some responses meet and others do not.

    Raises:
        UnknownInstructionError: unknown id, or an argument that is missing, unknown or impossible.
    """
    _read(instruction)


def check(instruction_id: str, kwargs: Mapping[str, Any], response: str, prompt: str) -> bool:
    """Whether the response says something (`content`) and meets this one instruction.

    Raises:
        UnknownInstructionError: the instruction is invalid.
    """
    return all(_followed([_read(Instruction(id=instruction_id, kwargs=kwargs))], response, prompt))


def score(
    instructions: Sequence[Instruction],
    response: str,
    *,
    prompt: str = "",
    mode: Mode = "strict",
    grading: Grading = "fraction",
) -> float:
    """The share of the instructions that are met, or with binary grading 1 if all are and 0 otherwise.

    In loose mode an instruction is met if any of IFEval's eight variants of the response meets it: without its
    first line, its last line, its asterisks, in any combination. Train on strict: loose lets a long preamble
    break the rules. `prompt` serves to notice a response that only echoes it.

    Raises:
        UnknownInstructionError: one of the instructions is invalid, or there is none.
    """
    known = _read_all(instructions)
    variants = [response] if mode == "strict" else _variants(response)
    rows = (_followed(known, variant, prompt) for variant in variants)
    met = [any(column) for column in zip(*rows, strict=True)]
    return sum(met) / len(met) if grading == "fraction" else float(all(met))


def verify(
    instructions: Sequence[Instruction],
    response: str,
    *,
    prompt: str = "",
    mode: Mode = "strict",
    grading: Grading = "fraction",
) -> Verdict:
    """`score` as a verdict: "ok" when all is met, "error" when an instruction is invalid; never raises."""
    try:
        points = score(instructions, response, prompt=prompt, mode=mode, grading=grading)
    except UnknownInstructionError as problem:
        return Verdict(score=0.0, status="error", note=str(problem))
    answered = bool(response.strip())
    return Verdict(score=points, status="ok" if points == 1 else "wrong", answered=answered)


def _read_all(instructions: Sequence[Instruction]) -> list[_Read]:
    if not instructions:
        raise UnknownInstructionError("there is no instruction to check: drop the row")
    return [_read(instruction) for instruction in instructions]


def _read(instruction: Instruction) -> _Read:
    rule = RULES.get(instruction.id)
    if rule is None:
        raise UnknownInstructionError(
            f"instruction {instruction.id!r} is unknown: drop the row or add a check"
        )
    given = {name: value for name, value in instruction.kwargs.items() if value is not None}
    odd = given.keys() ^ rule.arguments.keys()
    if odd:
        raise UnknownInstructionError(
            f"instruction {instruction.id} takes {sorted(rule.arguments)}, not {sorted(given)}: drop the row"
        )
    arguments = {name: _argument(instruction.id, name, rule, value) for name, value in given.items()}
    objection = rule.objection(**arguments) if rule.objection else None
    if objection:
        raise UnknownInstructionError(f"instruction {instruction.id}: {objection}: drop the row")
    return _Read(rule=rule, arguments=arguments)


def _argument(instruction_id: str, name: str, rule: Rule, value: Any) -> Any:
    try:
        return rule.arguments[name](value)
    except ValueError as problem:
        raise UnknownInstructionError(
            f"instruction {instruction_id}: {name} {problem}: drop the row"
        ) from None


def _followed(known: Sequence[_Read], response: str, prompt: str) -> list[bool]:
    """Per instruction, whether the response meets it; all False for a response that says nothing."""
    if len(response) > MAX_CHARS or not _has_content(known, response, prompt):
        return [False] * len(known)
    return [item.met(response) for item in known]


def _has_content(known: Sequence[_Read], response: str, prompt: str) -> bool:
    if any(item.rule.fixes and item.met(response) for item in known):
        return True
    given = frozenset(
        word for item in known for name in item.rule.given for word in _words(item.arguments[name])
    )
    rooms = [item.rule.room(**item.arguments) for item in known if item.rule.room]
    room = min((limit for limit in rooms if limit is not None), default=None)
    return says_something(response, prompt, given=given, least=floor(room, given))


def _words(argument: str | tuple[str, ...]) -> list[str]:
    return words(argument if isinstance(argument, str) else " ".join(argument))


def _variants(response: str) -> list[str]:
    lines = response.split("\n")
    cuts = (response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])))
    return list(dict.fromkeys(text for cut in cuts for text in (cut, cut.replace("*", ""))))
