"""`prorl creativity`: which evaluations are compared, and with which corpus."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path

from prorl.build import warmup_mixture
from prorl.config.recipe import RecipeError, check
from prorl.config.schema import RunConfig
from prorl.envs.errors import ProrlError
from prorl.envs.extract import respond
from prorl.lab.evals.creativity import Corpus, Lengths, compare_creativity, corpus_of_files, write_creativity
from prorl.lab.evals.evaluation_store import MEASUREMENT, evaluations, read_evaluation
from prorl.lab.results import creativity_tables
from prorl.lab.tables import Table
from prorl.lab.watch.console import Console
from prorl.run.layout import JOURNAL, run_folder
from prorl.run.store import RunStore

INDEX = "creativity.json"
PREFERRED = ("evaluation", MEASUREMENT)  # the evaluations of a run, the more thorough one first


def measure_creativity(
    given: Sequence[Path], corpus: Sequence[Path] | None, name: str | None, lengths: Lengths, console: Console
) -> list[Table]:
    """Compare the kept responses of a run's evaluation, or of evaluation files, with a corpus, and store the result.

    Raises:
        ProrlError: with one sentence that says what to do.
    """
    paths = _evaluation_files(given, name)
    read = sorted(  # the base first, then checkpoints by step, then models from elsewhere
        map(read_evaluation, paths), key=lambda one: (one.model != "base", one.step is None, one.step or 0)
    )
    reference = corpus_of_files(corpus) if corpus else _warmup_corpus(paths[0])
    with console.counting("corpus:") as advance:
        found = compare_creativity(read, reference, lengths=lengths, advance=advance)
    target = paths[0].parent / INDEX
    write_creativity(target, found)
    console.say(f"stored in {target}")
    return creativity_tables(found)


def _evaluation_files(given: Sequence[Path], name: str | None) -> Sequence[Path]:
    run = run_folder(given[0])
    if not run.is_dir():
        missing = next((path for path in given if not path.is_file()), None)
        if missing is not None:
            raise ProrlError(f"there is no run and no evaluation file {missing}; check the name")
        return given
    if len(given) > 1:
        raise ProrlError("give one run, or files of evaluations")
    stored = dict(evaluations(run))
    chosen = name or next((known for known in (*PREFERRED, *stored) if known in stored), "")
    if chosen not in stored:
        has = f"it has {', '.join(stored)}" if stored else "make one first, with `prorl eval`"
        raise ProrlError(f"{run} has no evaluation{f' {name}' if name else ''}: {has}")
    return stored[chosen]


def _warmup_corpus(evaluation: Path) -> Corpus:
    """What the base of the run around an evaluation was warmed up on."""
    run = next((folder for folder in evaluation.absolute().parents if (folder / JOURNAL).is_file()), None)
    if run is None:
        raise ProrlError(
            f"{evaluation} lies in no run, so there is no default corpus: name one with --corpus"
        )
    texts = warmup_texts(check(RunStore.open(run).config, str(run)))
    return Corpus(name="the warm-up of its base", documents=lambda: texts)


def warmup_texts(config: RunConfig) -> list[str]:
    """Everything that the recipe's tiny base has read: prompts and shown responses, each a document of its own.

    As the warm-up saw it, but for examples that did not fit the model's context, which it left out.

    Raises:
        RecipeError: the run began with a model whose training text is not known here.
    """
    warmup = config.model.warmup
    if warmup is None:
        raise RecipeError(
            f"{config.name} began with the model {config.model.path}, and what that was trained on is not known "
            "here: name a corpus with --corpus"
        )
    problems = warmup_mixture(config, warmup)
    drawn = (problems.problem(draw, "train") for draw in count())
    shown = ((problem.prompt, problem.solution) for problem in drawn if problem.solution is not None)
    return [
        text
        for prompt, solution in islice(shown, warmup.steps * warmup.batch_size)
        for text in (prompt, respond(solution.steps, solution.answer))
    ]
