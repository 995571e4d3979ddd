"""Checkpoints: written all or nothing with hashes, when due; which of them stay.

Checkpoints and references are atomic directories: written aside, listed in a manifest with hashes, renamed into
place. Under its final name such a directory was once complete on disk, and `verify` finds everything that happened to
it later. The learner is copied between two steps and written beside the next ones. A full disk costs checkpoints,
each reported, and never the run.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal

from prorl.config.schema import GuardsConfig, SaveConfig
from prorl.control.events import Warned
from prorl.control.state import RunState
from prorl.envs import files
from prorl.envs.files import NoRoomError, StorageError, encode_json, sha256
from prorl.run.journal import EventLog
from prorl.run.layout import REPLACED, STATE
from prorl.run.process import machine_memory, retry_on_full_disk
from prorl.stopwatch import Pulse, Stopwatch, unheard
from prorl.types import Backend

if TYPE_CHECKING:
    from prorl.run.store import RunStore

MANIFEST = "manifest.json"
FORMAT = 2

MARGIN = 1.1  # room wanted, in checkpoints like the newest: journal, samples and scalars grow too
RETRY = 60.0  # seconds before another try to save after one that failed
LONGEST = 300  # characters of a failure in the journal; all of it goes to standard error


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an atomic directory says about itself."""

    about: dict[str, Any]
    files: dict[str, dict[str, Any]]  # path inside the directory → {"size": bytes, "sha256": hex}

    @property
    def digest(self) -> str:
        """One hash of the whole content: SHA-256 over the path and hash of every file."""
        return _hash({path: entry["sha256"] for path, entry in sorted(self.files.items())})


