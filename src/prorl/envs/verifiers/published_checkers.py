"""The checkers of IFEval and IFBench themselves, so that a figure of these evaluations can be compared with others.

They are the code that the two papers published, as the package evalscope ships it (the extra `evaluations`). Training
keeps the checks of `instructions.py`, which are stricter: these here also pay a response that says nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from typing import Any, Literal

from prorl.envs.errors import ProrlError
from prorl.envs.types import Verdict
from prorl.envs.verifiers.instructions import Instruction, UnknownInstructionError

Benchmark = Literal["ifeval", "ifbench"]

PACKAGE = "evalscope"
TRIED = "A response of one sentence."


class MissingCheckersError(ProrlError):
    """The checkers, or the data of NLTK that they read, are not on this machine."""


def verify(
    benchmark: Benchmark, instructions: Sequence[Instruction], response: str, *, prompt: str
) -> Verdict:
    """The share that is followed, by IFEval's strict protocol; a checker that fails counts as not followed."""
    followed, notes = 0, []
    for instruction in instructions:
        try:
            followed += _follows(benchmark, instruction, response, prompt)
        except (MissingCheckersError, UnknownInstructionError) as error:
            return Verdict(score=0.0, status="error", note=str(error))
        except Exception as error:  # code of others on a text of a model
            notes.append(f"{instruction.id} fails on this response: {type(error).__name__}")
    score, answered = followed / len(instructions), bool(response.strip())
    return Verdict(
        score=score, status="ok" if score == 1 else "wrong", note="; ".join(notes), answered=answered
    )


def require_installed(benchmark: Benchmark) -> ModuleSpec:
    """Where the package is.

    Raises:
        MissingCheckersError: it is not installed.
    """
    found = find_spec(PACKAGE)
    if found is None:
        raise MissingCheckersError(
            f"{benchmark} is graded by its own checkers, which are not installed: "
            f"`pip install 'prorl[evaluations]'`, or leave it out with tasks.{benchmark}=null"
        )
    return found


def validate(benchmark: Benchmark, instruction: Instruction, prompt: str) -> None:
    """Try a checker on some text, which also downloads the data of NLTK that it needs.

    Raises:
        UnknownInstructionError: there is no such checker, or it does not take these arguments.
        MissingCheckersError: the package is not installed, or the data cannot be had.
    """
    try:
        _follows(benchmark, instruction, TRIED, prompt)
    except ProrlError:
        raise
    except Exception as error:
        raise UnknownInstructionError(f"{instruction.id}: {type(error).__name__}: {error}") from error


def _follows(benchmark: Benchmark, instruction: Instruction, response: str, prompt: str) -> bool:
    checkers = _checkers(benchmark)
    if instruction.id not in checkers:
        raise UnknownInstructionError(f"{benchmark} has no instruction {instruction.id!r}")
    checker = checkers[instruction.id](instruction.id)
    checker.build_description(
        **{name: value for name, value in instruction.kwargs.items() if value is not None}
    )
    if "prompt" in (checker.get_instruction_args() or ()):
        checker.build_description(prompt=prompt)
    try:
        return bool(response.strip() and checker.check_following(response))
    except (RuntimeError, LookupError) as error:
        if type(error) not in (RuntimeError, LookupError):
            raise
        raise _no_data(error) from error  # its downloader raises the one, NLTK the other


@cache
def _checkers(benchmark: Benchmark) -> Mapping[str, Any]:
    """Instruction id → class of its checker.

    The package's own `__init__` is not executed: it imports the whole harness, hundreds of megabytes.
    """
    sys.modules.setdefault(PACKAGE, module_from_spec(require_installed(benchmark)))
    try:
        registry = import_module(f"{PACKAGE}.benchmarks.{benchmark}.instructions_registry")
    except (RuntimeError, LookupError) as error:
        raise _no_data(error) from error
    checkers: Mapping[str, Any] = registry.INSTRUCTION_DICT
    return checkers


def _no_data(error: Exception) -> MissingCheckersError:
    reason = str(error).strip().splitlines()[0]
    return MissingCheckersError(
        f"the checkers need data of NLTK that cannot be downloaded here ({reason}): where there is a network, "
        "`python -m nltk.downloader punkt_tab averaged_perceptron_tagger_eng`, then copy the folder nltk_data and "
        "name it by the environment variable NLTK_DATA"
    )
