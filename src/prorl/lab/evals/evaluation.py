"""Evaluates one model: problems in chunks, each stored once it is done, so that an interruption costs one chunk.

Every chunk has its own seed, so an interrupted evaluation ends with the results of an uninterrupted one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prorl.envs.seeds import derive, purpose
from prorl.envs.types import Problem
from prorl.lab.evals.evaluation_store import Evaluation, Rules, model_file, read_evaluation, write_evaluation
from prorl.rollout.pipeline import Worker
from prorl.rollout.validation import Part, Questions, VerifierError, ask_problems
from prorl.run.checkpoint import tidy
from prorl.stopwatch import Stopwatch

PROBLEMS_AT_A_TIME, RESPONSES_AT_A_TIME = 32, 1024  # of a chunk, whichever is less
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The model that is evaluated: its name in the evaluation, and the run's step if it is a checkpoint."""

    model: str
    step: int | None = None
    weights: str = ""  # hash, where it is known

    def is_of(self, evaluation: Evaluation) -> bool:
        """Whether stored results are of this very model, as far as is known."""
        weights = {self.weights, evaluation.weights} - {""}
        return self.model == evaluation.model and len(weights) < 2


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
) -> Evaluation:
    """Ask a model all questions of the evaluation in `folder`, beginning where an earlier try stopped.

    The caller holds the evaluation (`evaluation_store.held`). Problems of which no response could be judged are left
    out; a chunk of nothing else is not stored, so that a later try asks it again.

    Raises:
        VerifierError: not one response to any problem could be judged.
        StorageError: no room, or a damaged chunk.
    """
    path = model_file(folder, subject.model)
    aside = path.with_suffix(".parts")
    aside.mkdir(exist_ok=True)
    tidy(aside)
    total, done = sum(map(len, questions.values())), 0
    chunks: list[Evaluation] = []
    failures: list[VerifierError] = []
    for number, (part, start, problems) in enumerate(_chunks(questions, rules.samples)):
        stored = aside / f"part_{number:03d}.parquet"
        done += len(problems)
        chunk = read_evaluation(stored) if stored.exists() else None
        if chunk is None or not subject.is_of(chunk):
            began = time.perf_counter()
            try:
                results = ask_problems(
                    worker,
                    problems,
                    part=part,
                    samples=rules.samples,
                    sampling=rules.sampling,
                    seed=derive(rules.seed, "measure", purpose(part), start),
                    pass_threshold=pass_threshold,
                    clock=clock,
                )
            except VerifierError as error:
                failures.append(error)
                continue
            chunk = Evaluation(
                model=subject.model,
                step=subject.step,
                samples=rules.samples,
                seconds=time.perf_counter() - began,
                problems=results,
                weights=subject.weights,
            )
            write_evaluation(stored, chunk)
        chunks.append(chunk)
        judged = sum(len(chunk.problems) for chunk in chunks)
        rate = rules.samples * judged / sum(chunk.seconds for chunk in chunks)
        progress(done, total, f"problems × {rules.samples} responses, {rate:.0f} responses/s")
    if not chunks:
        raise failures[0]
    evaluation = replace(
        chunks[0],
        seconds=sum(chunk.seconds for chunk in chunks),
        problems=tuple(problem for chunk in chunks for problem in chunk.problems),
    )
    write_evaluation(path, evaluation)
    shutil.rmtree(aside)
    return evaluation


def _chunks(questions: Questions, samples: int) -> Iterator[tuple[Part, int, Sequence[Problem]]]:
    """Part, number of the first problem within it, and the problems of every chunk."""
    size = min(PROBLEMS_AT_A_TIME, max(1, RESPONSES_AT_A_TIME // samples))
    for part, problems in questions.items():
        for start in range(0, len(problems), size):
            yield part, start, problems[start : start + size]
