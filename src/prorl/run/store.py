"""The run directory: who may write to it, what survives, and how a run is begun, resumed, rolled back and branched.

One trainer at a time holds the lock and only it writes; readers need no lock. Every checkpoint and reference stores
length and hash of the journal that led to it, so a run that returns to a checkpoint checks that journal and sets
aside all that came later: journal and weights never tell two different stories.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prorl.control.events import Event, Resumed, Started, Warned, from_record
from prorl.control.state import RunState, fold, from_json
from prorl.envs.files import (
    NoRoomError,
    StorageError,
    decode_json,
    encode_json,
    explain_no_room,
    fsync_tree,
    temporary_name,
    write_atomic,
)
from prorl.ports import Learner
from prorl.run.checkpoint import commit, has_all_files, is_committed, is_older, read_manifest, tidy, verify
from prorl.run.journal import EventLog, Journal, Watcher, verify_lines
from prorl.run.layout import (
    CHECKPOINTS,
    CONFIG,
    DISCARDED,
    EVALS,
    JOURNAL,
    LOCK,
    REFERENCES,
    SAMPLES,
    STATE,
    TOKENIZER,
    hold_lock,
    prepare,
    require_run,
)
from prorl.run.process import Interrupt, insist

Report = Callable[[str], None]
Fill = Callable[[Path], None]

MAY_REDO = 250  # steps that may be computed again without anybody's asking
FIRST_REFERENCE = "ref_000"
PROBLEMS = "problems"
BASE_RESULTS = ("measurement/rules.json", "measurement/base.parquet")

_ESSENTIAL = {
    TOKENIZER: "the files in tokenizer/ are not those it was started with: restore them",
    PROBLEMS: "its tasks no longer ask the problems it was started with: restore the code or data of the tasks",
}
_STEP = re.compile(r"step_(\d+)")
_MEASURED = re.compile(r"step_(\d+)\.(?:parquet|parts)")
_REFERENCE = re.compile(r"\w[\w.-]*", re.ASCII)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was found whole."""

    step: int
    path: Path
    state: dict[str, Any]
    journal_size: int  # bytes of the journal that led to it, and ...
    journal_hash: str  # ... its running hash


