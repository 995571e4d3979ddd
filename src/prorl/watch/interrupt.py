"""The wish to stop: Ctrl-C is heard between steps, so that a run ends saved and not torn."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from prorl.rollout.outage import WaitEnded
from prorl.watch.console import Console

BLINK = 0.2  # seconds between two looks at the wish while waiting


class Interrupt:
    """Turns the first Ctrl-C or SIGTERM into a wish that the loop grants at the next step; the second one kills."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._wished = False

    def __call__(self) -> bool:
        """Whether somebody asked to stop."""
        return self._wished

    def wait(self, reason: str, seconds: float) -> None:
        """Say why, unless that has been said, and let the seconds pass.

        Raises:
            WaitEnded: the wish to stop came first.
        """
        if reason:
            self._console.say(reason)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._wished:
                raise WaitEnded
            time.sleep(BLINK)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while inside."""
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(kind, self._handle) for kind in kinds]
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._wished:
            raise KeyboardInterrupt
        self._wished = True
        self._console.say("stopping after this step and saving; press Ctrl-C again to stop at once, unsaved")
