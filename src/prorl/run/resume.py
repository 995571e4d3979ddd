"""How a run is begun, resumed, rolled back and branched: journal, driver state and the learner's tensors as one.

The environment is what else the bits of a result depend on. A run is not resumed with another tokenizer or other
problems; what only rounds differently, as another version of torch does, is said and journalled.
"""

import glob
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from prorl.control.events import Event, Resumed, Started, Warned, from_record, to_record
from prorl.control.state import RunState, evolve, fold
from prorl.envs import files
from prorl.envs.files import StorageError
from prorl.run.checkpoint import intact, is_older
from prorl.run.journal import EventLog, Journal, read_journal
from prorl.run.layout import CHECKPOINTS, CONFIG, EVALS, JOURNAL, REFERENCES, SAMPLES, TOKENIZER
from prorl.run.store import FIRST_REFERENCE, Checkpoint, RunStore
from prorl.types import Learner

PROBLEMS, ROWS = "problems", "rows"
CODE = "code of "  # of a task or reward function of the user's own
BASE_RESULTS = ("measurement/rules.json", "measurement/base.parquet")

_ESSENTIAL = {
    TOKENIZER: "the files in tokenizer/ are not those it was started with: restore them",
    ROWS: "its data is not what it was started with: restore it",
    PROBLEMS: "its tasks no longer ask the problems it was started with: restore the code or data of the tasks, or "
    "PYTHONHASHSEED (0 under a supervisor) if one of them goes through a set",
}


def begin(
    store: RunStore,
    learner: Learner,
    log: EventLog,
    config_hash: str,
    environment: Mapping[str, str],
    *,
    with_reference: bool,
) -> None:
    """Begin a run: its first reference is the model it starts from."""
    reference = store.write_reference(FIRST_REFERENCE, learner.save_reference) if with_reference else None
    log.record(Started(config_hash=config_hash, reference_hash=reference, environment=environment))


def resume(
    store: RunStore,
    learner: Learner,
    log: EventLog,
    checkpoint: Checkpoint,
    config_hash: str,
    environment: Mapping[str, str],
    *,
    after: str = "",
) -> None:
    """Return a run to a checkpoint: journal, driver state, policy, optimizer and reference.

    `environment` is what besides recipe and checkpoint the bits of a result depend on, `after` how the process before
    this one ended, where somebody knows. Warnings behind the checkpoint are journalled again: what happened to
    processes and machines happened whatever is computed anew, and a branch is one at a checkpoint of its parent, too.
    StorageError if the recipe was edited, journal and checkpoint contradict each other, or what the run cannot go on
    without (tokenizer, problems) is not what it was.
    """
    past, state, told_again = _led_to(store, checkpoint)
    starts = [one.environment for one in past if isinstance(one, (Started, Resumed)) and one.environment]
    before = starts[-1] if starts else {}
    # A branch at a checkpoint of its parent says so behind it.
    made = [event for event in told_again if isinstance(event, Resumed)]
    begun = made[-1] if made else Resumed(step=0, config_hash=state.config_hash)
    if begun.config_hash != config_hash:
        raise StorageError(
            f"{store.folder / CONFIG} is not the recipe the run was started under: undo the edit, or "
            f"change the recipe on a branch with `prorl train --branch {store.folder.name}`"
        )
    changes(begun.environment, environment, refuse=True)
    rounding = changes(before, environment, refuse=not made)
    damage = store.journal.damage
    ended = f"taken up again, as {after}" if after else ""
    torn = f"{damage}: what lay behind step {state.step} is set aside" if damage else ""
    told = [Warned(step=state.step, text=text) for text in (ended, torn, *rounding) if text]
    again = [event for event in told_again if not isinstance(event, Resumed)]
    again += [warned for warned in told if warned not in again]
    begun = replace(begun, step=state.step, environment=environment)
    _return_to(store, learner, checkpoint, log, state, [begun, *again])


def roll_back(
    store: RunStore, learner: Learner, log: EventLog, at: Checkpoint, *, tell: Callable[[RunState], Event]
) -> None:
    """Return a running run to a checkpoint, as `resume` would.

    Journal and `log` go on from there, at last with what `tell` says of the state that this led to.
    """
    _, state, again = _led_to(store, at)
    _return_to(store, learner, at, log, state, [*again, tell(reduce(evolve, again, state))])


