"""Where the seconds of a step go, by named phase. Times are reported and never decide anything."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up wall-clock seconds per phase; phases do not nest."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what runs inside as `name`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - begin

    def seconds(self) -> dict[str, float]:
        """Seconds per phase so far, the rest as `other`, and `total` since creation."""
        total = time.perf_counter() - self._started
        return {**self._seconds, "other": total - sum(self._seconds.values()), "total": total}
