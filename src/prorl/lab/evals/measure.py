"""One model's study: its questions in chunks, each stored once it is done, so that an interruption costs one chunk.

Every chunk has a seed of its own, so a study that was interrupted ends with the results of one that was not.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prorl.envs.seeds import derive
from prorl.envs.types import Problem
from prorl.lab.evals.exams import VerifierError, sit_exam
from prorl.lab.evals.shelf import Questions, Rules, model_file
from prorl.lab.evals.study import Part, Study, read_study, write_study
from prorl.rollout.pipeline import Worker
from prorl.run.checkpoint import tidy
from prorl.stopwatch import Stopwatch

PROBLEMS_AT_A_TIME, RESPONSES_AT_A_TIME = 32, 1024  # of a chunk, whichever is less
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Who is asked: a model's name in its study, and the run's step if it is a checkpoint."""

    model: str
    step: int | None = None
    weights: str = ""  # hash, where it is known

    def is_of(self, study: Study) -> bool:
        """Whether a study, or a part of one, measured this very model, as far as is known."""
        weights = {self.weights, study.weights} - {""}
        return self.model == study.model and len(weights) < 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    part: Part
    start: int
    problems: Sequence[Problem]


def measure(
    worker: Worker,
    folder: Path,
    subject: Subject,
    questions: Questions,
    rules: Rules,
    *,
    pass_threshold: Callable[[str], float],
    progress: Progress,
    clock: Stopwatch | None = None,
) -> Study:
    """Ask a model all questions of the study in `folder`, beginning where an earlier try stopped.

    Only for whoever holds the study (`shelf.held`). Problems of which no response could be judged are left out; a
    chunk of nothing else is not stored, so that a later try asks it again.

    Raises:
        VerifierError: not one response to any problem could be judged.
        StorageError: no room, or a damaged part.
    """
    path = model_file(folder, subject.model)
    aside = path.with_suffix(".parts")
    aside.mkdir(exist_ok=True)
    tidy(aside)
    total, done = sum(map(len, questions.values())), 0
    parts: list[Study] = []
    failures: list[VerifierError] = []
    for number, chunk in enumerate(_chunks(questions, rules.samples)):
        stored = aside / f"part_{number:03d}.parquet"
        part = read_study(stored) if stored.exists() else None
        done += len(chunk.problems)
        if part is None or not subject.is_of(part):
            try:
                part = _asked(worker, subject, chunk, rules, pass_threshold, clock)
            except VerifierError as error:
                failures.append(error)
                continue
            write_study(stored, part)
        parts.append(part)
        judged = sum(len(part.problems) for part in parts)
        rate = rules.samples * judged / sum(part.seconds for part in parts)
        progress(done, total, f"problems × {rules.samples} responses, {rate:.0f} responses/s")
    if not parts:
        raise failures[0]
    study = replace(
        parts[0],
        seconds=sum(part.seconds for part in parts),
        problems=tuple(problem for part in parts for problem in part.problems),
    )
    write_study(path, study)
    shutil.rmtree(aside)
    return study


def _chunks(questions: Questions, samples: int) -> Iterator[_Chunk]:
    size = min(PROBLEMS_AT_A_TIME, max(1, RESPONSES_AT_A_TIME // samples))
    for part, problems in questions.items():
        for start in range(0, len(problems), size):
            yield _Chunk(part=part, start=start, problems=problems[start : start + size])


def _asked(
    worker: Worker,
    subject: Subject,
    chunk: _Chunk,
    rules: Rules,
    pass_threshold: Callable[[str], float],
    clock: Stopwatch | None,
) -> Study:
    begin = time.perf_counter()
    results = sit_exam(
        worker,
        chunk.problems,
        part=chunk.part,
        samples=rules.samples,
        sampling=rules.sampling,
        seed=derive(rules.seed, "measure", chunk.part, chunk.start),
        pass_threshold=pass_threshold,
        clock=clock,
    )
    return Study(
        model=subject.model,
        step=subject.step,
        samples=rules.samples,
        seconds=time.perf_counter() - begin,
        problems=results,
        weights=subject.weights,
    )
