"""The wish to stop: Ctrl-C is heard between steps, so that a run ends saved and not torn."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from prorl.watch.console import Console


class Interrupt:
    """Turns the first Ctrl-C or SIGTERM into a wish that the loop grants at the next step; the second one kills."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._wished = False

    def __call__(self) -> bool:
        """Whether somebody asked to stop."""
        return self._wished

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
