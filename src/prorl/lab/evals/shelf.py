"""Where studies lie: `evals/<study>/<model>.parquet`, beside what was asked (`rules.json`).

What failed and was mended while models were asked is in `incidents.jsonl`.

A study is one set of questions put to several models in the same way, so its files can always be compared: a model
that is to be asked otherwise belongs to another study.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from prorl.envs.files import StorageError, encode_json, write_atomic
from prorl.envs.types import Problem
from prorl.lab.evals.study import Part
from prorl.run.checkpoint import tidy
from prorl.run.layout import EVALS, LOCK, hold_lock
from prorl.types import Sampling

MEASUREMENT, STUDY = "measurement", "study"
"""What `prorl train` makes before and after a run, and what `prorl eval` makes unless told another name."""

BASE, RULES, INCIDENTS = "base", "rules.json", "incidents.jsonl"
_STEP = re.compile(r"step_(\d+)")
_NAME = re.compile(r"\w[\w.-]*", re.ASCII)

Questions = Mapping[Part, Sequence[Problem]]
"""The problems of a study by part. Those of ladders are by task and level, equally many of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a study asks: how many problems of each part, which ones, and how responses are sampled."""

    sizes: Mapping[Part, int]
    ladders: Mapping[str, Sequence[int]]  # task → levels, the trained ones and those beyond
    samples: int  # per problem
    sampling: Sampling
    seed: int
    problems: str  # hash of every prompt


def digest(questions: Questions) -> str:
    """Identity of the problems that a study asks: it changes with the tasks' code, their weights and levels."""
    digest = blake2b(digest_size=8)
    for part, problems in questions.items():
        for problem in problems:
            digest.update(
                f"{part}\n{problem.task}\n{problem.level}\n{problem.prompt}\n".encode(errors="replace")
            )
    return digest.hexdigest()


@contextmanager
def held(folder: Path, rules: Rules) -> Iterator[None]:
    """Begin or continue the study in a folder, which nobody else may do meanwhile.

    A failure before anything was measured leaves no new folder behind, and what a kill leaves then binds nobody.

    Raises:
        StorageError: somebody does, or what is asked there is not what these rules ask; the message says in what, and
            how to give the new study a name.
    """
    made = [place for place in (folder, *folder.absolute().parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with hold_lock(folder / LOCK, used="measured"):
            _begin(folder, rules)
            yield
    except BaseException:
        if made and not any(folder.rglob("*.parquet")):
            shutil.rmtree(folder, ignore_errors=True)
            for place in made[1:]:
                with suppress(OSError):  # somebody else put something there meanwhile
                    place.rmdir()
        raise


def differing(folder: Path, rules: Rules) -> Iterator[str]:
    """In what the study in a folder was asked otherwise; nothing where there is none yet."""
    there = read_rules(folder)
    if there:
        yield from _differences(there, json.loads(encode_json(asdict(rules))))


def read_rules(folder: Path) -> dict[str, Any]:
    """What the study in a folder asks, as plain data; empty where it says nothing.

    Raises:
        StorageError: the file is damaged.
    """
    path = folder / RULES
    try:
        rules: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise StorageError(
            f"{path} is not JSON ({error}); restore it, or delete the study and measure again"
        ) from error
    return rules


def studies(folder: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """The studies of a run by name, each with its models' files: the base, checkpoints by step, then others."""
    return studies_in(folder / EVALS)


def studies_in(shelf: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """The studies in a folder of studies, as `studies`."""
    found = ((place.name, models(place)) for place in sorted(shelf.glob("[!.]*")) if place.is_dir())
    return [(name, files) for name, files in found if files]


def models(folder: Path) -> tuple[Path, ...]:
    """The models' files of one study, in the order of `studies`."""
    return tuple(sorted(folder.glob("[!.]*.parquet"), key=lambda path: _order(path.stem)))


def model_file(folder: Path, model: str) -> Path:
    """Where the results of a model lie: `base`, `step_000320`, or the name of a model from elsewhere."""
    return folder / f"{slug(model)}.parquet"


def step_of(path: Path) -> int | None:
    """The step of the checkpoint that a model's file is about; None for the base and models from elsewhere."""
    found = _STEP.fullmatch(path.stem)
    return int(found[1]) if found else None


def step_name(step: int) -> str:
    """What a run's checkpoint is called in its studies."""
    return f"step_{step:06d}"


def slug(model: str) -> str:
    """A model's name as a file name.

    >>> slug("Qwen/Qwen3-0.6B"), slug("../runs/nano@200"), slug("step_000320")
    ('Qwen_Qwen3-0.6B', 'runs_nano_200', 'step_000320')
    """
    return re.sub(r"[^\w.-]+", "_", model, flags=re.ASCII).strip("._-") or "model"


def outsider(name: str) -> str:
    """What a model from elsewhere is called in a study, where it must not be taken for one of the run's own.

    >>> outsider("org/model"), outsider("./base")
    ('org/model', 'model ./base')
    """
    return f"model {name}" if slug(name) == BASE or _STEP.fullmatch(slug(name)) else name


def check_name(name: str) -> None:
    """Check that a study may be called so.

    Raises:
        StorageError: it is no plain file name.
    """
    if not _NAME.fullmatch(name):
        raise StorageError(f"a study cannot be called {name!r}: use letters, digits, '_', '-' and '.'")


def _begin(folder: Path, rules: Rules) -> None:
    tidy(folder)
    differences = list(differing(folder, rules))
    if differences and any(folder.rglob("*.parquet")):
        raise StorageError(
            f"the study {folder} was asked otherwise ({'; '.join(differences)}): "
            "ask the same again, or give this one another name with --name"
        )
    if differences or not (folder / RULES).exists():
        write_atomic(folder / RULES, encode_json(asdict(rules), indent=1))


def _order(model: str) -> tuple[int, int, str]:
    step = _STEP.fullmatch(model)
    return (0 if model == BASE else 1 if step else 2), int(step[1]) if step else 0, model


def _differences(there: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys((*there, *asked)):
        old, new = there.get(key), asked.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new)
        elif old != new:
            yield f"{key} was {old}, not {new}"
