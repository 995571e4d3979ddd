"""Where a run begins and is taken up again: driver state, the journal up to it, and the learner's tensors, as one.

All three are restored, so nothing is lost but the work since the checkpoint; and what else the bits of a result
depend on must be as it was (`surroundings.py`). Warnings of process and machine outlive the steps they came in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prorl.control.events import Event, Resumed, Started, Warned, from_record
from prorl.control.state import RunState, fold, from_json
from prorl.envs.files import StorageError
from prorl.run.recorder import Recorder, Watcher
from prorl.run.store import Checkpoint, RunStore, step_of
from prorl.run.surroundings import changes, require_same
from prorl.types import Learner

FIRST_REFERENCE = "ref_000"


def start(
    store: RunStore,
    learner: Learner,
    *,
    config_hash: str,
    with_reference: bool,
    surroundings: Mapping[str, str] | None = None,
    watchers: Sequence[Watcher] = (),
) -> Recorder:
    """Begin a run: its first reference is the model it starts from."""
    recorder = Recorder(store.journal, RunState(), watchers, hold=store.hold)
    reference = store.write_reference(FIRST_REFERENCE, learner.save_reference) if with_reference else None
    recorder.record(
        Started(config_hash=config_hash, reference_hash=reference, surroundings=surroundings or {})
    )
    return recorder


def resume(
    store: RunStore,
    learner: Learner,
    checkpoint: Checkpoint,
    *,
    config_hash: str,
    surroundings: Mapping[str, str] | None = None,
    branched_from: str | None = None,
    after: str = "",
    watchers: Sequence[Watcher] = (),
) -> Recorder:
    """Return a run to a checkpoint: journal, driver state, policy, optimizer and reference.

    `after` says how the process before this one ended, where somebody knows.

    Raises:
        StorageError: the run's recipe was edited, journal and checkpoint contradict each other, or what the run
            cannot go on without (its tokenizer, its problems) is not what it was.
    """
    state = _state_of(checkpoint)
    now = surroundings or {}
    if branched_from is None and state.config_hash != config_hash:
        raise StorageError(
            f"{store.folder / 'config.json'} is not the recipe the run was started under: undo the edit, or "
            f"change the recipe on a branch with `prorl train --branch {store.folder.name}`"
        )
    if branched_from is None:
        require_same(_recorded(store), now)
    damage = store.journal.damage
    state, told_again = _return_to(store, learner, checkpoint)
    outlived = [event for event in told_again if isinstance(event, Warned)]
    before = _recorded(store)  # of who wrote the checkpoint; what came later was set aside
    recorder = Recorder(store.journal, state, watchers, hold=store.hold)
    recorder.record(
        Resumed(step=state.step, config_hash=config_hash, branched_from=branched_from, surroundings=now)
    )
    told = (
        *([f"taken up again, as {after}"] if after else []),
        *([f"{damage}: what lay behind step {state.step} is set aside"] if damage else []),
        *changes(before, now),
    )
    for warned in dict.fromkeys((*outlived, *(Warned(step=state.step, text=text) for text in told))):
        recorder.record(warned)
    return recorder


def roll_back(store: RunStore, learner: Learner, recorder: Recorder, *, up_to: int) -> None:
    """Return a running run to its newest whole checkpoint of step `up_to` or before, as `resume` would.

    A branch may hold none that old; then it is the oldest. What came later is set aside: the journal goes on from
    there, and so does the recorder.

    Raises:
        StorageError: there is no checkpoint, or journal and checkpoint contradict each other.
    """
    checkpoint = store.latest_checkpoint(up_to=max(up_to, min(map(step_of, store.checkpoints()), default=0)))
    if checkpoint is None:
        raise StorageError(f"{store.folder} has no checkpoint to roll back to; start a new run")
    recorder.state, told_again = _return_to(store, learner, checkpoint)
    for event in told_again:
        recorder.record(event)


def _return_to(store: RunStore, learner: Learner, checkpoint: Checkpoint) -> tuple[RunState, list[Event]]:
    """Restore all of it; returns the state, and which events behind the checkpoint belong into the journal again.

    That is warnings, and that the run is a branch: its own recipe holds even at a checkpoint that its parent wrote.
    """
    discarded = store.rewind(checkpoint)
    state = fold(_events(store))
    if state != _state_of(checkpoint):
        raise StorageError(
            f"the journal of {store.folder} does not lead to the state saved in {checkpoint.path}: "
            "was one of them edited, or copied from another run?"
        )
    learner.restore(checkpoint.path)
    if state.reference is not None:
        learner.restore_reference(store.reference_folder(state.reference.name))  # whole: `latest_checkpoint`
    told = (r for r in discarded if r.get("kind") == Warned.kind or r.get("branched_from") is not None)
    return state, list(map(from_record, told))


def _state_of(checkpoint: Checkpoint) -> RunState:
    try:
        return from_json(checkpoint.state)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StorageError(
            f"{checkpoint.path} was written by another version of prorl ({error}): resume it with that one"
        ) from error


def _recorded(store: RunStore) -> Mapping[str, str]:
    """The surroundings of whoever trained this run last."""
    starts = (event for event in _events(store) if isinstance(event, (Started, Resumed)))
    recorded = [event.surroundings for event in starts if event.surroundings]
    return recorded[-1] if recorded else {}


def _events(store: RunStore) -> Iterator[Event]:
    try:
        yield from map(from_record, store.journal.read())
    except ValueError as error:
        raise StorageError(f"{store.journal.path} cannot be followed: {error}") from error
