"""Starting, resuming and measuring runs: the order of things around the loop, and how a run ends."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prorl import compose
from prorl.config import RunConfig
from prorl.data import check_sandbox
from prorl.director.plan import Plan
from prorl.director.state import RunState
from prorl.evals.exams import ExamResult
from prorl.evals.measure import compare, measure
from prorl.loop import Run, train
from prorl.planning import make_plan
from prorl.recipe import RecipeError, changed, check, config_hash, differences, to_json
from prorl.run import checkpoints
from prorl.run.files import StorageError, explain_no_room, write_atomic
from prorl.run.inbox import INBOX
from prorl.run.recorder import Recorder, Watcher
from prorl.run.store import CHECKPOINTS, Checkpoint, RunStore
from prorl.steering import next_order
from prorl.tasks.mixture import Mixture
from prorl.types import Sampling, Split
from prorl.watch.console import Console
from prorl.watch.interrupt import Interrupt
from prorl.watch.scalars import Scalars

TOKENIZER, EVALS, BASE = "tokenizer", "evals", "base"
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


def start_run(config: RunConfig, folder: Path, console: Console) -> RunState:
    """Train a recipe from its beginning in a new run directory, measuring the model before and after.

    A failure before the first checkpoint leaves no run directory behind.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    config = with_threads(config)
    plan = make_plan(config)
    tasks = _tasks(config, console)
    RunStore.require_new(folder)
    compose.set_threads(config)
    with console.progress("warming up the base") as progress:
        base = compose.base_model(config, progress)
    parts = compose.build_parts(config, base, with_reference=plan.needs_reference)
    work = Work(config=config, plan=plan, tasks=tasks, parts=parts)
    with closing(parts.backend):
        parts.backend.sync(0)
        results = _measure(work, console)
        with _created(folder, config, console) as store:
            with explain_no_room(folder):
                parts.tokenizer.save_pretrained(folder / TOKENIZER)
            _keep_results(store, BASE, results)
            with _watched(store, plan, console) as watchers:
                recorder = checkpoints.start(
                    store,
                    parts.backend.learner,
                    config_hash=config_hash(config),
                    with_reference=plan.needs_reference,
                    watchers=watchers,
                )
                state = _train(work, store, recorder, console)
            return _conclude(state, work, store, console)


def resume_run(folder: Path, console: Console, *, overrides: Sequence[str] = ()) -> RunState:
    """Take a run up again from its newest good checkpoint, under the recipe it was started with.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    with RunStore.open(folder, report=console.say) as store:
        config = check(store.config, str(folder))
        _refuse_changes(folder, config, overrides)
        checkpoint = _newest(store)
        work = _work_at(store, checkpoint, config, console)
        with closing(work.parts.backend):
            return _go_on(work, store, checkpoint, console)


def branch_run(folder: Path, target: Path, overrides: Sequence[str], console: Console) -> RunState:
    """Go on from a run's newest checkpoint in a new run directory, under a changed recipe.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do; then there is no new directory.
    """
    RunStore.require_new(target)
    with ExitStack() as stack:
        with RunStore.open(folder, report=console.say) as parent:
            config = changed(check(parent.config, str(folder)), {"name": target.name}, overrides)
            checkpoint = _newest(parent)
            work = _work_at(parent, checkpoint, config, console)
            stack.enter_context(closing(work.parts.backend))
            best = checkpoint.state["best_step"]
            parent.copy_to(target, checkpoint, to_json(config), keep=() if best is None else (best,))
        store = stack.enter_context(RunStore.open(target, report=console.say))
        origin = f"{folder.name}@{checkpoint.step}"
        return _go_on(work, store, _newest(store), console, branched_from=origin)


def evaluate_run(folder: Path, console: Console) -> None:
    """Measure a run's newest checkpoint on the problems its base was measured on, and print the table.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    with RunStore.open(folder, report=console.say) as store:
        checkpoint = _newest(store)
        work = _work_at(store, checkpoint, check(store.config, str(folder)), console)
        with closing(work.parts.backend):
            work.parts.backend.sync(checkpoint.step)
            _compare_with_base(store, checkpoint.step, work, console)


def evaluate_model(model: str, config: RunConfig, console: Console) -> None:
    """Measure any model on the held-out problems of a recipe and print its pass rates.

    Raises:
        RecipeError, ModelError: with one sentence that says what to do.
    """
    config = with_threads(config)
    plan = make_plan(config)
    tasks = _tasks(config, console)
    parts = compose.build_parts(config, model, with_reference=False)
    with closing(parts.backend):
        parts.backend.sync(0)
        results = _measure(Work(config=config, plan=plan, tasks=tasks, parts=parts), console)
    for split, result in results.items():
        console.rates(f"{model}: {SPLIT_TITLES[split]}", result, ks=_ks(config))


def with_threads(config: RunConfig) -> RunConfig:
    """The recipe with its thread count said, as the bits of a result depend on it."""
    return config.model_copy(update={"threads": config.threads or os.cpu_count() or 1})


def _newest(store: RunStore) -> Checkpoint:
    checkpoint = store.latest_checkpoint()
    if checkpoint is None:
        raise StorageError(
            f"{store.folder} has no checkpoint yet: delete it and start again with `prorl train`"
        )
    return checkpoint