def branch(
    parent: RunStore, folder: Path, checkpoint: Checkpoint, config: Mapping[str, Any], begun: Resumed
) -> None:
    """Make the directory of a branch: what led to `checkpoint`, how it was begun, and nothing that came later.

    The best validation's checkpoint and the base go with it, if the parent still has them. The parent may train
    meanwhile: what is copied is never changed, at most deleted. Then, or if journal or reference are damaged or there
    is no room, this raises StorageError and removes what was begun.
    """
    steps = {0, checkpoint.step, checkpoint.reached.best_step or 0}
    references = (parent.folder / REFERENCES).glob("[!.]*")
    chosen = [
        *(path for path in map(parent.checkpoint_folder, steps) if intact(path)),
        *(path for path in references if is_older(path, checkpoint.journal_size)),
        parent.folder / TOKENIZER,
        *(parent.folder / EVALS / name for name in BASE_RESULTS),
    ]
    # By one that was killed meanwhile.
    for left in folder.parent.glob(f".{glob.escape(folder.name)}{files.TEMPORARY}*"):
        shutil.rmtree(left, ignore_errors=True)
    try:
        parent.require_history(checkpoint)
        with files.making(folder) as aside:
            for name in (CHECKPOINTS, REFERENCES, SAMPLES, EVALS):
                (aside / name).mkdir(parents=True)
            for path in chosen:
                target = aside / path.relative_to(parent.folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    shutil.copytree(path, target)
                elif path.exists():
                    shutil.copyfile(path, target)
            with (parent.folder / JOURNAL).open("rb") as journal:
                (aside / JOURNAL).write_bytes(journal.read(checkpoint.journal_size))
            with closing(Journal(aside / JOURNAL)) as copied:
                copied.append(to_record(begun))
            files.write_atomic(aside / CONFIG, files.encode_json(config, indent=2))
    except (shutil.Error, FileNotFoundError) as error:
        raise StorageError(
            f"a file of {parent.folder} vanished while it was copied, perhaps because its trainer made room: "
            f"try again ({error})"
        ) from error


def changes(before: Mapping[str, str], now: Mapping[str, str], *, refuse: bool) -> list[str]:
    """One sentence about everything that judges or rounds differently now than when it was recorded.

    With `refuse`, StorageError if tokenizer or problems, which a run cannot go on without, are not what they were.
    """
    changed = [name for name in sorted(before.keys() & now.keys()) if before[name] != now[name]]
    if refuse and (essential := _ESSENTIAL.keys() & set(changed)):
        raise StorageError(
            f"the run cannot go on exactly, as {_ESSENTIAL[min(essential)]}, or go on under what there is now as a "
            "new run with `prorl train --branch`"
        )
    return [
        f"the {name} has changed: from here on responses are judged by what it says now"
        if name.startswith(CODE)
        else f"{name} was {before[name]} and is now {now[name]}: from here on results may differ from those of an "
        "uninterrupted run in their last bits"
        for name in changed
        if name not in _ESSENTIAL
    ]


def _led_to(store: RunStore, checkpoint: Checkpoint) -> tuple[list[Event], RunState, list[Event]]:
    """The events that led to a checkpoint, its state, and which events behind it belong into a journal that returns
    to it: warnings, a roll back that landed here, and that the run is a branch, whose recipe holds even at a
    checkpoint that its parent wrote."""
    try:
        past = list(map(from_record, read_journal(store.journal.path, checkpoint.journal_size)))
    except ValueError as error:
        raise StorageError(f"{store.journal.path} cannot be followed: {error}") from error
    saved, state = checkpoint.reached, fold(past)
    if replace(state, asked=saved.asked) != saved:  # what is left asked at a stop was less in older versions
        raise StorageError(
            f"the journal of {store.folder} does not lead to the state saved in {checkpoint.path}: "
            "was one of them edited, or copied from another run?"
        )

    def holds(record: Mapping[str, Any]) -> bool:
        landed = record.get("action") == "roll_back" and record["step"] == checkpoint.step
        return landed or record.get("kind") == Warned.kind or record.get("branched_from") is not None

    return past, state, list(map(from_record, filter(holds, store.journal.behind(checkpoint.journal_size))))


def _return_to(
    store: RunStore, learner: Learner, at: Checkpoint, log: EventLog, state: RunState, events: list[Event]
) -> None:
    """Cut the journal back and go on with these events, at once: a kill must not give back what was undone.

    Then load policy, optimizer and reference.
    """
    store.rewind(at, [to_record(event) for event in events])
    log.state = state
    for event in events:
        log.take_in(event)
    learner.restore(at.path)
    if log.state.reference is not None:
        folder = store.reference_folder(log.state.reference.name)  # whole: `latest_checkpoint`
        learner.reset_reference(folder, clear_optimizer=False)
