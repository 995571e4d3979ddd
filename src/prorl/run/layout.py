"""What lies where in a run directory, who holds it, and whether a new run may begin in a folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prorl.envs.files import StorageError, decode_json, encode_json, explain_no_room, write_atomic

RUNS = Path("runs")  # where runs lie, by name
CONFIG, JOURNAL, LOCK, STATE = "config.json", "journal.jsonl", "lock", "state.json"
CHECKPOINTS, REFERENCES, SAMPLES, DISCARDED = "checkpoints", "references", "samples", "discarded"
TOKENIZER, EVALS = "tokenizer", "evals"
HEARTBEAT, STACKS, LOG = "heartbeat.json", "stacks.txt", "supervisor.log"

TRIES, PAUSE = 5, 0.02  # seconds; whoever only asks for the holder has the lock for some microseconds


def run_folder(run: Path) -> Path:
    """A run directory as given, or by name below RUNS."""
    return run if run.exists() or not (RUNS / run).exists() else RUNS / run


def require_run(folder: Path) -> None:
    """Check that a folder holds a run.

    Raises:
        StorageError: it has no recipe or no journal.
    """
    for name in (CONFIG, JOURNAL):
        if not (folder / name).is_file():
            raise StorageError(f"{folder} holds no run (it has no {name}): check the name")


def runs_below(folder: Path) -> list[Path]:
    """Every run directory in a folder, by name."""
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}") if os.path.exists(path.parent / JOURNAL))


def is_born(folder: Path) -> bool:
    """Whether the run in this folder has a checkpoint, so that it can be resumed."""
    return any((folder / CHECKPOINTS).glob("step_*"))


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
    if (folder / CONFIG).exists() and not _never_saved(folder, config):
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


def _never_saved(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a run of this config was begun and never saved."""
    try:
        stored = decode_json((folder / CONFIG).read_bytes())
    except ValueError:
        return False
    return not is_born(folder) and bool(stored == decode_json(encode_json(config)))


@contextmanager
def hold_lock(path: Path, *, used: str = "trained") -> Iterator[None]:
    """Hold a lock inside the block; the kernel releases it when its holder dies. The file says who holds it.

    Raises:
        StorageError: somebody else holds it; the message says which process, and `used` what for.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        for left in reversed(range(TRIES)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if not left:
                    other = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                    raise StorageError(
                        f"{path.parent} is being {used} by {other or 'another process'}; stop that first"
                    ) from error
                time.sleep(PAUSE)
        with explain_no_room(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder(folder: Path) -> int | None:
    """The process that holds a folder's lock, 0 where the lock does not say which; None where nobody is seen to.

    Some mounted directories have no locks: there nobody is ever seen.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        words = os.pread(descriptor, 200, 0).split()
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def last_host(folder: Path) -> str:
    """The machine of the last trainer, by its lock; empty where that does not say."""
    try:
        words = (folder / LOCK).read_text(errors="replace").split()
    except OSError:
        return ""
    return words[-1] if len(words) == 4 else ""  # `process 123 on host`
