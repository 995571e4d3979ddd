"""One write at a time beside the training.

A thread, not a process: it dies with the trainer, so no orphan can put a checkpoint in place behind the back of
whoever took the run up again.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread


class Writer:
    """Runs jobs in a thread, one after the other. A job's error waits for `take_error`."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: Exception | None = None

    def begin(self, job: Callable[[], object]) -> None:
        """Start a job as soon as the one before has ended."""
        self.finish()
        self._thread = Thread(target=self._run, args=(job,), name="prorl-writer", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a job is running."""
        return self._thread is not None and self._thread.is_alive()

    def finish(self) -> None:
        """Wait for the running job, if there is one."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def take_error(self) -> Exception | None:
        """What made the last job that ended fail; it is told once."""
        if self.busy:
            return None
        error, self._error = self._error, None
        return error

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception as error:
            self._error = error
