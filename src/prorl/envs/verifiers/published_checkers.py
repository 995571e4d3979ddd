"""The checkers of IFEval and IFBench themselves, so that a figure of these evaluations can be compared with others.

They are the code that the two papers published, as the package opencompass ships it. Training keeps the checks of
`instructions.py`, which are stricter: these here also pay a response that says nothing.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from posixpath import basename
from typing import Any, Literal

from prorl.envs.errors import ProrlError
from prorl.envs.types import Status, Verdict
from prorl.envs.verifiers.instructions import Instruction, UnknownInstructionError

Benchmark = Literal["ifeval", "ifbench"]

PACKAGE = "opencompass"
INSTALL = "`pip install -e '.[evaluations]'` in a checkout and `pip install --no-deps opencompass==0.5.4`"
FOLDERS = {"ifeval": "IFEval", "ifbench": "IFBench"}
NLTK_DATA = ("tokenizers/punkt_tab", "corpora/stopwords", "taggers/averaged_perceptron_tagger_eng")
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
            notes.append(f"{instruction['id']} fails on this response: {type(error).__name__}")
    score, note = followed / len(instructions), "; ".join(notes)
    status: Status = "ok" if score == 1 else "wrong"
    return Verdict(score=score, status=status, note=note, answered=bool(response.strip()))


def require_installed(benchmark: Benchmark) -> None:
    """Check that the package is there. Raises MissingCheckersError: it is not installed."""
    if find_spec(PACKAGE) is None:
        raise MissingCheckersError(
            f"{benchmark} is graded by its own checkers, which are not installed: {INSTALL}, "
            f"or leave it out with tasks.{benchmark}=null"
        )


def validate(benchmark: Benchmark, instruction: Instruction, prompt: str) -> None:
    """Try a checker on some text, after fetching the data of NLTK that this machine lacks.

    Raises UnknownInstructionError: there is no such checker, or it does not take these arguments;
    MissingCheckersError: the package is not installed, or the data cannot be had.
    """
    require_installed(benchmark)
    _download_nltk_data()
    try:
        _follows(benchmark, instruction, TRIED, prompt)
    except ProrlError:
        raise
    except Exception as error:
        raise UnknownInstructionError(f"{instruction['id']}: {type(error).__name__}: {error}") from error


def _follows(benchmark: Benchmark, instruction: Instruction, response: str, prompt: str) -> bool:
    checkers, name = _checkers(benchmark), instruction["id"]
    if name not in checkers:
        raise UnknownInstructionError(f"{benchmark} has no instruction {name!r}")
    checker = checkers[name](name)
    given = instruction.get("kwargs", {})
    checker.build_description(**{key: value for key, value in given.items() if value is not None})
    if "prompt" in (checker.get_instruction_args() or ()):
        checker.build_description(prompt=prompt)
    try:
        return bool(response.strip() and checker.check_following(response))
    except LookupError as error:
        if type(error) is not LookupError:  # a KeyError or IndexError of the checker
            raise
        raise MissingCheckersError(
            "the checkers need data of NLTK that is not on this machine and cannot be downloaded: where there is a "
            f"network, `python -m nltk.downloader {' '.join(map(basename, NLTK_DATA))}`, then copy nltk_data and "
            "name it by the environment variable NLTK_DATA"
        ) from error


@cache
def _download_nltk_data() -> None:
    """Without a network nothing is fetched; the checker that needs it then says what is missing."""
    nltk = import_module("nltk")
    for place in NLTK_DATA:
        try:
            nltk.data.find(place)
        except LookupError:
            nltk.download(basename(place), quiet=True)


@cache
def _checkers(benchmark: Benchmark) -> Mapping[str, Any]:
    """Instruction id → class of its checker.

    The package's own `__init__` would import its whole harness and what that needs, so it is not executed.
    """
    require_installed(benchmark)
    folder = f"{PACKAGE}.datasets.{FOLDERS[benchmark]}"
    for name in (PACKAGE, f"{PACKAGE}.datasets", folder):
        spec = find_spec(name)
        if spec is not None:
            sys.modules.setdefault(name, module_from_spec(spec))
    if benchmark == "ifeval":
        import_module("langdetect").DetectorFactory.seed = 0  # else one text has several languages
    checkers: Mapping[str, Any] = import_module(f"{folder}.instructions_registry").INSTRUCTION_DICT
    return checkers
