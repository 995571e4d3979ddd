"""Tasks by name, and the function that judges all tasks of a recipe. Imports neither torch nor reasoning-gym.

A task has a name here, is offered by an installed package, or is the user's own, `FILE.py:NAME` (`extensions.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from prorl.envs.base import NO_ANSWER, ProceduralTask
from prorl.envs.datasets.prepare import DatasetTask
from prorl.envs.errors import UsageError, nearest
from prorl.envs.extensions import Extension, find, installed_tasks, load_reward, load_task
from prorl.envs.extract import THINK_CLOSE
from prorl.envs.families.chains import DigitAlgebra, OperatorChain, StrandEdits, VariableTrace
from prorl.envs.families.gym import ROWS, ReasoningGym
from prorl.envs.families.numbers import Arithmetic, Countdown, LinearEquation, PhysicalLaw
from prorl.envs.families.programs import ListSynthesis, OneLiner
from prorl.envs.families.puzzles import Blicket, BoxPushing, WordList
from prorl.envs.sandbox.sandbox import Policy
from prorl.envs.types import Problem, Task, Verdict
from prorl.envs.verifiers.programs import NeedsSandbox, OwnSandbox

_COMPACT: tuple[type[ProceduralTask], ...] = (
    *(Arithmetic, LinearEquation, ListSynthesis, OneLiner, PhysicalLaw),
    *(Countdown, BoxPushing, Blicket, WordList),
    *(OperatorChain, DigitAlgebra, VariableTrace, StrandEdits),
)

TASKS: Mapping[str, Callable[[Mapping[int, float] | None], ProceduralTask]] = MappingProxyType(
    {family.name: family for family in _COMPACT}
    | {name: partial(ReasoningGym, row) for name, row in ROWS.items()}
)
"""What makes each task, given the weights of its levels: own tasks first, in a fixed order."""


def task_names() -> tuple[str, ...]:
    """The names of all generated tasks, reasoning-gym's among them (`rg_…`), then those of installed packages."""
    return tuple(dict.fromkeys((*TASKS, *installed_tasks())))


def make_task(
    name: str, levels: Mapping[int, float] | None = None, own: Extension | str | None = None
) -> Task:
    """The task called `name`, drawing its levels by the given weights; default: all trained levels equally often.

    `own` says where a task of the user's own is, which then gets the name. `FILE.py:NAME` as a name is such a place.
    Raises UsageError: an unknown name, or a task of the user's own that cannot be used; ValueError: a level that the
    task does not train.
    """
    if own is None and name in TASKS:
        return TASKS[name](levels)
    if own is None and ":" in name:
        own, name = name, Path(name.rpartition(":")[2]).name
    if own is None:
        own = installed_tasks().get(name)
    if own is None:
        hint = nearest(name, task_names(), f"there are {', '.join(task_names())}")
        raise UsageError(f"no task {name!r}; {hint}; for one of your own say FILE.py:NAME")
    return load_task(find(own) if isinstance(own, str) else own, name, levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSpec:
    """Which tasks are judged, and how: plain data, so that it can be sent to the process that judges."""

    tasks: tuple[str, ...] = ()  # procedural ones, by name
    datasets: Mapping[str, Path] = field(default_factory=dict)  # prepared ones, by name, and their files
    # Name → the task's, or the data set's reward function.
    own: Mapping[str, Extension] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)  # of the sandbox for programs
    strict: bool = False  # no answer counts before the thinking is closed


def make_verifier(spec: VerifierSpec) -> Callable[[Problem, str], Verdict]:
    """A function that judges problems of the spec's tasks, whatever levels they were drawn at, in one sandbox.

    Raises UsageError: an unknown task, or code of the user's own that cannot be used; DataError: a data set that is
    not prepared.
    """
    own = spec.own
    tasks: dict[str, Task] = {name: make_task(name, own=own.get(name)) for name in spec.tasks}
    tasks |= {name: DatasetTask(name, path, own.get(name)) for name, path in spec.datasets.items()}
    for name in own.keys() & spec.datasets.keys():
        load_reward(own[name])  # what is wrong with it shows now
    sandbox = OwnSandbox(spec.policy)
    for task in tasks.values():
        if isinstance(task, NeedsSandbox):
            task.run_program = sandbox

    def verify(problem: Problem, text: str) -> Verdict:
        if spec.strict and THINK_CLOSE not in text:
            return NO_ANSWER
        return tasks[problem.task].verify(problem, text)

    return verify
