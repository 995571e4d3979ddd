"""The run directory: checkpoints, references, samples and journal; who may write to it, and what survives.

One trainer at a time holds the lock and only it writes; readers need no lock. Every checkpoint and reference stores
length and hash of the journal that led to it. A run that returns to a checkpoint checks that journal and sets aside
all that came later.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from prorl.config.recipe import check
from prorl.config.schema import RunConfig
from prorl.control.events import Stepped
from prorl.control.state import RunState, from_json
from prorl.envs import files
from prorl.envs.files import NoRoomError, StorageError
from prorl.run import layout
from prorl.run.checkpoint import commit, is_older, tidy, verify
from prorl.run.journal import Journal, read_journal, verify_lines
from prorl.run.layout import CHECKPOINTS, CONFIG, DISCARDED, EVALS, JOURNAL, LOCK, REFERENCES, SAMPLES, STATE
from prorl.run.process import Interrupt, retry_on_full_disk

Report = Callable[[str], None]
Fill = Callable[[Path], None]

MAY_REDO = 250  # steps that may be computed again without anybody's asking
FIRST_REFERENCE = "ref_000"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was found whole."""

    step: int
    path: Path
    state: dict[str, Any]
    journal_size: int  # bytes of the journal that led to it, and ...
    journal_hash: str  # ... its running hash

    @cached_property
    def reached(self) -> RunState:
        """The state it was saved in; StorageError if that is another version's."""
        try:
            return from_json(self.state)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StorageError(
                f"{self.path} was written by another version of prorl ({error}): resume it with that one"
            ) from error


