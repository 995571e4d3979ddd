"""Where the seconds of a step go, by named phase. Times are reported and never decide anything."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

BETWEEN = "between"
WAITING = "waiting"  # phase of a trainer that waits for verifiers, an operator or the disk: no deadline

Pulse = Callable[[str], None]
"""Is told the name of a phase whenever one begins, and `BETWEEN` when it ends. Each call is a sign of life."""


def unheard(*_phase: str) -> None:
    """The `Pulse` of whoever is not watched, or any other sign of life."""


class Stopwatch:
    """Adds up wall-clock seconds per phase; phases do not nest."""

    def __init__(self, pulse: Pulse = unheard, *, within: str | None = None) -> None:
        """`within` is the one name under which `pulse` hears of every phase, as of those of a validation."""
        self._pulse, self._within = pulse, within
        self._started = time.perf_counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[Callable[[], None]]:
        """Count what runs inside as `name`; each call of what it yields is a sign of life."""
        beat = partial(self._pulse, self._within or name)
        beat()
        begin = time.perf_counter()
        try:
            yield beat
        finally:
            self._seconds[name] += time.perf_counter() - begin
            self._pulse(BETWEEN)

    def seconds(self) -> dict[str, float]:
        """Seconds per phase so far, the rest as `other`, and `total` since creation."""
        total = time.perf_counter() - self._started
        return {**self._seconds, "other": total - sum(self._seconds.values()), "total": total}