class RunStore:
    """One run directory. Use it as a context manager to hold the lock; everything that writes needs that.

    `report` receives one sentence about each thing that went wrong but could be worked around; with `interrupt`, what
    the run cannot go on without waits for room on a full disk.
    """

    def __init__(
        self, folder: Path, *, report: Report = _LOG.warning, interrupt: Interrupt | None = None
    ) -> None:
        """Prefer `create` and `open`, which check the folder."""
        self.folder, self.report, self.interrupt = folder, report, interrupt
        # A thread, not a process: it dies with the trainer, so that no orphan can put a checkpoint in place behind
        # the back of whoever resumed the run.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="prorl-writer")
        self._writing: Future[None] | None = None
        self._journal: Journal | None = None
        self._release = ExitStack()

    @classmethod
    def create(
        cls,
        folder: Path,
        config: Mapping[str, Any],
        *,
        report: Report = _LOG.warning,
        interrupt: Interrupt | None = None,
    ) -> Self:
        """Make the directory of a new run and store its resolved config.

        A run of the same config that was killed before its first checkpoint has nothing to lose and makes way.

        Raises:
            StorageError: the folder already holds a run, or there is no room.
        """
        prepare(folder, config)
        return cls(folder, report=report, interrupt=interrupt)

    @classmethod
    def open(cls, folder: Path, *, report: Report = _LOG.warning, interrupt: Interrupt | None = None) -> Self:
        """Open the directory of an existing run.

        Raises:
            StorageError: there is no run in this folder.
        """
        require_run(folder)
        return cls(folder, report=report, interrupt=interrupt)

    def __enter__(self) -> Self:
        """Take the lock, clean up after a killed trainer, open the journal.

        Raises:
            StorageError: another process trains this run.
        """
        with ExitStack() as stack:
            stack.enter_context(hold_lock(self.folder / LOCK))
            for name in (CHECKPOINTS, REFERENCES, SAMPLES):
                tidy(self.folder / name)
            self._journal = Journal(self.folder / JOURNAL)
            stack.callback(self._journal.close)
            self._release = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish_writing()
        self._journal = None
        self._release.close()

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config that the run was created with."""
        path = self.folder / CONFIG
        try:
            config = decode_json(path.read_bytes())
        except ValueError as error:
            raise StorageError(f"{path} is not JSON ({error}): undo what was changed in it") from error
        if not isinstance(config, dict):
            raise StorageError(f"{path} holds no recipe: undo what was changed in it")
        return config

    @property
    def journal(self) -> Journal:
        """The journal, open for appending. Readers without the lock use `RunHistory`."""
        if self._journal is None:
            raise RuntimeError("this run is not locked: write inside `with store:`")
        return self._journal

    def write_checkpoint(
        self, step: int, state: Mapping[str, Any], write: Fill, *, position: Mapping[str, Any] | None = None
    ) -> Path:
        """Store driver state and whatever `write` saves into the folder it is given, all or nothing.

        `position` says size and hash of the journal that led to `state`, by default all of it. A whole checkpoint of
        this step at this position is kept and `write` is not called; any other of this step is replaced.

        Raises:
            NoRoomError: earlier checkpoints are untouched.
        """
        target = self.checkpoint_folder(step)
        about = {"step": step, **(self._position() if position is None else position)}

        def fill(folder: Path) -> None:
            write(folder)
            write_atomic(folder / STATE, encode_json(state, indent=1))

        if not is_committed(target, about):
            commit(target, fill, about)
        return target

    def begin_checkpoint(
        self, step: int, state: Mapping[str, Any], write: Fill, then: Callable[[], None]
    ) -> None:
        """Like `write_checkpoint`, but beside the training, and `then` is called once the checkpoint is safe.

        Waits for the write before. What goes wrong is said by `failed_write`.
        """
        position = self._position()
        self.finish_writing()

        def job() -> None:
            self.write_checkpoint(step, state, write, position=position)
            then()

        self._writing = self._writer.submit(job)

    def finish_writing(self) -> None:
        """Wait until no write is under way."""
        if self._writing is not None:
            self._writing.exception()

    def failed_write(self) -> Exception | None:
        """What made the last write beside the training fail; told once, and not before it has ended."""
        if self._writing is None or not self._writing.done():
            return None
        failure, self._writing = self._writing.exception(), None
        if failure is not None and not isinstance(failure, Exception):
            raise failure
        return failure

    def latest_checkpoint(self, *, up_to: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that is whole, every hash checked; each damaged one passed over is reported.

        Under the lock it is one that the run can go on from: `require_history` holds too. `up_to` is the last step
        that counts. None means that the run has written none yet.

        Raises:
            StorageError: there are checkpoints, and none of those within `MAY_REDO` steps of the newest will do. To
                go further back would throw weeks away without asking.
        """
        self.finish_writing()
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
        if steps:
            raise StorageError(
                f"none of the last {len(candidates)} checkpoints in {self.folder / CHECKPOINTS} can be used (of the "
                f"oldest of them: {reason}); restore the damaged file from a copy, start a new run, or branch one "
                "from an older checkpoint (prorl train --branch RUN@STEP)"
            )
        return None

    def require_history(self, checkpoint: Checkpoint) -> None:
        """Check what a run needs besides a checkpoint to go on from it: the journal up to it, and its reference.

        Raises:
            StorageError: either is damaged, or is not the one that led to this checkpoint.
        """
        chain = verify_lines(self.folder / JOURNAL, checkpoint.journal_size)
        if (chain.size, chain.hash) != (checkpoint.journal_size, checkpoint.journal_hash):
            raise StorageError(f"{self.folder / JOURNAL} is not the journal that led to {checkpoint.path}")
        if reference := checkpoint.state.get("reference"):
            path = self.reference_folder(reference["name"])
            if verify(path).digest != reference["hash"]:
                raise StorageError(f"{path} is not the reference that {checkpoint.path} goes on with")

    def checkpoint(self, step: int) -> Checkpoint:
        """The checkpoint of one step, every hash checked.

        Raises:
            StorageError: missing or damaged; the message names the steps there are.
        """
        self.finish_writing()
        path = self.checkpoint_folder(step)
        if not path.exists():
            steps = ", ".join(map(str, self.checkpoints())) or "none"
            raise StorageError(f"{self.folder} has no checkpoint of step {step}; it has those of: {steps}")
        about = verify(path).about
        return Checkpoint(path=path, state=decode_json((path / STATE).read_bytes()), **about)

    def has_checkpoint(self, step: int) -> bool:
        """Whether the files of one step's checkpoint are all there; a full disk may have cost it."""
        self.finish_writing()
        return has_all_files(self.checkpoint_folder(step))

    def checkpoint_path(self, step: int) -> Path:
        """Where the files of one step's checkpoint are, every hash checked.

        Raises:
            StorageError: missing or damaged.
        """
        return self.checkpoint(step).path

    def rewind(self, checkpoint: Checkpoint | None) -> list[dict[str, Any]]:
        """Return to `checkpoint` (None: to the start): call it on resume, before anything is written.

        The journal behind it moves to its discarded file, and is returned; damaged or later checkpoints and
        references, and what evaluations measured of later steps, move to `discarded/`, where a later one of the same
        name replaces an earlier one. So no file under its own name is of training that the journal does not tell of.

        Raises:
            StorageError: the journal does not reach the checkpoint.
        """
        self.finish_writing()
        if self.journal.damage is not None:
            self.report(
                f"{self.journal.damage}; it is cut off, and kept in {self.journal.discarded_path.name}"
            )
        position = checkpoint.journal_size if checkpoint else 0
        discarded = self.journal.truncate(position)
        for kind in (CHECKPOINTS, REFERENCES):
            for path in sorted((self.folder / kind).glob("[!.]*")):
                if not is_older(path, position):
                    self._discard(path)
        for evaluation in sorted((self.folder / EVALS).glob("[!.]*")):
            self._discard_measured(evaluation, checkpoint.step if checkpoint else 0)
        return discarded

    def write_reference(self, name: str, write: Fill) -> str:
        """Store reference weights under a name; returns the hash of their content.

        A whole reference of this name and position in the journal is kept and `write` is not called. On a full disk
        it waits for room, as the run cannot go on without.

        Raises:
            ValueError: the name is no plain file name.
            NoRoomError: the disk is full, and nobody waits.
        """
        target, about = self.reference_folder(name), self._position()
        if is_committed(target, about):
            return read_manifest(target).digest
        return insist(lambda: commit(target, write, about).digest, self.interrupt)

    def write_samples(self, step: int, records: Iterable[Mapping[str, Any]]) -> Path:
        """Store a step's sample responses, one JSON object per line; a step that is repeated replaces its file.

        They are for people to read: on a full disk they are only missed.
        """
        _ = self.journal
        path = self.folder / SAMPLES / f"step_{step:06d}.jsonl"
        try:
            write_atomic(path, b"".join(encode_json(record) for record in records))
        except NoRoomError as error:
            self.report(f"samples of step {step} are not kept: {error}")
        return path

    def checkpoint_folder(self, step: int) -> Path:
        """Where the checkpoint of a step lies if there is one."""
        return self.folder / CHECKPOINTS / f"step_{step:06d}"

    def checkpoints(self) -> dict[int, Path]:
        """Folders of all checkpoints, whole or damaged, by step in ascending order."""
        paths = (self.folder / CHECKPOINTS).iterdir()
        return dict(sorted((int(found[1]), path) for path in paths if (found := _STEP.fullmatch(path.name))))

    def reference_folder(self, name: str) -> Path:
        """Where the reference of a name lies if there is one.

        Raises:
            ValueError: the name is no plain file name.
        """
        if not _REFERENCE.fullmatch(name):
            raise ValueError(f"reference name {name!r}: use letters, digits, '_', '-' and '.'")
        return self.folder / REFERENCES / name

    def _position(self) -> dict[str, Any]:
        """What a checkpoint or reference remembers of the journal."""
        return {"journal_size": self.journal.size, "journal_hash": self.journal.hash}

    def _discard_measured(self, evaluation: Path, step: int) -> None:
        """Set aside what was measured, or begun to be, of checkpoints later than `step`."""
        found = ((_MEASURED.fullmatch(path.name), path) for path in sorted(evaluation.glob("step_*")))
        later = [path for match, path in found if match and int(match[1]) > step]
        if not later:
            return
        try:
            with hold_lock(evaluation / LOCK, used="measured"):
                for path in later:
                    self._discard(path)
        except StorageError as error:  # somebody measures it at this moment: it is left whole
            names = ", ".join(path.name for path in later)
            self.report(f"{error}, and delete {names}: the run gave up the training that this is of")

    def _discard(self, path: Path) -> None:
        target = self.folder / DISCARDED / path.relative_to(self.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)
        self.report(f"{path} is not part of what the run continues from; moved to {target}")


