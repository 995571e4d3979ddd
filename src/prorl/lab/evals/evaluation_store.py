"""Stores evaluations: `evals/<name>/<model>.parquet` per model, beside what was asked (`rules.json`).

An evaluation puts one set of questions to several models in the same way, so its files can always be compared; a
model that is to be asked otherwise belongs to another one. `incidents.jsonl` lists failures that were repaired.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from pathlib import Path
from textwrap import shorten
from typing import Any

from pydantic import TypeAdapter

from prorl.config.recipe import differences
from prorl.envs.files import StorageError, encode_json, replacing, write_atomic
from prorl.envs.mixture import Mixture
from prorl.envs.types import Problem
from prorl.lab.evals.problems import Part, ProblemResult
from prorl.rollout.pipeline import grouped
from prorl.run.checkpoint import tidy
from prorl.run.layout import EVALS, LOCK, hold_lock, removed_on_failure, step_of
from prorl.types import Sampling

MEASUREMENT = "measurement"  # what `prorl train` makes before and after a run
BASE, RULES = "base", "rules.json"
HEADER = b"prorl.evaluation"
REASON_CHARS = 200  # of a sentence about a file

PROBLEMS = TypeAdapter(tuple[ProblemResult, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model that is evaluated."""

    model: str  # `base`, `step_000320`, or the name of a model from elsewhere
    step: int | None = None  # of the run's checkpoint; None for a model from elsewhere
    weights: str = ""  # hash of the model's weights, where it is known

    @property
    def title(self) -> str:
        """What people call it: `base`, `step 320`, or the name of a model from elsewhere."""
        return self.model if self.step is None or self.model == BASE else f"step {self.step}"

    def is_same(self, other: Subject) -> bool:
        """Whether both are one model, as far as is known."""
        return self.model == other.model and len({self.weights, other.weights} - {""}) < 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Subject):
    """One model's results."""

    samples: int  # responses asked for per problem
    seconds: float
    problems: tuple[ProblemResult, ...]

    def of(self, *parts: Part, domain: str = "", task: str = "") -> list[ProblemResult]:
        """The problems of these parts, all or those of a domain or task."""
        return [
            one
            for one in self.problems
            if one.part in parts and domain in ("", one.domain) and task in ("", one.task)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The questions of an evaluation, and how responses to them are sampled."""

    questions: Mapping[Part, Sequence[Problem]]  # those of levels are by task and level, equally many of each
    sizes: Mapping[str, int]  # by part, as the recipe says
    samples: int  # per problem
    sampling: Sampling
    system_prompt: str  # of problems that come without one
    format: str  # what counts as an answer
    seed: int

    def rules(self) -> dict[str, Any]:
        """All of it as data; instead of the questions the levels of each task and a hash of every prompt."""
        by_task = grouped(self.questions.get("levels", ()), lambda one: one.task)
        digest = blake2b(digest_size=8)
        for part, problems in self.questions.items():
            for problem in problems:
                said = "".join(f"{role}: {content}\n" for role, content in problem.history)
                text = f"{part}\n{problem.task}\n{problem.level}\n{said}{problem.prompt}\n"
                digest.update(text.encode(errors="replace"))
        return {
            "sizes": self.sizes,
            "levels": {name: sorted({one.level for one in found}) for name, found in by_task.items()},
            "samples": self.samples,
            "sampling": asdict(self.sampling),
            "system_prompt": self.system_prompt,
            "format": self.format,
            "seed": self.seed,
            "problems": digest.hexdigest(),
        }


def questions(
    tasks: Mixture, *, test: int = 0, ood: int = 0, levels: int = 0
) -> Mapping[Part, Sequence[Problem]]:
    """The problems of every part: so many of each domain, out of each, and of each level of some tasks.

    Parts without problems are left out. Raises ValueError where a domain has fewer distinct problems.
    """
    names = tasks.levelled_tasks()
    asked: dict[Part, Sequence[Problem]] = {
        "test": tasks.validation_problems("test", test),
        "ood": tasks.validation_problems("ood", ood),
        "levels": [problem for name in names for problem in tasks.level_problems(name, levels)],
    }
    return {part: problems for part, problems in asked.items() if problems}


def write_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Store a model's results, whole or not at all."""
    import pyarrow
    from pyarrow import parquet

    header = {key: getattr(evaluation, key) for key in ("model", "step", "samples", "seconds", "weights")}
    rows = [asdict(problem) for problem in evaluation.problems]
    table = pyarrow.Table.from_pylist(rows, metadata={HEADER: json.dumps(header)})
    with replacing(path) as temporary:
        parquet.write_table(table, temporary, compression="zstd")


def read_evaluation(path: Path, *, texts: bool = True) -> Evaluation:
    """The results that `write_evaluation` stored; only counts, no answers and responses, without `texts`.

    Raises StorageError: the file is missing, damaged or something else.
    """
    import pyarrow
    from pyarrow import parquet

    counts = [field.name for field in fields(ProblemResult) if field.name not in ("votes", "kept")]
    try:
        with parquet.ParquetFile(path) as file:
            table = file.read(columns=None if texts else counts)
        metadata = table.schema.metadata or {}
        if HEADER not in metadata:
            raise ValueError("it is another kind of file")
        header: dict[str, Any] = json.loads(metadata[HEADER])
        return Evaluation(**header, problems=PROBLEMS.validate_python(table.to_pylist()))
    except (OSError, ValueError, TypeError, pyarrow.ArrowException) as error:
        again = "delete it and measure again" if EVALS in path.parts else "say a run, or files of its evals/"
        reason = shorten(str(error), REASON_CHARS)  # of a foreign table one line for each field of a row
        raise StorageError(f"the evaluation {path} cannot be read ({reason}); {again}") from error


def readable(paths: Iterable[Path], report: Callable[[str], None]) -> Iterator[Evaluation]:
    """The results in those files that can be read; `report` is told of each other one, and what to do about it."""
    for path in paths:
        try:
            yield read_evaluation(path)
        except StorageError as error:
            report(str(error))


@contextmanager
def held(folder: Path, rules: Mapping[str, Any]) -> Iterator[None]:
    """Begin or continue the evaluation in a folder, which no other process may do meanwhile.

    A failure before anything was measured removes the folders made here. What a kill left before that binds nobody.
    Raises StorageError: another process does, or other rules were asked there; the message says which.
    """

    def is_begun() -> bool:
        return any(folder.rglob("*.parquet"))

    with removed_on_failure(folder, is_begun):
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / LOCK, used="measured"):
            tidy(folder)
            changes = differing(folder, rules)
            if changes and is_begun():
                raise StorageError(
                    f"the evaluation {folder} was asked otherwise ({'; '.join(changes)}): "
                    "ask the same again, or give this one another name with --name"
                )
            write_atomic(folder / RULES, encode_json(rules, indent=1))
            yield


