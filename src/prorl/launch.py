"""Starting, resuming and measuring runs: the order of things around the loop, and how a run ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

from prorl import compose
from prorl.config import RunConfig
from prorl.director.plan import Plan
from prorl.director.state import RunState
from prorl.evals.exams import ExamResult
from prorl.evals.measure import compare, measure
from prorl.loop import Run, train
from prorl.planning import make_plan
from prorl.recipe import RecipeError, changed, check, config_hash, differences, to_json
from prorl.rollout.pipeline import Worker
from prorl.run import checkpoints
from prorl.run.files import StorageError, write_atomic
from prorl.run.recorder import Recorder, Watcher
from prorl.run.store import RunStore
from prorl.tasks.mixture import Mixture
from prorl.types import Sampling, Split
from prorl.watch.console import Console
from prorl.watch.scalars import Scalars

TOKENIZER, EVALS, BASE = "tokenizer", "evals", "base"
SPLIT_TITLES: Mapping[Split, str] = {
    "test": "held-out problems",
    "ood": "out of domain: larger sizes and families never trained",
}


class Interrupt:
    """Turns the first Ctrl-C or SIGTERM into a wish that the loop grants at the next step; the second one kills."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._wished = False

    def __call__(self) -> bool:
        """Whether somebody asked to stop."""
        return self._wished

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while inside."""
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(kind, self._handle) for kind in kinds]
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._wished:
            raise KeyboardInterrupt
        self._wished = True
        self._console.say("stopping after this step and saving; press Ctrl-C again to stop at once, unsaved")


def start_run(config: RunConfig, folder: Path, console: Console) -> RunState:
    """Train a recipe from its beginning in a new run directory, measuring the model before and after.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    config = with_threads(config)
    plan = make_plan(config)
    tasks = compose.build_tasks(config)
    RunStore.require_new(folder)
    compose.set_threads(config)
    with console.progress("warming up the base") as progress:
        base = compose.base_model(config, progress)
    parts = compose.build_parts(config, base, with_reference=plan.needs_reference)
    with closing(parts.backend), RunStore.create(folder, to_json(config), report=console.say) as store:
        console.say(f"run directory: {folder}")
        parts.tokenizer.save_pretrained(store.folder / TOKENIZER)
        parts.backend.sync(0)
        _measure_into(store, BASE, config, parts.worker, tasks, console)
        with _watched(store, plan, console) as watchers:
            recorder = checkpoints.start(
                store,
                parts.backend.learner,
                config_hash=config_hash(config),
                with_reference=plan.needs_reference,
                watchers=watchers,
            )
            run = _run(plan, parts, tasks, store, recorder)
            state = _train(run, console)
        return _conclude(state, run, config, console)


def resume_run(
    folder: Path, console: Console, *, overrides: Sequence[str] = (), branched_from: str | None = None
) -> RunState:
    """Take a run up again from its newest good checkpoint, under the recipe it was started with.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    with RunStore.open(folder, report=console.say) as store:
        config = check(store.config, str(folder))
        _refuse_changes(folder, config, overrides)
        plan = make_plan(config)
        tasks = compose.build_tasks(config)
        checkpoint = store.latest_checkpoint()
        if checkpoint is None:
            raise StorageError(
                f"{folder} has no checkpoint yet: delete it and start again with `prorl train`"
            )
        parts = compose.build_parts(
            config, checkpoint.path, tokenizer=folder / TOKENIZER, with_reference=plan.needs_reference
        )
        with closing(parts.backend):
            with _watched(store, plan, console) as watchers:
                recorder = checkpoints.resume(
                    store,
                    parts.backend.learner,
                    checkpoint,
                    config_hash=config_hash(config),
                    branched_from=branched_from,
                    watchers=watchers,
                )
                run = _run(plan, parts, tasks, store, recorder)
                state = _train(run, console)
            return _conclude(state, run, config, console)


def branch_run(folder: Path, target: Path, overrides: Sequence[str], console: Console) -> RunState:
    """Go on from a run's newest checkpoint in a new run directory, under a changed recipe.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    RunStore.require_new(target)
    with RunStore.open(folder, report=console.say) as store:
        config = changed(check(store.config, str(folder)), {"name": target.name}, overrides)
        make_plan(config)
        checkpoint = store.latest_checkpoint()
        if checkpoint is None:
            raise StorageError(f"{folder} has no checkpoint to branch from")
        store.copy_to(target, checkpoint, to_json(config))
    return resume_run(target, console, branched_from=f"{folder.name}@{checkpoint.step}")


