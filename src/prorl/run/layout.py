"""What lies where in a run directory, who holds it, and whether a new run may begin in a folder."""

import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

from prorl.envs.errors import ProrlError
from prorl.envs.files import StorageError, decode_json, encode_json, explain_no_room

REPLACED = ".replaced"  # behind the name of an atomic directory until another one has its place
RUNS = Path("runs")  # where runs lie, by name
CONFIG, JOURNAL, LOCK, STATE = "config.json", "journal.jsonl", "lock", "state.json"
CHECKPOINTS, REFERENCES, SAMPLES, DISCARDED = "checkpoints", "references", "samples", "discarded"
TOKENIZER, EVALS = "tokenizer", "evals"
HEARTBEAT, STACKS, LOG = "heartbeat.json", "stacks.txt", "supervisor.log"
# Keys of a recipe that are another machine's affair, where a job is queued again.
OF_MACHINE = {"backend", "cluster", "device", "threads", "workers"}

_STEP = re.compile(r"step_(\d+)(?:\.(?:jsonl|parquet|parts))?")
TRIES, PAUSE = 5, 0.02  # seconds; whoever only asks for the holder has the lock for some microseconds
# Seconds for which a file server may keep the lock of a machine that died, and between two looks at it.
ELSEWHERE, LOOK = 120.0, 1.0


def run_and_step(said: str) -> tuple[str, str | None]:
    """RUN and the step behind `@`, None without; folders above a run may have an `@` in their names.

    >>> run_and_step("me@home/runs/nano@300"), run_and_step("me@home/runs/nano")
    (('me@home/runs/nano', '300'), ('me@home/runs/nano', None))
    """
    run, at, step = said.rpartition("@")
    return (run, step) if at and "/" not in step else (said, None)


def run_at(said: str) -> tuple[Path, int | None]:
    """The run directory and the step of `RUN@STEP`; no step where only RUN is said. ProrlError for no number."""
    run, step = run_and_step(said)
    if step is not None and not step.isdecimal():
        raise ProrlError(f"{said}: say RUN@STEP, with the number of a step")
    return run_folder(Path(run)), None if step is None else int(step)


def run_folder(run: Path) -> Path:
    """A run directory as given, or by name below RUNS; where neither holds a run, the one that is there."""
    places = (run, RUNS / run)
    holding = (place for place in places if (place / JOURNAL).exists())
    return next(chain(holding, filter(Path.exists, places)), run)


def runs_below(folder: Path) -> list[Path]:
    """Every run directory in a folder, by name."""
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}") if os.path.exists(path.parent / JOURNAL))


def require_run(folder: Path) -> None:
    """Check that a folder holds a run: StorageError if it has no recipe or no journal."""
    for name in (CONFIG, JOURNAL):
        if not (folder / name).is_file():
            raise StorageError(f"{folder} holds no run (it has no {name}): check the name")


def read_config(folder: Path) -> dict[str, Any]:
    """The recipe as stored, perhaps by another version; OSError or ValueError where there is none to read."""
    config = decode_json((folder / CONFIG).read_bytes())
    if not isinstance(config, dict):
        raise ValueError("it holds no recipe")
    return config


def is_born(folder: Path) -> bool:
    """Whether the run in this folder has a checkpoint, so that it can be resumed."""
    with suppress(OSError):  # a file server is away for a moment, or the name is too long for any folder
        checkpoints = folder / CHECKPOINTS  # one of which may be about to be replaced
        return any(chain(checkpoints.glob("step_*"), checkpoints.glob(f".step_*{REPLACED}")))
    return False


def step_name(step: int) -> str:
    """What the checkpoint of a step, its samples and its results in evaluations are called."""
    return f"step_{step:06d}"


def step_of(path: Path) -> int | None:
    """The step that a file or folder is named after; None where it has another name."""
    return int(found[1]) if (found := _STEP.fullmatch(path.name)) else None


def by_step(paths: Iterable[Path]) -> dict[int, Path]:
    """Those that are named after a step, by step in ascending order."""
    return dict(sorted((step, path) for path in paths if (step := step_of(path)) is not None))


def samples(folder: Path) -> dict[int, Path]:
    """A run's files of sample rollouts, by step in ascending order."""
    return by_step((folder / SAMPLES).glob("*.jsonl"))


