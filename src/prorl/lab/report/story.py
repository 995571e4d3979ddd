"""A run as its files tell it up to some step: read without a lock, so a trainer may go on meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from prorl.control.events import Evaluated, Event, Stepped
from prorl.envs.files import StorageError, decode_json
from prorl.run.journal import read_events
from prorl.run.layout import CONFIG, JOURNAL

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One run: its resolved recipe and what happened."""

    folder: Path
    config: Mapping[str, Any]
    events: tuple[Event, ...]
    notes: tuple[str, ...] = ()  # what of the journal was passed over

    @property
    def name(self) -> str:
        """What the run directory is called."""
        return self.folder.resolve().name

    @property
    def step(self) -> int:
        """Completed steps."""
        return max((event.step for event in self.of(Stepped)), default=0)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def best_exam(self) -> Evaluated | None:
        """The first exam of the highest score; None where no exam was sat."""
        return max(self.of(Evaluated), key=lambda exam: exam.score, default=None)


def read_story(folder: Path, *, up_to: int | None = None) -> Story:
    """The run in `folder`, up to and with the step `up_to` if that is said.

    Raises:
        StorageError: there is no run in this folder, or its files cannot be read.
    """
    try:
        config = decode_json((folder / CONFIG).read_bytes())
        if not isinstance(config, dict):
            raise ValueError(f"{CONFIG} holds no recipe")
        events, notes = read_events(folder / JOURNAL)
    except (OSError, ValueError) as error:
        raise StorageError(f"{folder} holds no run that can be read ({error}): check the name") from error
    told = (event for event in events if up_to is None or getattr(event, "step", 0) <= up_to)
    return Story(folder=folder, config=config, events=tuple(told), notes=notes)
