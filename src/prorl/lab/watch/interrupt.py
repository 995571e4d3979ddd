"""The wish to stop, and patience: signals are heard between steps, so that a run ends saved and not torn."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from prorl.envs.files import NoRoomError
from prorl.lab.watch.console import Console
from prorl.rollout.pipeline import WaitEnded
from prorl.run.heartbeat import WAITING
from prorl.run.supervise import INTERRUPTED, NO_MEMORY, WISHES, wishes
from prorl.stopwatch import BETWEEN, Pulse, unheard

BLINK = 0.2  # seconds between two looks at the wish while waiting
ECHO = 0.5  # seconds in which a signal again is the same one: a scheduler and the supervisor both send it
RETRY = 30.0  # seconds between two tries on a full disk


class Interrupt:
    """Turns the first Ctrl-C, SIGTERM, SIGHUP or SIGUSR1 into a wish that the loop grants at the next step.

    The second Ctrl-C ends at once. `status` is the exit status that goes with the wish.
    """

    def __init__(self, console: Console) -> None:
        self.pulse: Pulse = unheard  # of the trainer, once there is one
        self.status = INTERRUPTED
        self._console = console
        self._wished: float | None = None
        self._listening = False

    def __call__(self) -> bool:
        """Whether somebody asked to stop."""
        return self._wished is not None

    def wait(self, reason: str, seconds: float) -> None:
        """Say why, unless that has been said, and let the seconds pass.

        Raises:
            WaitEnded: the wish to stop came first.
        """
        if reason:
            self._console.say(reason)
        self.pulse(WAITING)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self():
                raise WaitEnded
            time.sleep(BLINK)
        self.pulse(BETWEEN)

    def hold(self, error: NoRoomError) -> None:
        """Wait for room on the disk: a run that goes on has more to lose than time.

        Raises:
            NoRoomError: somebody asked to stop, or the run has not begun.
        """
        if not self._listening:
            raise error
        try:
            self.wait(f"paused: {error}; trying again in {RETRY:.0f} s", RETRY)
        except WaitEnded:
            raise error from None

    def out_of_memory(self) -> None:
        """Wish to stop before the system kills somebody."""
        self._wished, self.status = time.monotonic(), NO_MEMORY

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while inside."""
        before = {kind: signal.signal(kind, self._handle) for kind in wishes()}
        self._listening = True
        try:
            yield
        finally:
            self._listening = False
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._wished is None:
            self._wished, self.status = now, WISHES[signal.Signals(number)]
            self._console.say(
                "stopping after this step and saving; press Ctrl-C again to stop at once, unsaved"
            )
        elif number == signal.SIGINT and now - self._wished > ECHO:
            raise KeyboardInterrupt
