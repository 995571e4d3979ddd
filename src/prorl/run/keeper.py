"""What a step boundary owes to disk and machine: checkpoints, incidents, and a look at memory and space.

Saving never changes what is computed, except that with `max_staleness` nothing is sampled ahead of a checkpoint: the
learner is copied at the boundary and written beside the next steps. A full disk costs checkpoints, each said, and
never the run.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from prorl.control.events import Warned
from prorl.control.state import RunState, to_json
from prorl.envs.files import NoRoomError, StorageError, free_bytes, readable
from prorl.run import sealed
from prorl.run.guards import Guard, GuardRules, take_sample
from prorl.run.recorder import Recorder
from prorl.run.retention import Retention, prune
from prorl.run.store import RunStore
from prorl.stopwatch import Pulse, Stopwatch, unheard
from prorl.types import Learner

MARGIN = 1.1  # room wanted, in checkpoints like the newest: journal, samples and scalars grow too

LONGEST = 300  # characters of a failure in the journal; all of it goes to standard error

Alarm = Callable[[], None]
"""Asks the loop to stop, saved, for want of memory."""

Incidents = Callable[[], Sequence[str]]
"""What failed in the backend and was mended since this was last asked, as sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRules:
    """When to save besides what the director says, and what to keep."""

    minutes: float = 0.0  # a checkpoint at least so often; 0: by steps alone
    retry_seconds: float = 60.0  # before another try after one that failed
    retention: Retention = field(default_factory=Retention)
    guard: GuardRules = field(default_factory=GuardRules)


class Keeper:
    """Saves a run and watches over its machine. All that it remembers is about this process, not about the run."""

    def __init__(
        self,
        store: RunStore,
        learner: Learner,
        recorder: Recorder,
        rules: KeepRules | None = None,
        *,
        alarm: Alarm = lambda: None,
        incidents: Incidents = lambda: (),
        pulse: Pulse = unheard,
    ) -> None:
        self._store, self._learner, self._recorder = store, learner, recorder
        self._rules = rules or KeepRules()
        self._guard = Guard(self._rules.guard)
        self._alarm, self._incidents, self._pulse = alarm, incidents, pulse
        self._looked: int | None = None
        self._saved = time.monotonic()
        self._retry: float | None = None  # when to try again what failed

    def keep(self, state: RunState, *, due: bool, good_step: int, patient: bool = False) -> None:
        """Save at this boundary if a checkpoint is due, by step or by clock, or is owed since the disk was full.

        What is due by the clock alone waits for a later boundary if `patient`. The end of a run, and a run that is
        paused, are saved before this returns. The newest checkpoint of `good_step` or before is kept, as a detector
        in doubt may yet roll back to it.

        Raises:
            NoRoomError: the end of the run cannot be saved.
        """
        self._tell(state)
        self._look(state)
        self._notice(state)
        if state.stopped is not None:
            self._save(state, good_step)
            self._store.finish_writing()
            failure = self._store.failed_write()
            if failure is not None:
                raise failure
        elif due or (self.late and not patient):
            try:
                self._save(state, good_step)
            except NoRoomError as error:
                self._postpone(state, error)
            if state.paused is not None:
                self._store.finish_writing()

    @contextmanager
    def last_words(self) -> Iterator[None]:
        """Journal a failure that ends the run while inside, after what had been mended before it.

        Both lie behind the checkpoint that the run is taken up from, which takes them over.
        """
        try:
            yield
        except Exception as error:
            with suppress(StorageError, OSError):  # what failed first is what counts
                state = self._recorder.state
                self._tell(state)
                self._warn(state, f"ended by {type(error).__name__}: {_shortened(error)}")
            raise

    @property
    def late(self) -> bool:
        """Whether a checkpoint is due by the clock, or owed since the disk was full."""
        now = time.monotonic()
        if self._retry is not None:
            return now >= self._retry
        return bool(self._rules.minutes) and now - self._saved >= 60 * self._rules.minutes

    def _save(self, state: RunState, good_step: int) -> None:
        store, retention = self._store, self._rules.retention
        with Stopwatch(self._pulse).phase("save"):
            store.finish_writing()  # before the copy is taken, so that there are never two
            self._notice(state)
            _require_room(store)
            position = store.journal.size
            live = state.reference.name if state.reference else None
            best = state.best_step
            store.begin_checkpoint(
                state.step,
                to_json(state),
                self._learner.snapshot(),
                lambda: prune(store, retention, position=position, best=best, good=good_step, live=live),
            )
        self._saved, self._retry = time.monotonic(), None

    def _notice(self, state: RunState) -> None:
        """See how the last write beside the training ended; only for want of room is it tried again."""
        failure = self._store.failed_write()
        if isinstance(failure, NoRoomError):
            self._postpone(state, failure)
        elif failure is not None:
            raise failure

    def _postpone(self, state: RunState, error: NoRoomError) -> None:
        if not self._store.checkpoints():  # a run that cannot even begin to be saved is not worth its time
            raise error
        seconds = self._rules.retry_seconds
        self._retry = time.monotonic() + seconds
        self._warn(state, f"not saved, the run goes on and tries again in {seconds:.0f} s: {error}")

    def _look(self, state: RunState) -> None:
        if state.step == self._looked:  # the same boundary again: of a paused run
            return
        self._looked = state.step
        for finding in self._guard.findings(take_sample(state.step, self._store.folder)):
            self._warn(state, finding.text)
            if finding.stop:
                self._alarm()

    def _tell(self, state: RunState) -> None:
        for text in self._incidents():
            self._warn(state, text)

    def _warn(self, state: RunState, text: str) -> None:
        self._recorder.record(Warned(step=state.step, text=text))


def _shortened(error: Exception) -> str:
    return textwrap.shorten(str(error), LONGEST, placeholder=" …")


def _require_room(store: RunStore) -> None:
    """Check that the disk has room for a checkpoint like the newest one.

    Raises:
        NoRoomError: it has not.
    """
    paths = store.checkpoints()
    try:
        size = sealed.read_manifest(paths[-1]).size if paths else 0
    except StorageError:  # damaged: it says nothing about the next one
        return
    free = free_bytes(store.folder)
    if free < MARGIN * size:
        raise NoRoomError(
            f"no space left for a checkpoint of {readable(size)}: the disk of {store.folder} has {readable(free)}; "
            "free some space or move the run to a larger disk, then resume"
        )
