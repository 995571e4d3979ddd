"""What a checkpoint means: driver state, the journal up to it, and the learner's tensors, saved as one.

Taking a run up again restores all three, so nothing is lost but the work since the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from prorl.director.events import Resumed, Started, from_record
from prorl.director.state import RunState, fold, from_json, to_json
from prorl.ports import Learner
from prorl.run.files import StorageError
from prorl.run.recorder import Recorder, Watcher
from prorl.run.store import Checkpoint, RunStore

FIRST_REFERENCE = "ref_000"


def start(
    store: RunStore,
    learner: Learner,
    *,
    config_hash: str,
    with_reference: bool,
    watchers: Sequence[Watcher] = (),
) -> Recorder:
    """Begin a run: its first reference is the model it starts from."""
    recorder = Recorder(store.journal, RunState(), watchers)
    reference = store.write_reference(FIRST_REFERENCE, learner.save_reference) if with_reference else None
    recorder.record(Started(config_hash=config_hash, reference_hash=reference))
    return recorder


def save(store: RunStore, learner: Learner, state: RunState, *, keep_last: int, good_step: int) -> None:
    """Write the checkpoint of this step, then delete what is no longer needed.

    The base (step 0), the best exam's and the newest checkpoints stay, and that of `good_step` or the one before it,
    to which a detector in doubt may yet roll back.
    """
    store.write_checkpoint(state.step, to_json(state), learner.save)
    best = set() if state.best_step is None else {state.best_step}
    good = [step for step in store.checkpoint_steps() if step <= good_step][-1:]
    store.prune(keep_last=keep_last, keep={0, *best, *good})


def resume(
    store: RunStore,
    learner: Learner,
    checkpoint: Checkpoint,
    *,
    config_hash: str,
    branched_from: str | None = None,
    watchers: Sequence[Watcher] = (),
) -> Recorder:
    """Return a run to a checkpoint: journal, driver state, policy, optimizer and reference.

    Raises:
        StorageError: the run's recipe was edited, or journal and checkpoint contradict each other.
    """
    state = from_json(checkpoint.state)
    if branched_from is None and state.config_hash != config_hash:
        raise StorageError(
            f"{store.folder / 'config.json'} is not the recipe the run was started under: undo the edit, or "
            "change the recipe with `prorl resume --branch`"
        )
    _return_to(store, learner, checkpoint, state)
    recorder = Recorder(store.journal, state, watchers)
    recorder.record(Resumed(step=state.step, config_hash=config_hash, branched_from=branched_from))
    return recorder


def roll_back(store: RunStore, learner: Learner, recorder: Recorder, *, up_to: int) -> None:
    """Return a running run to its newest whole checkpoint of step `up_to` or before, as `resume` would.

    A branch may hold none that old; then it is the oldest. What came later is set aside: the journal goes on from
    there, and so does the recorder.

    Raises:
        StorageError: there is no checkpoint, or journal and checkpoint contradict each other.
    """
    checkpoint = store.latest_checkpoint(up_to=max(up_to, min(store.checkpoint_steps(), default=0)))
    if checkpoint is None:
        raise StorageError(f"{store.folder} has no checkpoint to roll back to; start a new run")
    state = from_json(checkpoint.state)
    _return_to(store, learner, checkpoint, state)
    recorder.state = state


def _return_to(store: RunStore, learner: Learner, checkpoint: Checkpoint, state: RunState) -> None:
    store.rewind(checkpoint)
    if _folded(store) != state:
        raise StorageError(
            f"the journal of {store.folder} does not lead to the state saved in {checkpoint.path}: "
            "was one of them edited, or copied from another run?"
        )
    learner.restore(checkpoint.path)
    if state.reference is not None:
        learner.restore_reference(store.reference_path(state.reference.name))


def _folded(store: RunStore) -> RunState:
    try:
        return fold(map(from_record, store.journal.read()))
    except ValueError as error:
        raise StorageError(f"{store.journal.path} cannot be followed: {error}") from error
