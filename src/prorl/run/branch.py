"""A new run directory that goes on from any checkpoint of another run, which may be training meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prorl.envs.files import (
    StorageError,
    encode_json,
    explain_no_room,
    fsync_tree,
    temporary_name,
    write_atomic,
)
from prorl.run import sealed
from prorl.run.layout import CHECKPOINTS, CONFIG, EVALS, JOURNAL, REFERENCES, SAMPLES, TOKENIZER
from prorl.run.store import Checkpoint, RunStore

BASE_RESULTS = ("measurement/rules.json", "measurement/base.parquet")


def copy_to(parent: RunStore, folder: Path, checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
    """Make the directory of a branch: what led to `checkpoint`, and nothing that came later.

    The best exam's checkpoint and the base go with it, if the parent still has them. The parent's lock is not
    needed: what is copied is never changed, at most deleted, and then this fails.

    Raises:
        StorageError: the journal up to there or the reference is damaged, there is no room, or something was deleted
            meanwhile; what was begun is removed.
    """
    best = checkpoint.state["best_step"]
    steps = {0, checkpoint.step, checkpoint.step if best is None else best}
    chosen = [path for path in map(parent.checkpoint_folder, sorted(steps)) if sealed.has_all_files(path)]
    chosen += [
        path
        for path in sorted((parent.folder / REFERENCES).glob("[!.]*"))
        if sealed.sealed_by(path, checkpoint.journal_size)
    ]
    chosen += [parent.folder / TOKENIZER, *(parent.folder / EVALS / name for name in BASE_RESULTS)]
    aside = temporary_name(folder)
    try:
        parent.require_history(checkpoint)
        with explain_no_room(folder):
            for name in (CHECKPOINTS, REFERENCES, SAMPLES, EVALS):
                (aside / name).mkdir(parents=True)
            for path in chosen:
                _copy(path, aside / path.relative_to(parent.folder))
            with (parent.folder / JOURNAL).open("rb") as journal:
                (aside / JOURNAL).write_bytes(journal.read(checkpoint.journal_size))
            write_atomic(aside / CONFIG, encode_json(config, indent=2))
            fsync_tree(aside)
            aside.rename(folder)
    except (shutil.Error, FileNotFoundError) as error:
        raise StorageError(
            f"a file of {parent.folder} vanished while it was copied, perhaps because its trainer made room: "
            f"try again ({error})"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
