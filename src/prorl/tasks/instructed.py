"""A task whose prompts end with an instruction on the form of the answer, for models that have to be told."""

from __future__ import annotations

from dataclasses import replace

from prorl.ports import Task
from prorl.types import Problem, Split, Verdict


class Instructed:
    """Another task, its prompts followed by `instruction`; everything else is that task's own."""

    def __init__(self, task: Task, instruction: str) -> None:
        self._task = task
        self._ending = f"\n\n{instruction}"

    @property
    def name(self) -> str:
        """The task's name."""
        return self._task.name

    @property
    def domain(self) -> str:
        """The task's domain."""
        return self._task.domain

    @property
    def pass_threshold(self) -> float:
        """The task's pass threshold."""
        return self._task.pass_threshold

    @property
    def splits(self) -> frozenset[Split]:
        """The task's splits."""
        return self._task.splits

    def problem(self, index: int, split: Split) -> Problem:
        """The task's problem, its prompt followed by the instruction."""
        problem = self._task.problem(index, split)
        return replace(problem, prompt=problem.prompt + self._ending)

    def verify(self, problem: Problem, text: str) -> Verdict:
        """The task's verdict."""
        return self._task.verify(problem, text)
