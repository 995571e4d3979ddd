"""Which checkpoints and references stay. Nothing goes before what replaces it is safe on disk."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prorl.envs.files import decode_json
from prorl.run import sealed
from prorl.run.layout import REFERENCES, STATE
from prorl.run.store import RunStore, step_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept besides the base (step 0) and the best exam's checkpoint."""

    keep_last: int = 2  # newest checkpoints
    keep_every: int = 0  # and those of every so many steps; 0: none
    keep_references: Literal["all", "needed"] = "all"  # needed: by the run now or by a kept checkpoint


def prune(
    store: RunStore, rules: Retention, *, position: int, best: int | None, good: int, live: str | None
) -> None:
    """Delete what the rules do not keep; a failure is only reported.

    `position` is the journal's size at the newest checkpoint, `best` the step of the best exam, `good` the last one
    that no detector doubts, `live` the name of the reference in use then. One born after that is never touched.
    """
    steps = map(step_of, store.checkpoints())
    target = [step for step in steps if step <= good][-1:]  # of a roll back
    prune_checkpoints(store, rules, keep={0, *target} if best is None else {0, best, *target})
    if rules.keep_references == "needed":
        try:
            needed = _needed(store)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ) as error:  # a damaged checkpoint does not say what it needs
            store.report(f"no reference is deleted while a checkpoint cannot be read: {error}")
            return
        _prune_references(store, needed | {live}, position)


def prune_checkpoints(store: RunStore, rules: Retention, *, keep: Collection[int]) -> None:
    """Delete all checkpoints but the newest, those of the chosen cadence, and those of the steps in `keep`.

    Damaged ones neither count nor go: to delete a good one in favour of a damaged one would be the worst moment to
    save space. Sizes are checked here, hashes on load.
    """
    if rules.keep_last < 1:
        raise ValueError(f"keep_last is {rules.keep_last}: at least the newest checkpoint must stay")
    _ = store.journal  # only the trainer may delete
    whole = [path for path in store.checkpoints() if sealed.has_all_files(path)]
    for path in whole[: -rules.keep_last]:
        step = step_of(path)
        if step not in keep and not (rules.keep_every and step % rules.keep_every == 0):
            _remove(store, path, "checkpoint")


def _needed(store: RunStore) -> set[str | None]:
    """Names of the references that the checkpoints on disk go on with."""
    states = (
        decode_json((path / STATE).read_bytes()) for path in store.checkpoints() if (path / STATE).exists()
    )
    return {state["reference"]["name"] for state in states if state.get("reference")}


def _prune_references(store: RunStore, keep: set[str | None], position: int) -> None:
    for path in sorted((store.folder / REFERENCES).glob("[!.]*")):
        if path.name not in keep and sealed.sealed_by(path, position):
            _remove(store, path, "reference")


def _remove(store: RunStore, path: Path, what: str) -> None:
    try:
        sealed.remove(path)
    except OSError as error:
        store.report(f"cannot delete the old {what} {path}: {error.strerror}")
