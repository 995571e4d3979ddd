"""Which runs are one thing measured several times: those whose recipes differ in nothing but the seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prorl.config.schema import RUNTIME_SECTIONS as SECTIONS
from prorl.lab.report.style import PALETTE
from prorl.run.history import RunHistory

_NO_DIFFERENCE = ("seed", "name", *SECTIONS)
LONGEST = 40  # characters of a label


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One colour of an overlay."""

    label: str
    color: str
    runs: tuple[RunHistory, ...]


def groups(runs: Sequence[RunHistory]) -> list[Group]:
    """The runs by recipe, in the order given."""
    return [
        Group(label=_label(alike), color=PALETTE[at % len(PALETTE)], runs=tuple(alike))
        for at, positions in enumerate(repetitions([run.config for run in runs]))
        for alike in [[runs[position] for position in positions]]
    ]


def repetitions(recipes: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
    """Positions of the recipes that differ only in their seed, in order of first appearance.

    Runs of one recipe and one seed are no independent repetitions, so they are never in one group; nor is a run whose
    recipe could not be read.
    """
    found: list[tuple[str, dict[Any, int]]] = []
    for position, recipe in enumerate(recipes):
        key, seed = json.dumps(told(recipe), sort_keys=True), recipe.get("seed")
        alike = (seeds for other, seeds in found if other == key and seed not in seeds)
        group = next(alike, None) if recipe else None
        if group is None:
            found.append((key, {seed: position}))
        else:
            group[seed] = position
    return [tuple(seeds.values()) for _, seeds in found]


def told(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What makes an experiment: a recipe without its name, its seed and how its process is cared for."""
    return {key: value for key, value in recipe.items() if key not in _NO_DIFFERENCE}


def _label(runs: Sequence[RunHistory]) -> str:
    names = ", ".join(run.name for run in runs)
    return names if len(names) <= LONGEST else f"{runs[0].name} … {runs[-1].name} ({len(runs)} seeds)"
