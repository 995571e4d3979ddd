"""Environments of the package `verifiers` as tasks: a single turn of text.

An environment's own code judges, as a reward function of the user's own does, in the judge's worker processes. What
needs one of that package's runtimes is refused: a program of the model could run there without our sandbox.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from prorl.envs.base import NO_ANSWER, OTHER_ROWS, FixedTask, by_split, verdict_of
from prorl.envs.errors import UsageError
from prorl.envs.extensions import awaited
from prorl.envs.extract import after_thinking
from prorl.envs.types import Problem, Turn, Verdict, conversation


def verifiers_task(environment: Any) -> EnvironmentTask:
    """An environment of `verifiers` as a task: the id of an installed one with its defaults, or a `Taskset`.

    Raises UsageError: `verifiers` is not installed, or there is more to the environment than one turn of text.
    """
    try:
        import verifiers.v1 as vf
    except ImportError as error:
        raise UsageError(
            f"environments need `pip install -e '.[verifiers]'` in a checkout ({error})"
        ) from None
    taskset = environment
    if isinstance(environment, str):
        taskset = vf.load_taskset(vf.taskset_config_type(environment)(id=environment))
    name, tasks = taskset.config.id or type(taskset).__name__, list(taskset) if taskset.bounded else []
    if obstacle := _obstacle(taskset, tasks):
        raise UsageError(f"environment {name} {obstacle}; a task is finitely many single turns of text")
    return EnvironmentTask(name, tasks)


class EnvironmentTask(FixedTask):
    """The rows of an environment, by their hashes. The domain is the name of the environment; set another one."""

    def __init__(self, name: str, tasks: Sequence[Any]) -> None:
        """`tasks` are `verifiers.v1.Task`s of one class, each of them one turn of text."""
        self._tasks = {task.hash: task for task in tasks}
        self._weight = sum(weight for _, weight in _judges(tasks[0]))
        rows = ((key, self.ask(key)) for key in self._tasks)
        asked = ((key, conversation(row["history"], row["prompt"])) for key, row in rows)
        super().__init__(name, name, by_split(asked))

    def ask(self, key: str) -> dict[str, Any]:
        """The last turn, and those before it."""
        *before, (_, prompt) = _turns(self._tasks[key].data)
        return {"prompt": prompt, "payload": key, "history": tuple(before)}

    def verify(self, problem: Problem, text: str) -> Verdict:
        """The sum of the environment's rewards for what follows the thinking, over the sum of their weights."""
        task, reply = self._tasks.get(problem.payload), after_thinking(text)
        if task is None:
            return OTHER_ROWS
        if reply is None:
            return NO_ANSWER
        try:
            trace = _trace(task, reply)
            awaited(task.score(trace))
            return verdict_of(trace.reward / self._weight if trace.rewards else None)
        except Exception as error:
            return Verdict(score=0.0, status="error", note=f"{type(error).__name__}: {error}")


def _obstacle(taskset: Any, tasks: Sequence[Any]) -> str | None:
    """What keeps an environment from being one turn of text that is judged by its text."""
    import verifiers.v1 as vf
    from verifiers.v1.utils.decorators import discover_decorated

    if not tasks:
        return "has no rows" if taskset.bounded else "never ends, unlike taskset.take(1000)"
    task, ident = tasks[0], taskset.config.id  # the others are of the same class and have the same config
    needed = [inspect.signature(judge).parameters.get("runtime") for judge, _ in _judges(task)]
    steps = [getattr(type(task), name) is not getattr(vf.Task, name) for name in ("setup", "finalize")]
    weights = [weight for _, weight in _judges(task)]
    odd = [row for row, task in enumerate(tasks) if [role for role, _ in _turns(task.data)][-1:] != ["user"]]
    found = {
        "has an Env of its own": vf.environment_class(ident) is not vf.SingleAgentEnv,
        "has a Harness of its own": ident and vf.default_harness_id(ident) == ident,
        "has tools": taskset.toolsets(taskset.config) or task.toolsets(task.config),
        "needs a runtime": any(steps) or any(given and given.default is given.empty for given in needed),
        "changes what is said": discover_decorated(task, "intercept"),
        "has no reward, or one of negative weight": not sum(weights) or min(weights) < 0,
        f"has rows that do not end in a user's text ({odd[:3]})": odd,
    }
    return next((words for words, holds in found.items() if holds), None)


def _judges(task: Any) -> list[tuple[Callable[..., Any], float]]:
    """What rewards a response, and its weight."""
    hooks = [(hook, getattr(hook, "_vf_weight", 1.0)) for hook in task.hooks("reward")]
    return hooks + [(judge.score, judge.config.weight) for judge in task.plugged_judges()]


def _turns(data: Any) -> list[Turn]:
    """What is said before the response, the system prompt first; nothing where a part of it is no plain text."""
    system = [("system", data.system_prompt)] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return [*system, ("user", data.prompt)]
    said = [(message.role, message.content) for message in data.prompt or ()]
    return system + said if all(role != "tool" and isinstance(text, str) for role, text in said) else []


def _trace(task: Any, reply: str) -> Any:
    """A finished rollout as `verifiers` records it for rewards."""
    import verifiers.v1 as vf
    from verifiers.v1.state import state_cls

    turns = [*_turns(task.data), ("assistant", reply)]
    nodes = [vf.MessageNode(message={"role": role, "content": said}) for role, said in turns]
    for place, node in enumerate(nodes[1:]):
        node.parent = place
    nodes[-1].sampled = True
    about = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    who, state = vf.AgentInfo(config=vf.AgentConfig()), state_cls(type(task))()
    calls = [vf.ModelCall(node=len(nodes) - 1, finish_reason="stop")]
    return vf.Trace(
        task=about, agent=who, state=state, nodes=nodes, calls=calls, stop_condition="agent_completed"
    )
