"""Tasks of ours as the taskset `prorl-tasks` of the package `verifiers`, which looks for a module of that name.

vf-eval prorl-tasks --env.taskset.family countdown --env.agent.harness.id null
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import verifiers.v1 as vf
from pydantic import Field

import prorl.envs
from prorl.envs.types import Split

__all__ = ["ProrlConfig", "ProrlTaskset"]

SYSTEM_PROMPT = "Give only the final answer between <answer> and </answer>."
_LIMIT = vf.TaskTimeout(scoring=60.0)  # seconds
_JUDGE = ThreadPoolExecutor(max_workers=1)  # tasks are not made for several threads


class ProrlData(vf.TaskData):  # type: ignore[misc]
    """Which problem is asked."""

    family: str
    levels: dict[int, float]
    split: Split
    index: int


class ProrlTask(vf.Task[ProrlData]):  # type: ignore[misc]
    """One of our problems; its only reward is our verdict."""

    @vf.reward  # type: ignore[untyped-decorator]
    async def verdict(self, trace: Any) -> float:
        """The score in [0, 1]; raises `RuntimeError` where the verifier cannot tell."""
        task, loop = _task(self.data.family, tuple(self.data.levels.items())), asyncio.get_running_loop()
        problem = task.problem(self.data.index, self.data.split)
        verdict = await loop.run_in_executor(_JUDGE, task.verify, problem, trace.last_reply)
        if verdict.status == "error":
            raise RuntimeError(f"the verifier of {self.data.family} could not tell: {verdict.note}")
        return verdict.score


class ProrlConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which problems are asked."""

    family: str = "countdown"  # a task by name, or FILE.py:NAME of your own
    # Level → weight; default: all trained ones equally.
    levels: dict[int, float] = Field(default_factory=dict)
    split: Split = "train"
    count: int = 1000


class ProrlTaskset(vf.Taskset[ProrlTask, ProrlConfig]):  # type: ignore[misc]
    """The first problems of a split of a task; `ProrlError` where there is no such task or level."""

    def load(self) -> Iterator[ProrlTask]:
        """Make them one after the other."""
        asked = self.config.model_dump(include={"family", "levels", "split"})
        task = _task(self.config.family, tuple(self.config.levels.items()))
        for row in prorl.envs.task_rows(task, self.config.count, self.config.split):
            shown = {"prompt": row["prompt"], "system_prompt": SYSTEM_PROMPT, "timeout": _LIMIT}
            yield ProrlTask(ProrlData(**asked, **shown, index=row["index"]), self.config.task)


@lru_cache
def _task(family: str, levels: tuple[tuple[int, float], ...]) -> prorl.envs.Task:
    return prorl.envs.task(family, dict(levels))
