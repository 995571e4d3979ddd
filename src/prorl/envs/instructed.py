"""A task whose prompts end with an instruction on the form of the answer, for models that have to be told."""

from __future__ import annotations

from dataclasses import replace

from prorl.envs.types import Problem, Split, Task, Verdict


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

    @property
    def ladder(self) -> tuple[int, ...]:
        """The task's ladder."""
        return self._task.ladder

    def problem(self, index: int, split: Split) -> Problem:
        """The task's problem, its prompt followed by the instruction."""
        return self._told(self._task.problem(index, split))

    def rung(self, index: int, level: int) -> Problem:
        """The task's problem of a level, its prompt followed by the instruction."""
        return self._told(self._task.rung(index, level))

    def verify(self, problem: Problem, text: str) -> Verdict:
        """The task's verdict."""
        return self._task.verify(problem, text)

    def _told(self, problem: Problem) -> Problem:
        return replace(problem, prompt=problem.prompt + self._ending)
