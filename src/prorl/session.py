"""Starting, resuming and branching runs: the order of things around the loop, and how a run ends.

What cannot be done raises RecipeError, ModelError or StorageError, with one sentence that says what to do.
"""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

from prorl import build
from prorl.build import Session
from prorl.cluster.estimate import choose_backend, require_memory
from prorl.commands import require_overrides
from prorl.config import recipe
from prorl.config.recipe import RecipeError, changed, config_hash, to_json
from prorl.config.schema import RunConfig
from prorl.control.events import Resumed, Warned
from prorl.control.plan import hparams_at, hparams_now, make_plan
from prorl.control.state import RunState
from prorl.envs.files import StorageError, encode_json, explain_no_room, write_atomic
from prorl.lab.loggers import logging, require_tracker
from prorl.lab.measurement import checked_tasks, compare_with_base, forget_other_questions, measure_base
from prorl.lab.watch.console import Console
from prorl.lab.watch.scalars import Scalars
from prorl.loop import Run, train
from prorl.rollout.partial import InHand
from prorl.run.checkpoint import Checkpointer
from prorl.run.journal import EventLog
from prorl.run.layout import CONFIG, EVALS, TOKENIZER, holder, removed_on_failure, require_new
from prorl.run.process import Interrupt, alive
from prorl.run.resume import begin, branch, resume
from prorl.run.store import Checkpoint, RunStore
from prorl.types import HParams


def start_run(
    config: RunConfig, folder: Path, console: Console, interrupt: Interrupt | None = None
) -> RunState:
    """Train a recipe from its beginning in a new run directory, measuring the model before and after.

    A failure before the first checkpoint leaves no run directory behind, but where the base has been measured.
    """
    config, why = choose_backend(config)
    if why:
        console.say(f"{why}; prorl doctor tells what would be faster")
    config = build.settled(config)
    require_memory(config)
    require_tracker(config.log)
    with console.counting("preparing data") as counted:
        build.prepare_own_data(config, counted)
    tasks = checked_tasks(config, console)
    require_new(folder, to_json(config))
    with console.progress("warming up the base") as progress:
        base = build.base_model(config, progress)
    session = build.build_session(config, base, tasks=tasks)
    store: RunStore | None = None

    def is_kept() -> bool:
        saved = store is not None and store.has_saved
        # Somebody may have begun the same run at this moment.
        return saved or holder(folder) is not None or any((folder / EVALS).glob("*/base.*"))

    with session, removed_on_failure(folder, is_kept):
        store = RunStore.create(folder, to_json(config), report=console.say)
        with store:
            console.say(f"run directory: {folder}")
            return _run(session, store, None, console, interrupt)


