"""Verifiable problems and verdicts: tasks that make problems, and graders for answers of your own. Useful without RL.

    from prorl.envs import grade, task, tasks

    grade("math", r"\\frac{1}{2}", r"so it is \\boxed{0.5}").score      # 1.0
    countdown = task("countdown")
    problem = countdown.problem(0, "test")
    countdown.verify(problem, "<answer>1+2</answer>").status         # "wrong"

Imports neither torch nor the rest of prorl; what is heavy is imported by the first call that needs it. `docs/envs.md`
has an example of each kind.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prorl.envs.adapters import task_rows, trl_reward, verl_score
    from prorl.envs.base import Draft, ProceduralTask, draft
    from prorl.envs.environments import verifiers_task
    from prorl.envs.errors import ProrlError
    from prorl.envs.grading import grade
    from prorl.envs.registry import make_task as task
    from prorl.envs.registry import task_names as tasks
    from prorl.envs.types import Problem, Solution, Task, Verdict

__all__ = [
    "Draft",
    "Problem",
    "ProceduralTask",
    "ProrlError",
    "Solution",
    "Task",
    "Verdict",
    "draft",
    "grade",
    "task",
    "task_rows",
    "tasks",
    "trl_reward",
    "verifiers_task",
    "verl_score",
]

_PLACES = {
    "grade": ("grading", "grade"),
    **{name: ("adapters", name) for name in ("task_rows", "trl_reward", "verl_score")},
    "verifiers_task": ("environments", "verifiers_task"),
    "task": ("registry", "make_task"),
    "tasks": ("registry", "task_names"),
    "ProrlError": ("errors", "ProrlError"),
    **{name: ("base", name) for name in ("Draft", "ProceduralTask", "draft")},
    **{name: ("types", name) for name in ("Problem", "Solution", "Task", "Verdict")},
}


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: the sandbox's server imports this package without the rest."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, own_name = _PLACES[name]
    return getattr(import_module(f"{__name__}.{module}"), own_name)