def _tasks(config: RunConfig, console: Console) -> Mixture:
    """The recipe's tasks, once it is known that their programs can be run here."""
    tasks = compose.build_tasks(config)
    warning = check_sandbox(config)
    if warning:
        console.say(warning)
    return tasks


def _work_at(store: RunStore, checkpoint: Checkpoint, config: RunConfig, console: Console) -> Work:
    """All that a recipe needs to go on from a checkpoint."""
    plan = make_plan(config)
    held = checkpoint.state["reference"] is not None
    if plan.needs_reference and not held:
        raise RecipeError(
            f"{store.folder} was begun without a KL penalty, so it holds no reference to pay one to: "
            "keep kl.coef at 0, or start a new run"
        )
    tasks = _tasks(config, console)
    parts = compose.build_parts(
        config, checkpoint.path, tokenizer=store.folder / TOKENIZER, with_reference=held
    )
    return Work(config=config, plan=plan, tasks=tasks, parts=parts)


def _go_on(
    work: Work, store: RunStore, checkpoint: Checkpoint, console: Console, *, branched_from: str | None = None
) -> RunState:
    with _watched(store, work.plan, console) as watchers:
        recorder = checkpoints.resume(
            store,
            work.parts.backend.learner,
            checkpoint,
            config_hash=config_hash(work.config),
            branched_from=branched_from,
            watchers=watchers,
        )
        state = _train(work, store, recorder, console)
    return _conclude(state, work, store, console)


def _train(work: Work, store: RunStore, recorder: Recorder, console: Console) -> RunState:
    interrupt = Interrupt(console)
    run = Run(
        plan=work.plan,
        backend=work.parts.backend,
        renderer=work.parts.renderer,
        tasks=work.tasks,
        store=store,
        recorder=recorder,
        wait=interrupt.wait,
        next_order=next_order(work.config, store.folder / INBOX, context=work.parts.context),
    )
    with interrupt.listening():
        return train(run, interrupted=interrupt)


@contextmanager
def _created(folder: Path, config: RunConfig, console: Console) -> Iterator[RunStore]:
    """A new run directory, locked; one that was made here goes again if there is a failure before a checkpoint."""
    existed = folder.exists()
    try:
        with RunStore.create(folder, to_json(config), report=console.say) as store:
            console.say(f"run directory: {folder}")
            yield store
    except BaseException:
        if not existed and not any((folder / CHECKPOINTS).glob("step_*")):
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _watched(store: RunStore, plan: Plan, console: Console) -> Iterator[list[Watcher]]:
    with console.live(plan.steps) as live, closing(Scalars(store.folder / "tb")) as scalars:
        yield [live, scalars]


def _conclude(state: RunState, work: Work, store: RunStore, console: Console) -> RunState:
    """A finished run is measured and compared with its base; an unfinished one says how to go on."""
    if state.stopped == "done":
        _compare_with_base(store, state.step, work, console)
    else:
        console.say(f"saved at step {state.step}; go on with: prorl resume {store.folder}")
    return state


def _refuse_changes(folder: Path, config: RunConfig, overrides: Sequence[str]) -> None:
    wanted = changed(config, {}, overrides)
    if wanted != config:
        changes = "; ".join(differences(to_json(wanted), to_json(config)))
        raise RecipeError(
            f"{folder} was started under another recipe ({changes}): "
            "resume it without changes, or give --branch NAME to go on under the new recipe as a new run"
        )


def _compare_with_base(store: RunStore, step: int, work: Work, console: Console) -> None:
    """Measure the policy of `step`, keep the results, and print them beside those of the base."""
    name = f"step_{step:06d}"
    trained = _measure(work, console)
    _keep_results(store, name, trained)
    base = _results(store, BASE)
    for split in (
        split for split in trained if split in base
    ):  # a branch may measure what its parent did not
        rows = compare(base[split], trained[split], ks=_ks(work.config), seed=work.config.seed)
        console.table(f"base → {name.replace('_', ' ')}: {SPLIT_TITLES[split]}", rows)
    console.say(f"run directory: {store.folder} (journal.jsonl, samples/, evals/, tb/, checkpoints/)")


def _measure(work: Work, console: Console) -> dict[Split, ExamResult]:
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
        )


def _wait(console: Console, reason: str, seconds: float) -> None:
    console.say(reason)
    time.sleep(seconds)


def _keep_results(store: RunStore, name: str, results: Mapping[Split, ExamResult]) -> None:
    data = {split: result.to_json() for split, result in results.items()}
    folder = store.folder / EVALS
    folder.mkdir(exist_ok=True)
    write_atomic(folder / f"{name}.json", json.dumps(data).encode())


def _results(store: RunStore, name: str) -> dict[Split, ExamResult]:
    path = store.folder / EVALS / f"{name}.json"
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StorageError(
            f"the measurement {path} cannot be read ({error}); restore it from a copy"
        ) from error
    return {split: ExamResult.from_json(counts) for split, counts in data.items()}


def _ks(config: RunConfig) -> list[int]:
    return [1, config.evaluation.samples] if config.evaluation.samples > 1 else [1]