def begin(
    store: RunStore,
    learner: Learner,
    *,
    config_hash: str,
    with_reference: bool,
    environment: Mapping[str, str] | None = None,
    watchers: Sequence[Watcher] = (),
) -> EventLog:
    """Begin a run: its first reference is the model it starts from."""
    log = EventLog(store.journal, RunState(), watchers, interrupt=store.interrupt)
    reference = store.write_reference(FIRST_REFERENCE, learner.save_reference) if with_reference else None
    log.record(Started(config_hash=config_hash, reference_hash=reference, surroundings=environment or {}))
    return log


def resume(
    store: RunStore,
    learner: Learner,
    checkpoint: Checkpoint,
    *,
    config_hash: str,
    environment: Mapping[str, str] | None = None,
    branched_from: str | None = None,
    after: str = "",
    watchers: Sequence[Watcher] = (),
) -> EventLog:
    """Return a run to a checkpoint: journal, driver state, policy, optimizer and reference.

    `environment` is what besides recipe and checkpoint the bits of a result depend on, `after` how the process before
    this one ended, where somebody knows. Warnings behind the checkpoint are journalled again: what happened to
    processes and machines happened whatever is computed anew.

    Raises:
        StorageError: the run's recipe was edited, journal and checkpoint contradict each other, or what the run
            cannot go on without (its tokenizer, its problems) is not what it was.
    """
    state, now = _state_of(checkpoint), environment or {}
    if branched_from is None:
        if state.config_hash != config_hash:
            raise StorageError(
                f"{store.folder / CONFIG} is not the recipe the run was started under: undo the edit, or "
                f"change the recipe on a branch with `prorl train --branch {store.folder.name}`"
            )
        require_same(_recorded(store), now)
    damage = store.journal.damage
    state, told_again = _return_to(store, learner, checkpoint)
    before = _recorded(store)  # of who wrote the checkpoint; what came later was set aside
    log = EventLog(store.journal, state, watchers, interrupt=store.interrupt)
    log.record(
        Resumed(step=state.step, config_hash=config_hash, branched_from=branched_from, surroundings=now)
    )
    texts = (
        *([f"taken up again, as {after}"] if after else []),
        *([f"{damage}: what lay behind step {state.step} is set aside"] if damage else []),
        *changes(before, now),
    )
    warnings = [event for event in told_again if isinstance(event, Warned)]
    for warned in dict.fromkeys((*warnings, *(Warned(step=state.step, text=text) for text in texts))):
        log.record(warned)
    return log