def resume_run(
    folder: Path,
    console: Console,
    interrupt: Interrupt | None = None,
    *,
    overrides: Sequence[str] = (),
    after: str = "",
) -> RunState:
    """Take a run up again from its newest good checkpoint, under the recipe it was started with.

    `overrides` may change its runtime settings. `after` is for the journal: how the process before ended, if badly.
    """
    with RunStore.open(folder, report=console.say) as store:
        before = store.config
        config = _with_runtime_settings(folder, before, overrides)
        require_tracker(config.log)
        checkpoint = store.latest_checkpoint()
        if config != before:
            require_overrides(config, checkpoint.reached)
        session = _session_at(store, checkpoint, config, console)
        if config != before:
            write_atomic(folder / CONFIG, encode_json(to_json(config), indent=2))
        with session:
            return _run(session, store, checkpoint, console, interrupt, after=after)


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

    The parent may be training meanwhile. What fails before the directory is made leaves none behind.
    """
    parent = RunStore.open(folder, report=console.say)
    before = parent.config
    wanted = changed(build.with_rows_of_now(before), {"name": target.name}, overrides)
    config = build.settled(choose_backend(wanted)[0])
    require_tracker(config.log)
    require_new(target, to_json(config))
    if target.exists() and any(target.iterdir()):
        raise StorageError(
            f"{target} is not empty: a branch begins in a folder of its own; choose another name"
        )
    checkpoint = parent.latest_checkpoint() if step is None else parent.checkpoint(step)
    if config.steps <= checkpoint.step:
        raise RecipeError(
            f"a branch from step {checkpoint.step} of {config.steps} trains nothing: say steps=N with a larger number"
        )
    with console.counting("preparing data") as counted:
        build.prepare_own_data(config, counted)
    session = _session_at(parent, checkpoint, config, console)
    asked = hparams_now(make_plan(before), checkpoint.reached)
    asks = hparams_at(make_plan(config), checkpoint.step)
    with session:
        begun = Resumed(
            step=checkpoint.step,
            config_hash=config_hash(config),
            branched_from=f"{folder.name}@{checkpoint.step}",
            environment=build.environment(config, session.tasks, parent.folder / TOKENIZER),
            stages=sum(stage.at <= checkpoint.step for stage in config.stages),
            same_validation=_validated(before, asked) == _validated(config, asks),
        )
        branch(parent, target, checkpoint, to_json(config), begun)
        forget_other_questions(target, session)
        with RunStore.open(target, report=console.say) as store:
            return _run(session, store, store.latest_checkpoint(), console, interrupt)


def _validated(config: RunConfig, hparams: HParams) -> tuple[object, ...]:
    """All that the score of a policy depends on."""
    asked = (config.seed, config.tasks, config.instruction, config.system_prompt, config.format)
    return *asked, config.validation.per_domain, config.validation.samples, hparams.response_limit


def _session_at(store: RunStore, checkpoint: Checkpoint, config: RunConfig, console: Console) -> Session:
    """All that a recipe needs to go on from a checkpoint."""
    require_memory(config)
    held = checkpoint.reached.reference is not None
    if make_plan(config).needs_reference and not held:
        raise RecipeError(
            f"{store.folder} was begun without a KL penalty, so it holds no reference to pay one to: "
            "keep kl.coef at 0, or start a new run"
        )
    tokenizer = store.folder / TOKENIZER
    if not tokenizer.is_dir():
        raise StorageError(
            f"{tokenizer} is missing, without which the run cannot go on: restore it from a copy"
        )
    tasks = checked_tasks(config, console)
    return build.build_session(config, checkpoint.path, tokenizer=tokenizer, tasks=tasks, with_reference=held)


def _run(
    session: Session,
    store: RunStore,
    checkpoint: Checkpoint | None,
    console: Console,
    interrupt: Interrupt | None,
    *,
    after: str = "",
) -> RunState:
    """Begin, or go on from a checkpoint; train; compare a finished run with its base, or say how to go on."""
    interrupt = interrupt or Interrupt(console.say)
    config, plan, tokenizer = session.config, session.plan, store.folder / TOKENIZER
    with alive(store.folder, config.deadlines, step=checkpoint.step if checkpoint else 0) as heart:
        if checkpoint is None:
            session.backend.sync(0)
            measure_base(store, session, console, heart)
            with explain_no_room(store.folder):
                session.tokenizer.save_pretrained(tokenizer)
        with console.live(config.steps) as live, closing(Scalars(store.folder / "tb")) as scalars:
            store.interrupt = interrupt  # of the event log, too: on a full disk both wait
            interrupt.heartbeat = heart
            learner, identity = session.backend.learner, config_hash(config)
            follow = partial(heart.follow, plan)
            log = EventLog(store.journal, RunState(), [follow, live, scalars], interrupt)
            with interrupt.listening() if checkpoint is not None else nullcontext():
                environment = build.environment(config, session.tasks, tokenizer)
                if checkpoint is None:
                    begin(store, learner, log, identity, environment, with_reference=plan.needs_reference)
                else:
                    resume(store, learner, log, checkpoint, identity, environment, after=after)
            interrupt.begun = True
            if session.note:
                log.record(Warned(step=log.state.step, text=session.note))
            in_hand = InHand(session.tasks, session.renderer)
            if checkpoint is not None and (dropped := in_hand.restore(checkpoint.path)):
                text = f"{dropped} groups that were in hand are dropped: they cannot be continued here"
                log.record(Warned(step=log.state.step, text=text))
            checkpointer = Checkpointer(
                store, session.backend, log, config.save, config.guards, heart, in_hand.snapshot
            )
            run = Run(
                session=session,
                store=store,
                event_log=log,
                checkpointer=checkpointer,
                in_hand=in_hand,
                interrupted=interrupt,
                wait=interrupt.wait,
                pulse=heart,
            )
            with logging(store.folder, config.log), checkpointer.journal_failure(), interrupt.listening():
                state = train(run)
        if state.stopped == "done":
            compare_with_base(store, state.step, session, console, heart)
            console.say(f"run directory: {store.folder} (journal.jsonl, samples/, evals/, tb/, checkpoints/)")
        else:
            console.say(f"saved at step {state.step}; go on with: prorl resume {store.folder}")
        return state


def _with_runtime_settings(folder: Path, config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """The recipe with other runtime settings; anything else would be another run."""
    wanted = changed(config, {}, overrides)
    mine, theirs = recipe.result_settings(wanted), recipe.result_settings(config)
    if changes := recipe.differences(mine, theirs):
        raise RecipeError(
            f"{folder} was started under another recipe ({'; '.join(changes)}): resume it without "
            f"these changes, or go on under the new recipe as a new run with `prorl train --branch {folder.name} …`"
        )
    return wanted