def commit(target: Path, fill: Callable[[Path], None], about: Mapping[str, Any]) -> Manifest:
    """Let `fill` write files into a temporary directory, then make it `target`, replacing what was there.

    A whole directory that was written with this `about` is kept, and `fill` is not called. Else as `files.making`.
    """
    if (found := intact(target, hashes=True)) is not None and found.about == about:
        return found
    with files.making(target, replaced=target.with_name(f".{target.name}{REPLACED}")) as aside:
        fill(aside)
        listed = {
            path.relative_to(aside).as_posix(): {"size": path.stat().st_size, "sha256": sha256(path)}
            for path in sorted(path for path in aside.rglob("*") if path.is_file())
        }
        body = {"format": FORMAT, "name": target.name, "about": dict(about), "files": listed}
        (aside / MANIFEST).write_bytes(encode_json({**body, "sha256": _hash(body)}, indent=1))
    return Manifest(about=dict(about), files=listed)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an atomic directory; StorageError if it is damaged, renamed or of another format."""
    try:
        body = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise StorageError(f"{folder}: the manifest cannot be read ({error})") from error
    if isinstance(body, dict) and body.get("format") != FORMAT:
        raise StorageError(
            f"{folder} has format {body.get('format')} and this version of prorl reads {FORMAT}; "
            "use the version that wrote it"
        )
    if not isinstance(body, dict) or body.pop("sha256", None) != _hash(body):
        raise StorageError(f"{folder}: the manifest is damaged")
    if body["name"] != folder.name:
        raise StorageError(f"{folder} is a copy of {body['name']} under another name")
    return Manifest(about=body["about"], files=body["files"])


def verify(folder: Path, *, hashes: bool = True) -> Manifest:
    """The manifest, after every file was found as it was written: size, and content unless `hashes=False`.

    StorageError names the first file that is missing or differs.
    """
    manifest = read_manifest(folder)
    for name, entry in manifest.files.items():
        path = folder / name
        try:
            whole = path.stat().st_size == entry["size"] and (not hashes or sha256(path) == entry["sha256"])
        except OSError as error:
            raise StorageError(f"{folder}: {name} cannot be read ({error.strerror})") from error
        if not whole:
            raise StorageError(f"{folder}: {name} is damaged")
    return manifest


def intact(folder: Path, *, hashes: bool = False) -> Manifest | None:
    """What `verify` returns, by default of sizes alone; None where it refuses."""
    with suppress(StorageError):
        return verify(folder, hashes=hashes)
    return None


def is_older(folder: Path, position: int) -> bool:
    """Whether the directory has a sound manifest and was written when the journal was no longer than `position`."""
    with suppress(StorageError):
        return bool(read_manifest(folder).about["journal_size"] <= position)
    return False


def tidy(parent: Path) -> None:
    """Remove what a killed writer left unfinished; only for the one process that may write here."""
    for path in parent.glob(f".*{REPLACED}"):
        final = path.with_name(path.name.removeprefix(".").removesuffix(REPLACED))
        if final.exists():
            shutil.rmtree(path, ignore_errors=True)
        else:  # the writer was killed between the two renames of a replacement: the old one is still whole
            path.rename(final)
    for path in parent.glob(f".*{files.TEMPORARY}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(encode_json(body)).hexdigest()


class Checkpointer:
    """Saves a run and watches over its memory; what it remembers is about this process, not about the run."""

    def __init__(
        self,
        store: RunStore,
        backend: Backend,
        log: EventLog,
        save: SaveConfig,
        guards: GuardsConfig,
        pulse: Pulse = unheard,
        also: Callable[[], Callable[[Path], None]] | None = None,
    ) -> None:
        """`also` copies what is saved beside the learner, as its `snapshot` does."""
        self._snapshots = [backend.learner.snapshot, *([also] if also else [])]
        self._store, self._backend, self._log = store, backend, log
        self._rules, self._guards, self._clock = save, guards, Stopwatch(pulse)
        self._interval = 60 * save.minutes or math.inf  # seconds between saves by the clock
        self._due = time.monotonic() + self._interval  # when the next is, or another try of one that failed
        self._writing: Future[None] | None = None

    def keep(self, state: RunState, *, due: bool, good_step: int, patient: bool = False) -> None:
        """Save now if a checkpoint is due, by step or by clock, or is owed since the disk was full.

        What is due by the clock alone waits for a later step if `patient`. The end of a run, and a run that is
        paused, are saved before this returns; the end waits for room. `good_step` is for `prune`.
        """
        if state.stopped is not None:
            retry_on_full_disk(partial(self._save_now, state, good_step), self._store.interrupt)
        elif due or (self.late and not patient):
            try:
                self._save(state, good_step)
            except NoRoomError as error:
                self._postpone(error)
            if state.paused is not None:
                with self._clock.phase("save"):
                    self._store.finish_writing()

    def look(self) -> None:
        """Journal what was mended or could not be saved, and ask for a stop where memory is nearly used up.

        StorageError where the run directory is gone.
        """
        self._store.require_place()
        for text in self._backend.incidents():
            self._warn(text)
        self._guard_memory()
        self._notice()

    @contextmanager
    def journal_failure(self) -> Iterator[None]:
        """Journal a failure that ends the run while inside, after what had been mended before it.

        Both lie behind the checkpoint that the run is resumed from, which takes them over.
        """
        try:
            yield
        except Exception as error:
            with suppress(StorageError, OSError):  # what failed first is what counts
                reason = textwrap.shorten(str(error), LONGEST, placeholder=" …")
                for text in (*self._backend.incidents(), f"ended by {type(error).__name__}: {reason}"):
                    self._warn(text)
            raise

    @property
    def late(self) -> bool:
        """Whether a checkpoint is due by the clock, or owed since the disk was full."""
        return time.monotonic() >= self._due

    def _save_now(self, state: RunState, good_step: int) -> None:
        try:
            writing = self._save(state, good_step)
            with self._clock.phase("save"):
                writing.result()
        finally:
            self._writing = None  # how it ended is told

    def _save(self, state: RunState, good_step: int) -> Future[None]:
        store, rules = self._store, self._rules
        with self._clock.phase("save"):
            store.finish_writing()  # before the copy is taken, so that there are never two
            self._notice()
            self._require_room()
            writers = [snapshot() for snapshot in self._snapshots]

            def write(folder: Path) -> None:
                for writer in writers:
                    writer(folder)

            then = partial(prune, store, rules, best=state.best_step, good=good_step)
            self._writing = store.write_checkpoint(state.step, asdict(state), write, then=then)
        self._due = time.monotonic() + self._interval
        return self._writing

    def _notice(self) -> None:
        """See how the last write beside the training ended; only for want of room is it tried again."""
        if self._writing is None or not self._writing.done():
            return
        failure, self._writing = self._writing.exception(), None
        if isinstance(failure, NoRoomError):
            self._postpone(failure)
        elif failure is not None:
            raise failure

    def _postpone(self, error: NoRoomError) -> None:
        if not self._store.checkpoints():  # a run that cannot even begin to be saved is not worth its time
            raise error
        self._due = time.monotonic() + RETRY
        if self._log.state.stopped is None:  # else its end is saved now, and nothing is told behind it
            self._warn(f"not saved, the run goes on and tries again in {RETRY:.0f} s: {error}")

    def _require_room(self) -> None:
        """Raise NoRoomError if the disk has no room for a checkpoint like the newest one, whatever is given up."""
        newest, size = list(self._store.checkpoints().values())[-1:], 0
        with suppress(StorageError):  # a damaged one says nothing about the next
            size = sum(entry["size"] for path in newest for entry in read_manifest(path).files.values())
        folder = self._store.folder
        if files.free_bytes(folder) < MARGIN * size:
            self._store.drop_discarded()
        if (free := files.free_bytes(folder)) < MARGIN * size:
            raise NoRoomError(
                f"no space left for a checkpoint of {decimal(size)}: the disk of {folder} has "
                f"{decimal(free)}; free some space or move the run to a larger disk, then resume"
            )

    def _guard_memory(self) -> None:
        """Ask the loop to stop before the system kills somebody for want of memory."""
        total, available = machine_memory()
        interrupt = self._store.interrupt
        if available < self._guards.memory_stop * total and interrupt is not None and not interrupt():
            left = f"{decimal(available)} of {decimal(total)} are left"
            self._warn(f"memory is nearly used up: {left}; stopping, saved")
            interrupt.stop_for_memory()

    def _warn(self, text: str) -> None:
        self._log.record(Warned(step=self._log.state.step, text=text))


def prune(store: RunStore, rules: SaveConfig, *, best: int | None, good: int) -> None:
    """Delete the checkpoints that the rules do not keep; a failure is only reported.

    Kept besides are those of step 0, of the `best` validation, the newest one up to `good`, the last step that no
    detector doubts, and of what was the best validation at one that a roll back may return to. Damaged ones neither
    count nor go: to delete a good one in favour of a damaged one would be the worst moment to save space. Sizes are
    checked here, hashes on load.
    """
    _ = store.journal  # only the trainer may delete
    steps = store.checkpoints()
    whole = [step for step, path in steps.items() if intact(path)]
    last_good = [step for step in whole if step <= good][-1:]
    returns = {*last_good, *whole[-rules.keep_last :]}
    keep = {0, best, *last_good, *(_best_until(steps[step]) for step in returns)}
    for step in whole[: -rules.keep_last]:
        if step in keep or (rules.keep_every and step % rules.keep_every == 0):
            continue
        doomed = files.temporary_name(steps[step])
        try:
            steps[step].rename(doomed)  # first, so that a half-deleted one is never taken for whole
            shutil.rmtree(doomed)
        except OSError as error:
            store.report(f"cannot delete {steps[step]}, which is not needed any more: {error.strerror}")


def _best_until(checkpoint: Path) -> int | None:
    """The step of the best validation until a checkpoint; None without one, or where its state cannot be read."""
    with suppress(OSError, ValueError, AttributeError):
        best: int | None = files.decode_json((checkpoint / STATE).read_bytes()).get("best_step")
        return best
    return None