def require_new(folder: Path, config: Mapping[str, Any]) -> None:
    """StorageError unless a new run of this config may begin here: one that was saved, or is another, stays."""
    if "@" in folder.name:
        raise StorageError(
            f"{folder}: a run's name holds no @, as RUN@STEP is one of its steps; choose another"
        )
    place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        raise StorageError(
            f"{folder} cannot hold a run: {place} is not a folder that you may write to; choose another one"
        )
    if (folder / CONFIG).exists():
        if is_born(folder):
            raise StorageError(
                f"{folder} already holds a run: continue it with `prorl resume`, or choose another name"
            )
        begun: Mapping[str, Any] = {}
        with suppress(ValueError):
            begun = read_config(folder)
        now = decode_json(encode_json(config))
        if any(now.get(key) != begun.get(key) for key in (now.keys() | begun.keys()) - OF_MACHINE):
            raise StorageError(
                f"{folder} holds a run of another recipe and no checkpoint of it: choose another name, or delete it"
            )
        journal = folder / JOURNAL
        steps = journal.read_bytes().count(b'"kind":"stepped"') if journal.exists() else 0
        if steps > config.get("save", {}).get("every", 0):
            raise StorageError(
                f"{folder} has {steps} steps in its journal and no checkpoint: put its {CHECKPOINTS} back, or choose "
                "another name"
            )
    elif (folder / JOURNAL).exists() and (folder / JOURNAL).stat().st_size:
        raise StorageError(
            f"{folder} already holds a run, but its {CONFIG} is missing: restore it, or choose another name"
        )


@contextmanager
def removed_on_failure(folder: Path, is_kept: Callable[[], bool]) -> Iterator[None]:
    """If the block fails, remove the folder and the parents that were made for it, unless there is something to keep.

    A folder that was there before stays in any case.
    """
    made = [place for place in (folder, *folder.absolute().parents) if not place.exists()]
    try:
        yield
    except BaseException:
        if made and not is_kept():
            shutil.rmtree(folder, ignore_errors=True)
            for place in made[1:]:
                with suppress(OSError):  # somebody else put something there meanwhile
                    place.rmdir()
        raise


@contextmanager
def hold_lock(
    path: Path, *, used: str = "trained", report: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold a lock inside the block; the kernel releases it when its holder dies, and the file says who that is.

    StorageError if somebody else does: which process, and by `used` what for. One on another machine may have died
    with its lock kept by a file server: with `report`, which is told so once, that is waited for.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        end = time.monotonic() + ELSEWHERE
        for tried in count(1):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if tried < TRIES:
                    time.sleep(PAUSE)
                    continue
                other = path.read_text(errors="replace").strip() or "another process"
                here = last_holder(path.parent)[1] in ("", socket.gethostname())
                if report is None or here or time.monotonic() >= end:
                    raise StorageError(
                        f"{path.parent} is being {used} by {other}; stop that first"
                    ) from error
                if tried == TRIES:
                    report(
                        f"{path.parent} is locked by {other}: waiting {ELSEWHERE:.0f} s, in case its machine died"
                    )
                time.sleep(LOOK)
            except OSError as error:
                raise StorageError(
                    f"{path.parent} has no file locks ({error.strerror}): put the run on storage that has"
                ) from error
        with explain_no_room(path):
            who = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
            os.pwrite(descriptor, who, 0)  # before what is longer is cut off, which would need room again
            os.ftruncate(descriptor, len(who))
        yield
    finally:
        os.close(descriptor)


def holder(folder: Path) -> int | None:
    """The process that holds a folder's lock, 0 where the lock does not say which; None where nobody is seen to, as
    on a mounted directory without locks."""
    with suppress(OSError), (folder / LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return last_holder(folder)[0]
    return None


def last_holder(folder: Path) -> tuple[int, str]:
    """Process and machine of the last trainer, by its lock; 0 and empty where that does not say."""
    with suppress(OSError):
        words = (folder / LOCK).read_text(errors="replace").split()
        if len(words) == 4 and words[1].isdigit():  # `process 123 on host`
            return int(words[1]), words[3]
    return 0, ""
