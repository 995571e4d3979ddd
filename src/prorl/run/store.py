"""The run directory: config, journal, checkpoints, references, samples; who may write to it, and what survives.

One trainer at a time holds the lock and only it writes; readers need no lock. Everything sealed (`sealed.py`)
remembers how long the journal was, so a run that returns to a checkpoint can set aside all that came later:
journal and weights never tell two different stories.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prorl.run import sealed
from prorl.run.files import (
    StorageError,
    decode_json,
    encode_json,
    explain_no_room,
    temporary_name,
    write_atomic,
)
from prorl.run.inbox import INBOX
from prorl.run.journal import Journal
from prorl.run.lock import hold_lock

CONFIG, JOURNAL, LOCK, STATE = "config.json", "journal.jsonl", "lock", "state.json"
CHECKPOINTS, REFERENCES, SAMPLES, DISCARDED = "checkpoints", "references", "samples", "discarded"

Report = Callable[[str], None]
Fill = Callable[[Path], None]

_STEP = re.compile(r"step_(\d+)")
_REFERENCE = re.compile(r"\w[\w.-]*", re.ASCII)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was found whole."""

    step: int
    path: Path
    state: dict[str, Any]
    journal_size: int  # bytes of the journal that led to it


class RunStore:
    """One run directory. Use it as a context manager to hold the lock; everything that writes needs that.

    `report` receives one sentence about each thing that went wrong but could be worked around.
    """

    def __init__(self, folder: Path, *, report: Report = _LOG.warning) -> None:
        """Prefer `create` and `open`, which check the folder."""
        self.folder = folder
        self._report = report
        self._journal: Journal | None = None
        self._release = ExitStack()

    @classmethod
    def create(cls, folder: Path, config: Mapping[str, Any], *, report: Report = _LOG.warning) -> Self:
        """Make the directory of a new run and store its resolved config.

        Raises:
            StorageError: the folder already holds a run, or there is no room.
        """
        cls.require_new(folder)
        for name in (CHECKPOINTS, REFERENCES, SAMPLES):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_atomic(folder / JOURNAL, b"")
        write_atomic(folder / CONFIG, encode_json(config, indent=2))
        return cls(folder, report=report)

    @staticmethod
    def require_new(folder: Path) -> None:
        """Check that a new run may begin in this folder.

        Raises:
            StorageError: it already holds a run, or nothing can be written there.
        """
        place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not (place.is_dir() and os.access(place, os.W_OK)):
            raise StorageError(
                f"{folder} cannot hold a run: {place} is not a folder that you may write to; choose another one"
            )
        journal = folder / JOURNAL
        if (folder / CONFIG).exists() or (journal.exists() and journal.stat().st_size):
            raise StorageError(
                f"{folder} already holds a run: continue it with `prorl resume`, or choose another name"
            )

    @classmethod
    def open(cls, folder: Path, *, report: Report = _LOG.warning) -> Self:
        """Open the directory of an existing run.

        Raises:
            StorageError: there is no run in this folder.
        """
        for name in (CONFIG, JOURNAL):
            if not (folder / name).is_file():
                raise StorageError(f"{folder} holds no run (it has no {name}): check the name")
        return cls(folder, report=report)

    def __enter__(self) -> Self:
        """Take the lock, clean up after a killed trainer, open the journal.

        Raises:
            StorageError: another process trains this run, or the journal is damaged.
        """
        with ExitStack() as stack:
            stack.enter_context(hold_lock(self.folder / LOCK))
            for name in (CHECKPOINTS, REFERENCES, SAMPLES):
                sealed.tidy(self.folder / name)
            self._journal = Journal(self.folder / JOURNAL)
            stack.callback(self._journal.close)
            self._release = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal = None
        self._release.close()

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config that the run was created with."""
        try:
            config: dict[str, Any] = decode_json((self.folder / CONFIG).read_bytes())
        except ValueError as error:
            raise StorageError(
                f"{self.folder / CONFIG} is not JSON ({error}): undo what was changed in it"
            ) from error
        return config

    @property
    def journal(self) -> Journal:
        """The journal, open for appending. Readers without the lock use `journal.read_journal`."""
        if self._journal is None:
            raise RuntimeError("this run is not locked: write inside `with store:`")
        return self._journal

    def write_checkpoint(self, step: int, state: Mapping[str, Any], write: Fill) -> Path:
        """Store driver state and whatever `write` saves into the folder it is given, all or nothing.

        A whole checkpoint of this step at this journal position is the same moment, so it is kept and `write` is
        not called; any other of this step is replaced.

        Raises:
            StorageError: no room; earlier checkpoints are untouched.
        """
        target = self._checkpoint(step)
        position = self.journal.size

        def fill(folder: Path) -> None:
            write(folder)
            write_atomic(folder / STATE, encode_json(state, indent=1))

        if not sealed.stands(target, position):
            sealed.seal(target, fill, {"step": step, "journal_size": position})
        return target

    def latest_checkpoint(self, *, up_to: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that is whole, every hash checked; each damaged one passed over is reported.

        `up_to` is the last step that counts. None means that the run has written none yet.

        Raises:
            StorageError: there are checkpoints and all are damaged; starting over would hide that.
        """
        paths = [path for path in self._checkpoints() if up_to is None or _step(path) <= up_to]
        for path in reversed(paths):
            try:
                return _load(path)
            except StorageError as error:
                self._report(f"checkpoint passed over: {error}")
        if paths:
            raise StorageError(
                f"none of the {len(paths)} checkpoints in {self.folder / CHECKPOINTS} is whole; "
                "restore one from a copy, or start a new run"
            )
        return None

    def checkpoint_steps(self) -> list[int]:
        """The steps that there are checkpoints of, whole or not, ascending."""
        return list(map(_step, self._checkpoints()))

    def checkpoint_path(self, step: int) -> Path:
        """Where the files of one step's checkpoint are, every hash checked.

        Raises:
            StorageError: missing or damaged.
        """
        path = self._checkpoint(step)
        sealed.verify(path)
        return path

    def copy_to(
        self, folder: Path, checkpoint: Checkpoint, config: Mapping[str, Any], *, keep: Collection[int] = ()
    ) -> None:
        """Make a new run directory that goes on from a checkpoint of this one, under another config.

        Of the other checkpoints only those of the steps in `keep` go with it.

        Raises:
            StorageError: there is no room; what was begun is removed.
        """
        aside = temporary_name(folder)
        kept = {checkpoint.path.name, *(self._checkpoint(step).name for step in keep)}

        def left_out(parent: str, names: list[str]) -> set[str]:
            if Path(parent) == self.folder / CHECKPOINTS:
                return set(names) - kept
            return {LOCK, SAMPLES, DISCARDED, INBOX} & set(names)

        try:
            with explain_no_room(folder):
                folder.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(self.folder, aside, ignore=left_out)
                (aside / SAMPLES).mkdir()
                write_atomic(aside / CONFIG, encode_json(config, indent=2))
                aside.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def rewind(self, checkpoint: Checkpoint | None) -> None:
        """Return to `checkpoint` (None: to the start): call it on resume, before anything is written.

        The journal behind it moves to its discarded file; damaged or later checkpoints and references move to
        `discarded/`, where a later one of the same name replaces an earlier one.

        Raises:
            StorageError: the journal does not reach the checkpoint.
        """
        position = checkpoint.journal_size if checkpoint else 0
        self.journal.truncate(position)
        for kind in (CHECKPOINTS, REFERENCES):
            for path in sorted((self.folder / kind).glob("[!.]*")):
                if not sealed.sealed_by(path, position):
                    self._discard(path, self.folder / DISCARDED / kind)

    def write_reference(self, name: str, write: Fill) -> str:
        """Store reference weights once under a name; returns the hash of their content.

        A whole reference of this name is kept and `write` is not called.

        Raises:
            ValueError: the name is no plain file name.
            StorageError: no room.
        """
        target = self._reference(name)
        try:
            return sealed.verify(target).digest
        except StorageError:
            return sealed.seal(target, write, {"name": name, "journal_size": self.journal.size}).digest

    def reference_path(self, name: str) -> Path:
        """Where a reference's files are, every hash checked.

        Raises:
            StorageError: missing or damaged.
        """
        path = self._reference(name)
        sealed.verify(path)
        return path

    def prune(self, keep_last: int, keep: Collection[int] = ()) -> None:
        """Delete all checkpoints but the newest `keep_last` and the steps in `keep`; a failure is only reported.

        Damaged ones neither count nor go: to delete a good one in favour of a damaged one would be the worst
        moment to save space. Sizes are checked here, hashes on load.
        """
        if keep_last < 1:
            raise ValueError(f"keep_last is {keep_last}: at least the newest checkpoint must stay")
        _ = self.journal  # only the trainer may delete
        whole = [path for path in self._checkpoints() if sealed.has_all_files(path)]
        for path in whole[:-keep_last]:
            if _step(path) not in keep:
                try:
                    sealed.remove(path)
                except OSError as error:
                    self._report(f"cannot delete the old checkpoint {path}: {error.strerror}")

    def write_samples(self, step: int, records: Iterable[Mapping[str, Any]]) -> Path:
        """Store a step's sample responses, one JSON object per line; a step that is repeated replaces its file."""
        _ = self.journal
        path = self.folder / SAMPLES / f"step_{step:06d}.jsonl"
        write_atomic(path, b"".join(encode_json(record) for record in records))
        return path

    def _checkpoint(self, step: int) -> Path:
        return self.folder / CHECKPOINTS / f"step_{step:06d}"

    def _checkpoints(self) -> list[Path]:
        found = (path for path in (self.folder / CHECKPOINTS).iterdir() if _STEP.fullmatch(path.name))
        return sorted(found, key=_step)

    def _reference(self, name: str) -> Path:
        if not _REFERENCE.fullmatch(name):
            raise ValueError(f"reference name {name!r}: use letters, digits, '_', '-' and '.'")
        return self.folder / REFERENCES / name

    def _discard(self, path: Path, into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        target = into / path.name
        if target.exists():
            shutil.rmtree(target)
        path.rename(target)
        self._report(f"{path} is not part of what the run continues from; moved to {target}")


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step_"))


def _load(path: Path) -> Checkpoint:
    about = sealed.verify(path).about
    if about["step"] != _step(path):
        raise StorageError(f"{path} is a copy of step {about['step']} under another name")
    return Checkpoint(
        step=about["step"],
        path=path,
        state=decode_json((path / STATE).read_bytes()),
        journal_size=about["journal_size"],
    )