def evaluate_run(folder: Path, console: Console) -> None:
    """Measure a run's newest checkpoint on the problems its base was measured on, and print the table.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    with RunStore.open(folder, report=console.say) as store:
        config = check(store.config, str(folder))
        checkpoint = store.latest_checkpoint()
        if checkpoint is None:
            raise StorageError(f"{folder} has no checkpoint to measure")
        tasks = compose.build_tasks(config)
        parts = compose.build_parts(
            config, checkpoint.path, tokenizer=folder / TOKENIZER, with_reference=False
        )
        with closing(parts.backend):
            parts.backend.sync(checkpoint.step)
            name = f"step_{checkpoint.step:06d}"
            _measure_into(store, name, config, parts.worker, tasks, console)
        _show(store, name, config, console)


def evaluate_model(model: str, config: RunConfig, console: Console) -> None:
    """Measure any model on the held-out problems of a recipe and print its pass rates.

    Raises:
        RecipeError, ModelError: with one sentence that says what to do.
    """
    config = with_threads(config)
    tasks = compose.build_tasks(config)
    parts = compose.build_parts(config, model, with_reference=False)
    with closing(parts.backend):
        parts.backend.sync(0)
        results = _measure(config, parts.worker, tasks, console)
    for split, result in results.items():
        console.rates(f"{model}: {SPLIT_TITLES[split]}", result, ks=_ks(config))


def with_threads(config: RunConfig) -> RunConfig:
    """The recipe with its thread count said, as the bits of a result depend on it."""
    return config.model_copy(update={"threads": config.threads or os.cpu_count() or 1})


def _run(plan: Plan, parts: compose.Parts, tasks: Mixture, store: RunStore, recorder: Recorder) -> Run:
    return Run(
        plan=plan,
        backend=parts.backend,
        renderer=parts.renderer,
        tasks=tasks,
        store=store,
        recorder=recorder,
    )


def _train(run: Run, console: Console) -> RunState:
    interrupt = Interrupt(console)
    with interrupt.listening():
        return train(run, interrupted=interrupt)


@contextmanager
def _watched(store: RunStore, plan: Plan, console: Console) -> Iterator[list[Watcher]]:
    with console.live(plan.steps) as live, closing(Scalars(store.folder / "tb")) as scalars:
        yield [live, scalars]


def _conclude(state: RunState, run: Run, config: RunConfig, console: Console) -> RunState:
    """A finished run is measured and compared with its base; an unfinished one says how to go on."""
    if state.stopped == "done":
        worker = Worker(engine=run.backend.engine, judge=run.backend.judge, renderer=run.renderer)
        name = f"step_{state.step:06d}"
        _measure_into(run.store, name, config, worker, run.tasks, console)
        _show(run.store, name, config, console)
    else:
        console.say(f"saved at step {state.step}; go on with: prorl resume {run.store.folder}")
    return state


def _refuse_changes(folder: Path, config: RunConfig, overrides: Sequence[str]) -> None:
    wanted = changed(config, {}, overrides)
    if wanted != config:
        raise RecipeError(
            f"{folder} was started under another recipe ({'; '.join(differences(to_json(wanted), to_json(config)))}): "
            "resume it without changes, or give --branch NAME to go on under the new recipe as a new run"
        )


def _measure_into(
    store: RunStore, name: str, config: RunConfig, worker: Worker, tasks: Mixture, console: Console
) -> None:
    results = _measure(config, worker, tasks, console)
    data = {split: result.to_json() for split, result in results.items()}
    folder = store.folder / EVALS
    folder.mkdir(exist_ok=True)
    write_atomic(folder / f"{name}.json", json.dumps(data).encode())


def _measure(config: RunConfig, worker: Worker, tasks: Mixture, console: Console) -> dict[Split, ExamResult]:
    rules = config.evaluation
    sizes: dict[Split, int] = {"test": rules.per_domain, "ood": rules.ood_per_domain}
    with console.progress("measuring on held-out problems") as progress:
        return measure(
            worker,
            tasks,
            sizes=sizes,
            samples=rules.samples,
            sampling=Sampling(temperature=1.0, top_p=1.0, limit=config.sampling.response_limit),
            seed=config.seed,
            progress=progress,
        )


def _show(store: RunStore, name: str, config: RunConfig, console: Console) -> None:
    base, trained = _results(store, BASE), _results(store, name)
    for split in trained:
        rows = compare(base[split], trained[split], ks=_ks(config), seed=config.seed)
        console.table(f"base → {name.replace('_', ' ')}: {SPLIT_TITLES[split]}", rows)
    console.say(f"run directory: {store.folder} (journal.jsonl, samples/, evals/, tb/, checkpoints/)")


def _results(store: RunStore, name: str) -> dict[Split, ExamResult]:
    data = json.loads((store.folder / EVALS / f"{name}.json").read_bytes())
    return {split: ExamResult.from_json(counts) for split, counts in data.items()}


def _ks(config: RunConfig) -> list[int]:
    return [1, config.evaluation.samples] if config.evaluation.samples > 1 else [1]