def differing(folder: Path, rules: Mapping[str, Any]) -> list[str]:
    """What was asked otherwise in the folder's evaluation; nothing where there is none yet."""
    kept = read_rules(folder)
    return differences(json.loads(encode_json(rules)), kept) if kept else []


def read_rules(folder: Path) -> dict[str, Any]:
    """The rules of the folder's evaluation, empty where there are none; StorageError where they are damaged."""
    path = folder / RULES
    try:
        return dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise StorageError(
            f"{path} is not JSON ({error}); restore it, or delete the evaluation and measure again"
        ) from error


def evaluations(folder: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """The evaluations of a run by name, each with its models' files as `models` orders them."""
    return [
        (place.name, files) for place in sorted((folder / EVALS).glob("[!.]*")) if (files := models(place))
    ]


def models(folder: Path) -> tuple[Path, ...]:
    """The models' files of one evaluation: the base, checkpoints by step, then others."""

    def order(path: Path) -> tuple[bool, bool, int, str]:
        step = step_of(path)
        return path.stem != BASE, step is None, step or 0, path.stem

    return tuple(sorted(folder.glob("[!.]*.parquet"), key=order))


def model_file(folder: Path, model: str) -> Path:
    """The file of a model's results: `base`, `step_000320`, or the name of a model from elsewhere."""
    return folder / f"{slug(model)}.parquet"


def slug(model: str) -> str:
    """A model's name as a file name.

    >>> slug("Qwen/Qwen3-0.6B"), slug("../runs/nano@200"), slug("step_000320")
    ('Qwen_Qwen3-0.6B', 'runs_nano_200', 'step_000320')
    """
    return re.sub(r"[^\w.-]+", "_", model, flags=re.ASCII).strip("._-") or "model"


def external_name(name: str) -> str:
    """The name of a model from elsewhere, which must not be taken for one of the run's own.

    >>> external_name("org/model"), external_name("./base")
    ('org/model', 'model ./base')
    """
    return f"model {name}" if slug(name) == BASE or step_of(Path(slug(name))) is not None else name
