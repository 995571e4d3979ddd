"""What a judge's process runs: the tasks of a recipe, one sandbox for all of them, and the rule on form.

A `VerifierSpec` is plain data, so that it can be sent to the process in which the verifier is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from prorl.envs.base import NO_ANSWER
from prorl.envs.datasets.task import DatasetTask
from prorl.envs.extract import THINK_CLOSE
from prorl.envs.registry import make_task
from prorl.envs.sandbox.sandbox import Policy
from prorl.envs.types import Problem, Task, Verdict
from prorl.envs.verifiers.programs import NeedsSandbox, OwnSandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSpec:
    """Which tasks are judged, and how."""

    tasks: tuple[str, ...] = ()  # procedural ones, by name
    datasets: tuple[str, ...] = ()  # prepared ones, by name
    data: Path | None = None  # the folder in which those lie
    policy: Policy = field(default_factory=Policy)  # of the sandbox for programs
    strict: bool = False  # no answer counts before the thinking is closed


def make_verifier(spec: VerifierSpec) -> Callable[[Problem, str], Verdict]:
    """A function that judges problems of the spec's tasks, whatever levels they were drawn at.

    Raises:
        ValueError: an unknown task.
        DataError: a data set that is not prepared.
    """
    tasks: dict[str, Task] = {name: make_task(name) for name in spec.tasks}
    if spec.data is not None:
        tasks |= {name: DatasetTask(name, spec.data) for name in spec.datasets}
    sandbox = OwnSandbox(spec.policy)
    for task in tasks.values():
        if isinstance(task, NeedsSandbox):
            task.use_sandbox(sandbox)

    def verify(problem: Problem, text: str) -> Verdict:
        if spec.strict and THINK_CLOSE not in text:
            return NO_ANSWER
        return tasks[problem.task].verify(problem, text)

    return verify
