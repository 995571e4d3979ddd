"""Where a run's references come from: read from its journal alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prorl.control.events import Event, ReferenceReset, Resumed, Started
from prorl.run import sealed
from prorl.run.checkpoints import FIRST_REFERENCE
from prorl.run.layout import REFERENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class Born:
    """One reference and why it exists."""

    name: str
    step: int
    reason: str
    parent: str | None
    source_step: int  # whose policy it is
    optimizer: str  # what became of the optimizer's state at its birth
    hash: str


def references(events: Iterable[Event]) -> list[Born]:
    """Every reference the run ever held, in order of birth."""
    found: list[Born] = []
    for event in events:
        match event:
            case Started(reference_hash=str(digest)):
                found.append(
                    Born(
                        name=FIRST_REFERENCE,
                        step=0,
                        reason="start",
                        parent=None,
                        source_step=0,
                        optimizer="new",
                        hash=digest,
                    )
                )
            case ReferenceReset():
                found.append(
                    Born(
                        name=event.name,
                        step=event.step,
                        reason=event.reason,
                        parent=event.parent,
                        source_step=event.source_step,
                        optimizer=event.optimizer,
                        hash=event.hash,
                    )
                )
            case _:
                pass
    return found


def branches(events: Iterable[Event]) -> list[str]:
    """The runs that this one branched from as `run@step`, the oldest first."""
    return [event.branched_from for event in events if isinstance(event, Resumed) and event.branched_from]


def condition(folder: Path, born: Born) -> str:
    """Whether a reference is still on disk as it was born: `stored`, `deleted` or `damaged`."""
    path = folder / REFERENCES / born.name
    if not path.exists():
        return "deleted"
    if not sealed.has_all_files(path) or sealed.read_manifest(path).digest != born.hash:
        return "damaged"
    return "stored"


def tree(born: Iterable[Born], notes: Mapping[str, str]) -> Iterator[str]:
    """The family tree as lines; `notes` adds a word to a reference by name."""
    children: dict[str | None, list[Born]] = {}
    for one in born:
        children.setdefault(one.parent, []).append(one)

    def below(parent: str | None, depth: int) -> Iterator[str]:
        for one in children.get(parent, []):
            twig = "   " * (depth - 1) + "└─ " if depth else ""
            policy = "the base" if one.parent is None else f"the policy of step {one.source_step}"
            yield (
                f"{twig}{one.name}  born at step {one.step} ({one.reason}) from {policy}, optimizer {one.optimizer}, "
                f"hash {one.hash[:12]}, {notes[one.name]}"
            )
            yield from below(one.name, depth + 1)

    yield from below(None, 0)
