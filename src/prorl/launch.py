"""Starting, resuming and branching runs: the order of things around the loop, and how a run ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from prorl import compose, machine
from prorl.cluster.estimate import require_memory
from prorl.config.recipe import RecipeError, changed, check, config_hash, differences, essence, to_json
from prorl.config.schema import RunConfig
from prorl.control.state import RunState
from prorl.envs.files import encode_json, explain_no_room, write_atomic
from prorl.lab.measurement.around import conclude, forget_other_questions, measure_base
from prorl.lab.measurement.work import Work, build_tasks, newest, work_at
from prorl.lab.watch.console import Console
from prorl.lab.watch.scalars import Scalars
from prorl.loop import Run, train
from prorl.planning import make_plan
from prorl.run.checkpoint import Checkpointer, SaveRules
from prorl.run.inbox import INBOX
from prorl.run.journal import EventLog, Watcher
from prorl.run.layout import CONFIG, TOKENIZER, is_born, require_new
from prorl.run.process import Deadlines, Heartbeat, Interrupt, alive
from prorl.run.resume import begin, branch, resume
from prorl.run.store import Checkpoint, RunStore
from prorl.steering import next_order


def start_run(
    config: RunConfig, folder: Path, console: Console, interrupt: Interrupt | None = None
) -> RunState:
    """Train a recipe from its beginning in a new run directory, measuring the model before and after.

    A failure before the first checkpoint leaves no run directory behind.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    interrupt = interrupt or Interrupt(console.say)
    config = machine.settled(config)
    plan = make_plan(config)
    require_memory(config, plan)
    tasks = build_tasks(config, console)
    require_new(folder, to_json(config))
    machine.set_threads(config)
    with console.progress("warming up the base") as progress:
        base = compose.base_model(config, progress)
    parts = compose.build_parts(config, base, with_reference=plan.needs_reference)
    work = Work(config=config, plan=plan, tasks=tasks, parts=parts)
    with (
        closing(parts.backend),
        _created(folder, config, console, interrupt) as store,
        alive(folder, _deadlines(config)) as heart,
    ):
        parts.backend.sync(0)
        measure_base(store, work, console, heart)
        with explain_no_room(folder):
            parts.tokenizer.save_pretrained(folder / TOKENIZER)
        with _watched(work, store, console, heart) as watchers:
            recorder = begin(
                store,
                parts.backend.learner,
                config_hash=config_hash(config),
                with_reference=plan.needs_reference,
                environment=machine.surroundings(config, tasks, folder / TOKENIZER),
                watchers=watchers,
            )
            state = _train(work, store, recorder, interrupt, heart)
        return _conclude(state, work, store, console, heart)


def resume_run(
    folder: Path,
    console: Console,
    interrupt: Interrupt | None = None,
    *,
    overrides: Sequence[str] = (),
    after: str = "",
) -> RunState:
    """Take a run up again from its newest good checkpoint, under the recipe it was started with.

    `overrides` may change how the process is cared for (checkpoints, deadlines, guards) and where it is computed.
    `after` is for the journal: how the process before this one ended, where that was no end that was meant.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do.
    """
    interrupt = interrupt or Interrupt(console.say)
    with RunStore.open(folder, report=console.say, interrupt=interrupt) as store:
        before = check(store.config, str(folder))
        config = _recared(folder, before, overrides)
        checkpoint = newest(store)
        work = work_at(store, checkpoint, config, console)
        if config != before:
            write_atomic(folder / CONFIG, encode_json(to_json(config), indent=2))
        with closing(work.parts.backend):
            return _go_on(work, store, checkpoint, console, interrupt, after=after)


def branch_run(
    folder: Path,
    target: Path,
    overrides: Sequence[str],
    console: Console,
    interrupt: Interrupt | None = None,
    *,
    step: int | None = None,
) -> RunState:
    """Go on from a checkpoint of a run, by default its newest, in a new run directory under a changed recipe.

    The parent may be training meanwhile.

    Raises:
        RecipeError, ModelError, StorageError: with one sentence that says what to do; then there is no new directory.
    """
    interrupt = interrupt or Interrupt(console.say)
    parent = RunStore.open(folder, report=console.say)
    config = changed(check(parent.config, str(folder)), {"name": target.name}, overrides)
    require_new(target, to_json(config))
    checkpoint = newest(parent) if step is None else parent.checkpoint(step)
    work = work_at(parent, checkpoint, config, console)
    with ExitStack() as stack:
        stack.enter_context(closing(work.parts.backend))
        branch(parent, target, checkpoint, to_json(config))
        forget_other_questions(target, work)
        store = stack.enter_context(RunStore.open(target, report=console.say, interrupt=interrupt))
        origin = f"{folder.name}@{checkpoint.step}"
        return _go_on(work, store, newest(store), console, interrupt, branched_from=origin)


