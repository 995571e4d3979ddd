"""The one place where the state of a run changes: an event is journalled, folded into the state, and shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prorl.control.events import Event, to_record
from prorl.control.state import RunState, evolve
from prorl.envs.files import Hold, give_up, insist
from prorl.run.journal import Journal

Watcher = Callable[[Event, RunState], None]


class Recorder:
    """Owns the journal and the current state. Watchers (console, TensorBoard) see events and change nothing."""

    def __init__(
        self, journal: Journal, state: RunState, watchers: Sequence[Watcher] = (), *, hold: Hold = give_up
    ) -> None:
        """`hold` waits where a full disk has no room for an event, without which the run cannot go on."""
        self._journal = journal
        self._hold = hold
        self._watchers = tuple(watchers)
        self.state = state

    def record(self, event: Event) -> RunState:
        """Journal an event (it is on disk when this returns), then fold it into the state and show it.

        Raises:
            NoRoomError: from `hold`; nothing happened.
        """
        insist(lambda: self._journal.append(to_record(event)), self._hold)
        self.state = evolve(self.state, event)
        for watch in self._watchers:
            watch(event, self.state)
        return self.state
