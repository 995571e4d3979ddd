"""Measuring models: base and trained of a run on the same held-out problems, or any model on a recipe's."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prorl import compose
from prorl.config import RunConfig
from prorl.data import check_sandbox
from prorl.director.plan import Plan
from prorl.evals.exams import ExamResult
from prorl.evals.measure import compare, measure
from prorl.planning import make_plan
from prorl.recipe import RecipeError, check
from prorl.run.files import StorageError, write_atomic
from prorl.run.layout import EVALS, TOKENIZER
from prorl.run.store import Checkpoint, RunStore
from prorl.stopwatch import Pulse, Stopwatch, unheard
from prorl.tasks.mixture import Mixture
from prorl.types import Sampling, Split
from prorl.watch.console import Console

BASE = "base"
SPLIT_TITLES: Mapping[Split, str] = {
    "test": "held-out problems",
    "ood": "out of domain: larger sizes and families never trained",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A recipe and all that was built for it."""

    config: RunConfig
    plan: Plan
    tasks: Mixture
    parts: compose.Parts


def build_tasks(config: RunConfig, console: Console) -> Mixture:
    """The recipe's tasks, once it is known that their programs can be run here.

    Raises:
        RecipeError, DataError, SandboxError: with one sentence that says what to do.
    """
    tasks = compose.build_tasks(config)
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


def evaluate_run(folder: Path, console: Console) -> None:
    """Measure a run's newest checkpoint on the problems its base was measured on, and print the table.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    with RunStore.open(folder, report=console.say) as store:
        checkpoint = newest(store)
        work = work_at(store, checkpoint, check(store.config, str(folder)), console)
        with closing(work.parts.backend):
            work.parts.backend.sync(checkpoint.step)
            compare_with_base(store, checkpoint.step, work, console)


def evaluate_model(model: str, config: RunConfig, console: Console) -> None:
    """Measure any model on the held-out problems of a recipe and print its pass rates.

    Raises:
        RecipeError, ModelError: with one sentence that says what to do.
    """
    config = compose.settled(config)
    plan = make_plan(config)
    tasks = build_tasks(config, console)
    parts = compose.build_parts(config, model, with_reference=False)
    with closing(parts.backend):
        parts.backend.sync(0)
        results = measure_policy(Work(config=config, plan=plan, tasks=tasks, parts=parts), console)
    for split, result in results.items():
        console.rates(f"{model}: {SPLIT_TITLES[split]}", result, ks=_ks(config))


def measure_base(store: RunStore, work: Work, console: Console, pulse: Pulse) -> None:
    """Measure the model a run starts from, once: a run that is begun again after a kill has it already."""
    if not _path(store, BASE).exists():
        _keep(store, BASE, measure_policy(work, console, pulse))


def compare_with_base(
    store: RunStore, step: int, work: Work, console: Console, pulse: Pulse = unheard
) -> None:
    """Measure the policy of `step`, keep the results, and print them beside those of the base."""
    name = f"step_{step:06d}"
    trained = measure_policy(work, console, pulse)
    _keep(store, name, trained)
    base = _results(store, BASE)
    for split in (
        split for split in trained if split in base
    ):  # a branch may measure what its parent did not
        rows = compare(base[split], trained[split], ks=_ks(work.config), seed=work.config.seed)
        console.table(f"base → {name.replace('_', ' ')}: {SPLIT_TITLES[split]}", rows)
    console.say(f"run directory: {store.folder} (journal.jsonl, samples/, evals/, tb/, checkpoints/)")


def measure_policy(work: Work, console: Console, pulse: Pulse = unheard) -> dict[Split, ExamResult]:
    """Measure what the engine serves now."""
    rules = work.config.evaluation
    sizes: dict[Split, int] = {"test": rules.per_domain, "ood": rules.ood_per_domain}
    with console.progress("measuring on held-out problems") as progress:
        return measure(
            work.parts.worker(partial(_wait, console)),
            work.tasks,
            sizes=sizes,
            samples=rules.samples,
            sampling=Sampling(temperature=1.0, top_p=1.0, limit=work.config.sampling.response_limit),
            seed=work.config.seed,
            progress=progress,
            clock=Stopwatch(pulse, within="measure"),
        )


def _wait(console: Console, reason: str, seconds: float) -> None:
    console.say(reason)
    time.sleep(seconds)


def _keep(store: RunStore, name: str, results: Mapping[Split, ExamResult]) -> None:
    data = {split: result.to_json() for split, result in results.items()}
    path = _path(store, name)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, json.dumps(data).encode())


def _results(store: RunStore, name: str) -> dict[Split, ExamResult]:
    path = _path(store, name)
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StorageError(
            f"the measurement {path} cannot be read ({error}); restore it from a copy"
        ) from error
    return {split: ExamResult.from_json(counts) for split, counts in data.items()}


def _path(store: RunStore, name: str) -> Path:
    return store.folder / EVALS / f"{name}.json"


def _ks(config: RunConfig) -> list[int]:
    return [1, config.evaluation.samples] if config.evaluation.samples > 1 else [1]