def _go_on(
    work: Work,
    store: RunStore,
    checkpoint: Checkpoint,
    console: Console,
    interrupt: Interrupt,
    *,
    branched_from: str | None = None,
    after: str = "",
) -> RunState:
    with alive(store.folder, _deadlines(work.config), step=checkpoint.step) as heart:
        with _watched(work, store, console, heart) as watchers:
            recorder = resume(
                store,
                work.parts.backend.learner,
                checkpoint,
                config_hash=config_hash(work.config),
                environment=machine.surroundings(work.config, work.tasks, store.folder / TOKENIZER),
                branched_from=branched_from,
                after=after,
                watchers=watchers,
            )
            state = _train(work, store, recorder, interrupt, heart)
        return _conclude(state, work, store, console, heart)


def _train(
    work: Work, store: RunStore, recorder: EventLog, interrupt: Interrupt, heart: Heartbeat
) -> RunState:
    interrupt.heartbeat = heart
    keeper = Checkpointer(store, work.parts.backend, recorder, _rules(work.config), heartbeat=heart)
    run = Run(
        plan=work.plan,
        backend=work.parts.backend,
        renderer=work.parts.renderer,
        tasks=work.tasks,
        store=store,
        recorder=recorder,
        keeper=keeper,
        wait=interrupt.wait,
        next_order=next_order(work.config, store.folder / INBOX, context=work.parts.context),
        pulse=heart,
    )
    with keeper.last_words(), interrupt.listening():
        return train(run, interrupted=interrupt)


@contextmanager
def _created(folder: Path, config: RunConfig, console: Console, interrupt: Interrupt) -> Iterator[RunStore]:
    """A new run directory, locked; one that was made here goes again if there is a failure before a checkpoint."""
    made = [place for place in (folder, *folder.absolute().parents) if not place.exists()]
    try:
        with RunStore.create(folder, to_json(config), report=console.say, interrupt=interrupt) as store:
            console.say(f"run directory: {folder}")
            yield store
    except BaseException:
        if made and not is_born(folder):
            shutil.rmtree(folder, ignore_errors=True)
            for place in made[1:]:
                with suppress(OSError):  # somebody else put something there meanwhile
                    place.rmdir()
        raise


@contextmanager
def _watched(work: Work, store: RunStore, console: Console, heart: Heartbeat) -> Iterator[list[Watcher]]:
    with console.live(work.plan.steps) as live, closing(Scalars(store.folder / "tb")) as scalars:
        yield [partial(heart.follow, work.plan), live, scalars]


def _conclude(state: RunState, work: Work, store: RunStore, console: Console, heart: Heartbeat) -> RunState:
    """A finished run is measured and compared with its base; an unfinished one says how to go on."""
    if state.stopped == "done":
        conclude(store, state.step, work, console, heart)
    else:
        console.say(f"saved at step {state.step}; go on with: prorl resume {store.folder}")
    return state


def _recared(folder: Path, config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """The recipe with other care for its process; anything else would be another run."""
    wanted = changed(config, {}, overrides)
    if essence(wanted) != essence(config):
        changes = "; ".join(differences(essence(wanted), essence(config)))
        raise RecipeError(
            f"{folder} was started under another recipe ({changes}): resume it without these changes, or go on "
            f"under the new recipe as a new run with `prorl train --branch {folder.name} …`"
        )
    return wanted


def _deadlines(config: RunConfig) -> Deadlines:
    least = config.deadlines.model_dump()
    return Deadlines(factor=least.pop("factor"), least=least)


def _rules(config: RunConfig) -> SaveRules:
    save, guards = config.save, config.guards
    return SaveRules(
        minutes=save.minutes,
        keep_last=save.keep_last,
        keep_every=save.keep_every,
        keep_references=save.keep_references,
        warn_steps=guards.warn_steps,
        memory_stop=guards.memory_stop,
    )
