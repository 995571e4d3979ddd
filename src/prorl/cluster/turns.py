"""Learner and engines that share GPUs take turns, as do those that load models; neither shows above the seam.

Invariant: a party that has left computes nothing, and holds next to nothing of a GPU's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Party(Protocol):
    """One of those that take turns. It asks for its turn before it computes anything."""

    def leave(self) -> None:
        """Give the memory of the GPUs back until the next turn.

        Raises:
            RuntimeError: work is in flight.
        """


Take = Callable[[Party], None]
"""Asks for a turn: afterwards the party has the GPUs to itself, until another one asks."""


class Turns:
    """GPUs that one party has at a time."""

    def __init__(self) -> None:
        self._holder: Party | None = None

    def take(self, party: Party) -> None:
        """Let a party have the GPUs; nothing happens where it has them already. Raises as `Party.leave`."""
        if party is self._holder:
            return
        if self._holder is not None:
            self._holder.leave()
        self._holder = party


def apart(_party: Party) -> None:
    """On GPUs of one's own it is always one's turn."""


def one_of_each_node(nodes: Sequence[str]) -> list[list[int]]:
    """Processes, given the node of each, in waves: of every node the first, then the second where there is one."""
    earlier = [nodes[:at].count(node) for at, node in enumerate(nodes)]
    return [[at for at, wave in enumerate(earlier) if wave == now] for now in sorted(set(earlier))]