class RunStore:
    """One run directory. Use it as a context manager to hold the lock; everything that writes needs that."""

    def __init__(self, folder: Path, *, report: Report = _LOG.warning) -> None:
        """Prefer `create` and `open`, which check the folder. `report` is told what could be worked around."""
        self.folder, self.report = folder, report
        self.interrupt: Interrupt | None = None  # with it, what the run cannot go on without waits for room
        self.has_saved = False  # a checkpoint, wherever it may be now
        # A thread dies with the trainer: no orphan can put a checkpoint in place after somebody resumed the run.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="prorl-writer")
        self._writing: Future[None] | None = None
        self._journal: Journal | None = None
        self._place = -1  # the open directory
        self._release = ExitStack()

    @classmethod
    def create(cls, folder: Path, config: Mapping[str, Any], *, report: Report = _LOG.warning) -> Self:
        """Make the directory of a new run and store its resolved config, which comes last.

        A run of the same config that was killed before its first checkpoint has nothing to lose and makes way; any
        other stays (StorageError).
        """
        layout.require_new(folder, config)
        folder.mkdir(parents=True, exist_ok=True)
        with layout.hold_lock(folder / LOCK, report=report):
            # They remember positions in the journal that is now begun anew.
            shutil.rmtree(folder / REFERENCES, ignore_errors=True)
            for name in (CHECKPOINTS, REFERENCES, SAMPLES):
                (folder / name).mkdir(exist_ok=True)
            files.write_atomic(folder / JOURNAL, b"")
            files.write_atomic(folder / CONFIG, files.encode_json(config, indent=2))
        return cls(folder, report=report)

    @classmethod
    def open(cls, folder: Path, *, report: Report = _LOG.warning) -> Self:
        """Open the directory of an existing run; StorageError if there is none in this folder."""
        layout.require_run(folder)
        return cls(folder, report=report)

    def __enter__(self) -> Self:
        """Take the lock (StorageError if another process has it), clean up after a killed trainer.

        The lock of a process on another machine is waited for, as `hold_lock` says.
        """
        with ExitStack() as stack:
            stack.enter_context(layout.hold_lock(self.folder / LOCK, report=self.report))
            self._place = os.open(self.folder, os.O_RDONLY)
            stack.callback(os.close, self._place)
            for name in (CHECKPOINTS, REFERENCES, SAMPLES):
                tidy(self.folder / name)
            self._journal = Journal(self.folder / JOURNAL)
            stack.callback(self._journal.close)
            self._release = stack.pop_all()
        return self

    def __exit__(self, *_failure: object) -> None:
        self.finish_writing()
        self._journal = None
        self._release.close()

    @property
    def config(self) -> RunConfig:
        """The resolved recipe that the run goes by; RecipeError as `check` where it cannot be used."""
        try:
            stored = layout.read_config(self.folder)
        except ValueError as error:
            path = self.folder / CONFIG
            raise StorageError(f"{path} cannot be read ({error}): undo what was changed in it") from error
        return check(stored, str(self.folder))

    @property
    def journal(self) -> Journal:
        """The journal, open for appending. Readers without the lock use `RunHistory`."""
        if self._journal is None:
            raise RuntimeError("this run is not locked: write inside `with store:`")
        return self._journal

    def write_checkpoint(
        self, step: int, state: Mapping[str, Any], write: Fill, *, then: Callable[[], None] = lambda: None
    ) -> Future[None]:
        """Store driver state and whatever `write` saves into the folder it is given, all or nothing.

        It is written beside the training, after the write before; the future says what failed, and `then` is called
        once it is safe. A whole checkpoint of this step and position in the journal is kept, any other is replaced.
        """
        target, about = self.checkpoint_folder(step), {"step": step, **self.journal.position}

        def fill(folder: Path) -> None:
            write(folder)
            files.write_atomic(folder / STATE, files.encode_json(state, indent=1))

        def work() -> None:
            commit(target, fill, about)
            self.has_saved = True
            then()

        self._writing = self._writer.submit(work)
        return self._writing

    def require_place(self) -> None:
        """StorageError where the directory that was locked is no longer here: who writes would begin another one."""
        try:
            stays = os.path.samestat(os.stat(self.folder), os.fstat(self._place))
        except FileNotFoundError:
            stays = False
        if not stays:
            raise StorageError(
                f"{self.folder} was moved or deleted while it trained: go on with `prorl resume` where it is now"
            )

    def drop_discarded(self) -> None:
        """Delete the checkpoints that the run has given up, to make room."""
        given_up = self.folder / DISCARDED / CHECKPOINTS
        if given_up.is_dir():
            self.report(f"deleting {given_up}: there is no other room for the next checkpoint")
            shutil.rmtree(given_up, ignore_errors=True)

    def finish_writing(self) -> None:
        """Wait until no write is under way."""
        if self._writing is not None:
            wait([self._writing])

    def latest_checkpoint(self, *, up_to: int | None = None) -> Checkpoint:
        """The newest checkpoint that is whole, every hash checked; each damaged one passed over is reported.

        Under the lock `require_history` holds too. `up_to` is the last step that counts. StorageError if there is
        none, or none within `MAY_REDO` steps: to go back further is for the operator to decide.
        """
        self.finish_writing()
        if up_to is None and self._journal is not None:
            up_to = self._landed()
        steps = [step for step in self.checkpoints() if up_to is None or step <= up_to]
        candidates = [step for step in steps if steps[-1] - step <= MAY_REDO]
        for step in reversed(candidates):
            try:
                checkpoint = self.checkpoint(step)
                if self._journal is not None:
                    self.require_history(checkpoint)
                return checkpoint
            except StorageError as error:
                reason = error
                self.report(f"checkpoint passed over: {error}")
        if not steps:
            raise StorageError(
                f"{self.folder} has no checkpoint yet: begin it again with the `prorl train` it was begun with"
            )
        raise StorageError(
            f"none of the last {len(candidates)} checkpoints in {self.folder / CHECKPOINTS} can be used (of the "
            f"oldest of them: {reason}); restore the damaged file from a copy, start a new run, or branch one "
            "from an older checkpoint (prorl train --branch RUN@STEP)"
        )

    def require_history(self, checkpoint: Checkpoint) -> None:
        """StorageError unless journal and reference are whole and those that led to this checkpoint."""
        chain = verify_lines(self.folder / JOURNAL, checkpoint.journal_size)
        if (chain.size, chain.hash) != (checkpoint.journal_size, checkpoint.journal_hash):
            raise StorageError(f"{self.folder / JOURNAL} is not the journal that led to {checkpoint.path}")
        if reference := checkpoint.state.get("reference"):
            path = self.reference_folder(reference["name"])
            if verify(path).digest != reference["hash"]:
                raise StorageError(f"{path} is not the reference that {checkpoint.path} goes on with")

    def checkpoint(self, step: int) -> Checkpoint:
        """The checkpoint of one step, every hash checked; StorageError if it is missing or damaged."""
        self.finish_writing()
        path = self.checkpoint_folder(step)
        if not path.exists():
            steps = ", ".join(map(str, self.checkpoints())) or "none"
            raise StorageError(f"{self.folder} has no checkpoint of step {step}; it has those of: {steps}")
        about = verify(path).about
        return Checkpoint(path=path, state=files.decode_json((path / STATE).read_bytes()), **about)

    def rewind(self, checkpoint: Checkpoint, following: Sequence[Mapping[str, Any]] = ()) -> None:
        """Return to `checkpoint`: call it on resume, before anything is written.

        The journal behind it moves to its discarded file, and goes on with `following`; damaged or later checkpoints
        and references, and what evaluations measured of later steps, move to `discarded/`; samples of steps that are
        to be made again are deleted. So no file under its own name is of training that the journal does not tell of.
        """
        self.finish_writing()
        if damage := self.journal.damage:
            self.report(f"{damage}; it is cut off, and kept in {self.journal.discarded_path.name}")
        # First: a kill in between must not give back what was undone. What is left then is known by the journal.
        cut = partial(self.journal.truncate, checkpoint.journal_size, following)
        retry_on_full_disk(cut, self.interrupt)
        for kind in (CHECKPOINTS, REFERENCES):
            for path in sorted((self.folder / kind).glob("[!.]*")):
                if not is_older(path, checkpoint.journal_size):
                    self._discard(path)
        for step, path in layout.samples(self.folder).items():
            if step >= checkpoint.step:
                path.unlink()
        for evaluation in sorted((self.folder / EVALS).glob("[!.]*")):
            paths = sorted(evaluation.glob("[!.]*"))
            later = [path for path in paths if (layout.step_of(path) or 0) > checkpoint.step]
            if not later:
                continue
            try:
                with layout.hold_lock(evaluation / LOCK, used="measured"):
                    for path in later:
                        self._discard(path)
            except StorageError as error:  # somebody measures it at this moment: it is left whole
                names = ", ".join(path.name for path in later)
                self.report(f"{error}, and delete {names}: the run gave up the training that this is of")

    def write_reference(self, name: str, write: Fill) -> str:
        """Store reference weights under a name; returns the hash of their content.

        A whole reference of this name and position in the journal is kept. On a full disk it waits for room, as the
        run cannot go on without; NoRoomError if nobody waits.
        """
        target, about = self.reference_folder(name), self.journal.position
        return retry_on_full_disk(lambda: commit(target, write, about), self.interrupt).digest

    def write_samples(self, step: int, records: Iterable[Mapping[str, Any]]) -> Path:
        """Store a step's sample responses, one JSON object per line; a step that is repeated replaces its file.

        They are for people to read: on a full disk they are only missed.
        """
        _ = self.journal
        path = self.folder / SAMPLES / f"{layout.step_name(step)}.jsonl"
        path.parent.mkdir(exist_ok=True)  # somebody may have made room by deleting it
        try:
            files.write_atomic(path, b"".join(files.encode_json(record) for record in records))
        except NoRoomError as error:
            self.report(f"samples of step {step} are not kept: {error}")
        return path

    def checkpoint_folder(self, step: int) -> Path:
        """Where the checkpoint of a step lies if there is one."""
        return self.folder / CHECKPOINTS / layout.step_name(step)

    def checkpoints(self) -> dict[int, Path]:
        """Folders of all checkpoints, whole or damaged, by step in ascending order."""
        return layout.by_step((self.folder / CHECKPOINTS).glob("*"))  # which somebody may have moved away

    def reference_folder(self, name: str) -> Path:
        """Where the reference of a name lies if there is one."""
        return self.folder / REFERENCES / name

    def _landed(self) -> int | None:
        """The step that the run was rolled back to, if no step was made since: later checkpoints are undone."""
        landed: int | None = None
        for record in read_journal(self.journal.path, self.journal.size):
            if record.get("kind") == Stepped.kind:
                landed = None
            elif record.get("action") == "roll_back":
                landed = record["step"]
        return landed

    def _discard(self, path: Path) -> None:
        target = self.folder / DISCARDED / path.relative_to(self.folder)

        def move() -> None:
            with files.explain_no_room(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.is_dir():  # of an earlier return
                    shutil.rmtree(target)
                shutil.move(path, target)  # which may lie on another disk, linked to

        retry_on_full_disk(move, self.interrupt)
        self.report(f"{path} is not part of what the run continues from; moved to {target}")
