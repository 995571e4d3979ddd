"""A recipe and all that was built for it, and what asks its policy a study's questions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prorl import compose, machine
from prorl.cluster.estimate import require_memory
from prorl.config.recipe import RecipeError
from prorl.config.schema import RunConfig
from prorl.control.plan import Plan
from prorl.data import check_sandbox
from prorl.envs.files import StorageError
from prorl.envs.mixture import Mixture
from prorl.lab.evals.evaluation import Subject, measure
from prorl.lab.evals.evaluation_store import INCIDENTS, Rules, Study, digest
from prorl.lab.watch.console import Console
from prorl.planning import make_plan
from prorl.ports import Backend
from prorl.rollout.validation import Questions, questions
from prorl.run.journal import Journal
from prorl.run.layout import TOKENIZER
from prorl.run.store import Checkpoint, RunStore
from prorl.stopwatch import Pulse, Stopwatch, unheard
from prorl.types import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A recipe and all that was built for it."""

    config: RunConfig
    plan: Plan
    tasks: Mixture
    parts: compose.Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A study's questions and how they are asked."""

    questions: Questions
    rules: Rules


def build_tasks(config: RunConfig, console: Console) -> Mixture:
    """The recipe's tasks, once it is known that their programs can be run here; judges on a cluster see to it there.

    Raises:
        RecipeError, DataError, SandboxError: with one sentence that says what to do.
    """
    machine.require_processors(config)
    tasks = compose.build_tasks(config)
    if config.backend == "ray" and config.cluster.judges:
        return tasks
    warning = check_sandbox(config)
    if warning:
        console.say(warning)
    return tasks


def work_at(store: RunStore, checkpoint: Checkpoint, config: RunConfig, console: Console) -> Work:
    """All that a recipe needs to go on from a checkpoint.

    Raises:
        RecipeError, ModelError: with one sentence that says what to do.
    """
    plan = make_plan(config)
    require_memory(config, plan)
    held = checkpoint.state["reference"] is not None
    if plan.needs_reference and not held:
        raise RecipeError(
            f"{store.folder} was begun without a KL penalty, so it holds no reference to pay one to: "
            "keep kl.coef at 0, or start a new run"
        )
    tasks = build_tasks(config, console)
    parts = compose.build_parts(
        config, checkpoint.path, tokenizer=store.folder / TOKENIZER, with_reference=held
    )
    return Work(config=config, plan=plan, tasks=tasks, parts=parts)


def newest(store: RunStore) -> Checkpoint:
    """The newest whole checkpoint.

    Raises:
        StorageError: there is none.
    """
    checkpoint = store.latest_checkpoint()
    if checkpoint is None:
        raise StorageError(
            f"{store.folder} has no checkpoint yet: begin it again with the `prorl train` it was begun with"
        )
    return checkpoint


def asked_by(config: RunConfig, tasks: Mixture) -> Asked:
    """What the section `evaluation` of a recipe asks.

    Raises:
        RecipeError: a domain has fewer problems than that.
    """
    section = config.evaluation
    try:
        chosen = questions(
            tasks,
            per_domain=section.per_domain,
            ood=section.ood_per_domain,
            per_level=section.ladder_per_level,
        )
    except ValueError as error:
        raise RecipeError(str(error)) from None
    ladders: dict[str, list[int]] = {}
    for problem in chosen.get("ladder", ()):
        ladders.setdefault(problem.task, []).append(problem.level)
    rules = Rules(
        sizes={
            "test": section.per_domain,
            "ood": section.ood_per_domain,
            "ladder": section.ladder_per_level,
        },
        ladders={name: sorted(set(levels)) for name, levels in ladders.items()},
        samples=section.samples,
        sampling=Sampling(
            temperature=section.temperature, top_p=section.top_p, limit=config.sampling.response_limit
        ),
        seed=config.seed,
        problems=digest(chosen),
    )
    return Asked(questions=chosen, rules=rules)


def put(
    asked: Asked,
    subject: Subject,
    folder: Path,
    tasks: Mixture,
    parts: compose.Parts,
    console: Console,
    pulse: Pulse = unheard,
) -> Study:
    """Put the questions of the study in `folder` to the policy that the engine serves now, and store how it went."""
    if asked.rules.sampling.temperature == 0 and asked.rules.samples > 1:
        console.say(
            f"evaluation.temperature=0 is greedy: the {asked.rules.samples} responses to a problem are all equal, so "
            "pass@k is the same for every k; evaluation.samples=1 asks no more than needed"
        )
    with (
        _incidents_kept(folder, subject, parts.backend),
        console.progress(f"measuring {subject.model}") as progress,
    ):
        study = measure(
            parts.worker(partial(_wait, console)),
            folder,
            subject,
            asked.questions,
            asked.rules,
            pass_threshold=tasks.pass_threshold,
            progress=progress,
            clock=Stopwatch(pulse, within="measure"),
        )
    total = sum(map(len, asked.questions.values()))
    if len(study.problems) < total:
        console.say(
            f"{total - len(study.problems)} of {total} problems are left out: no response to them could be judged"
        )
    return study


@contextmanager
def _incidents_kept(folder: Path, subject: Subject, backend: Backend) -> Iterator[None]:
    """Keep beside the results what failed in the backend and was mended before and while inside."""
    try:
        yield
    finally:
        incidents = backend.incidents()
        if incidents:
            with closing(Journal(folder / INCIDENTS)) as journal:
                for text in incidents:
                    journal.append({"model": subject.model, "time": time.time(), "text": text})


def _wait(console: Console, reason: str, seconds: float) -> None:
    console.say(reason)
    time.sleep(seconds)
