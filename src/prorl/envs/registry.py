"""Every task by name. Importing this imports neither torch nor reasoning-gym."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from prorl.envs.base import ProceduralTask
from prorl.envs.families import gym
from prorl.envs.families.code import ListSynthesis, ListTrace
from prorl.envs.families.gym_library import HELD_OUT_9, LIBRARY_TASKS
from prorl.envs.families.instruct import WordList
from prorl.envs.families.logic import Countdown, GraphColouring, TruthTable
from prorl.envs.families.logic_held_out import Blicket, BoxLine
from prorl.envs.families.math import Arithmetic, LinearEquation, ModularProduct
from prorl.envs.families.one_liner import OneLiner
from prorl.envs.families.stem import PhysicalLaw
from prorl.envs.reasoning_gym import PREFIX

_CLASSES: tuple[type[ProceduralTask], ...] = (
    Arithmetic,
    LinearEquation,
    ModularProduct,
    ListTrace,
    ListSynthesis,
    OneLiner,
    PhysicalLaw,
    GraphColouring,
    TruthTable,
    Countdown,
    BoxLine,
    Blicket,
    WordList,
    gym.ChainSum,
    gym.DecimalChainSum,
    gym.Products,
    gym.Lcm,
    gym.FractionSimplification,
    gym.BaseConversion,
    gym.SpellBackward,
    gym.NumberFiltering,
    gym.TimeIntervals,
    gym.CalendarArithmetic,
    gym.SimpleGeometry,
    gym.NumberSequence,
    gym.FamilyRelationships,
    gym.KnightsKnaves,
    *LIBRARY_TASKS,
)

TASKS: Mapping[str, type[ProceduralTask]] = MappingProxyType({task.name: task for task in _CLASSES})

TRAINED_96 = tuple(name for name in TASKS if name.startswith(PREFIX) and name not in HELD_OUT_9)
"""The tasks of reasoning-gym that ProRL trained on: all but `HELD_OUT_9`, which the library had not yet."""


def task_names() -> tuple[str, ...]:
    """All names, own tasks first, in a fixed order."""
    return tuple(TASKS)


def make_task(name: str, levels: Mapping[int, float] | None = None) -> ProceduralTask:
    """The task called `name`, drawing its levels by the given weights; default: all trained levels equally often.

    Raises:
        ValueError: an unknown name, or a level that the task does not train.
    """
    if name not in TASKS:
        near = get_close_matches(name, TASKS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TASKS)}"
        raise ValueError(f"no task {name!r}; {hint}")
    return TASKS[name](levels)