def roll_back(store: RunStore, learner: Learner, log: EventLog, *, up_to: int) -> None:
    """Return a running run to its newest whole checkpoint of step `up_to` or before, as `resume` would.

    A branch may hold none that old; then it is the oldest. What came later is set aside: the journal goes on from
    there, and so does `log`.

    Raises:
        StorageError: there is no checkpoint, or journal and checkpoint contradict each other.
    """
    checkpoint = store.latest_checkpoint(up_to=max(up_to, min(store.checkpoints(), default=0)))
    if checkpoint is None:
        raise StorageError(f"{store.folder} has no checkpoint to roll back to; start a new run")
    log.state, told_again = _return_to(store, learner, checkpoint)
    for event in told_again:
        log.record(event)


def branch(parent: RunStore, folder: Path, checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
    """Make the directory of a branch: what led to `checkpoint`, and nothing that came later.

    The best validation's checkpoint and the base go with it, if the parent still has them. The parent's lock is not
    needed: what is copied is never changed, at most deleted, and then this fails.

    Raises:
        StorageError: the journal up to there or the reference is damaged, there is no room, or something was deleted
            meanwhile; what was begun is removed.
    """
    best = checkpoint.state["best_step"]
    steps = {0, checkpoint.step, checkpoint.step if best is None else best}
    references = sorted((parent.folder / REFERENCES).glob("[!.]*"))
    chosen = [
        *(path for path in map(parent.checkpoint_folder, sorted(steps)) if has_all_files(path)),
        *(path for path in references if is_older(path, checkpoint.journal_size)),
        parent.folder / TOKENIZER,
        *(parent.folder / EVALS / name for name in BASE_RESULTS),
    ]
    aside = temporary_name(folder)
    try:
        parent.require_history(checkpoint)
        with explain_no_room(folder):
            for name in (CHECKPOINTS, REFERENCES, SAMPLES, EVALS):
                (aside / name).mkdir(parents=True)
            for path in chosen:
                target = aside / path.relative_to(parent.folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    shutil.copytree(path, target)
                elif path.exists():
                    shutil.copyfile(path, target)
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


def require_same(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check what a run cannot go on without: its problems and its tokenizer.

    Raises:
        StorageError: it changed since the run was started; the message says what to do.
    """
    for name, remedy in _ESSENTIAL.items():
        if name in before and name in now and before[name] != now[name]:
            raise StorageError(
                f"the run cannot go on exactly, as {remedy}, or go on under what there is now as a new run with "
                "`prorl train --branch`"
            )


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """One sentence about everything that rounds differently now than when it was recorded."""
    for name in sorted((before.keys() & now.keys()) - _ESSENTIAL.keys()):
        if before[name] != now[name]:
            yield (
                f"{name} was {before[name]} and is now {now[name]}: from here on results may differ from those of "
                "an uninterrupted run in their last bits"
            )


def hash_files(folder: Path) -> str:
    """One hash over names and contents of the files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\n{path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


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
    """The environment of whoever trained this run last."""
    starts = (event for event in _events(store) if isinstance(event, (Started, Resumed)))
    recorded = [event.surroundings for event in starts if event.surroundings]
    return recorded[-1] if recorded else {}


def _events(store: RunStore) -> Iterator[Event]:
    try:
        yield from map(from_record, store.journal.read())
    except ValueError as error:
        raise StorageError(f"{store.journal.path} cannot be followed: {error}") from error
