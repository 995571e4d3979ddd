"""What lies where in a run directory, and whether a new run may begin in a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prorl.envs.files import StorageError, decode_json, encode_json, write_atomic
from prorl.run.lock import hold_lock

RUNS = Path("runs")  # where runs lie, by name
CONFIG, JOURNAL, LOCK, STATE = "config.json", "journal.jsonl", "lock", "state.json"
CHECKPOINTS, REFERENCES, SAMPLES, DISCARDED = "checkpoints", "references", "samples", "discarded"
TOKENIZER, EVALS = "tokenizer", "evals"
HEARTBEAT, STACKS, LOG = "heartbeat.json", "stacks.txt", "supervisor.log"


def run_folder(run: Path) -> Path:
    """A run directory as given, or by name below RUNS."""
    return run if run.exists() or not (RUNS / run).exists() else RUNS / run


def require_new(folder: Path, config: Mapping[str, Any]) -> None:
    """Check that a new run of this config may begin in this folder.

    Raises:
        StorageError: it already holds a run, or nothing can be written there.
    """
    place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        raise StorageError(
            f"{folder} cannot hold a run: {place} is not a folder that you may write to; choose another one"
        )
    journal = folder / JOURNAL
    if not (folder / CONFIG).exists() and journal.exists() and journal.stat().st_size:
        raise StorageError(
            f"{folder} already holds a run, but its {CONFIG} is missing: restore it, or choose another name"
        )
    if (folder / CONFIG).exists() and not _unborn(folder, config):
        raise StorageError(
            f"{folder} already holds a run: continue it with `prorl resume`, or choose another name"
        )


def prepare(folder: Path, config: Mapping[str, Any]) -> None:
    """Make the directory of a new run and store its resolved config, which comes last.

    A run of the same config that was killed before its first checkpoint has nothing to lose and makes way.

    Raises:
        StorageError: as `require_new`; or there is no room, or somebody is just beginning this run.
    """
    require_new(folder, config)
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / LOCK):
        # They remember positions in the journal that is now begun anew.
        shutil.rmtree(folder / REFERENCES, ignore_errors=True)
        for name in (CHECKPOINTS, REFERENCES, SAMPLES):
            (folder / name).mkdir(exist_ok=True)
        write_atomic(folder / JOURNAL, b"")
        write_atomic(folder / CONFIG, encode_json(config, indent=2))


def is_born(folder: Path) -> bool:
    """Whether the run in this folder has a checkpoint, so that it can be resumed."""
    return any((folder / CHECKPOINTS).glob("step_*"))


def _unborn(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a run of this config was begun and never saved."""
    if is_born(folder):
        return False
    try:
        return bool(decode_json((folder / CONFIG).read_bytes()) == decode_json(encode_json(config)))
    except ValueError:
        return False
