"""Verifiable problems and verdicts: tasks that make problems, and graders for answers of your own. Useful without RL.

    from prorl.envs import grade, task, tasks

    grade("math", r"\\frac{1}{2}", r"so it is \\boxed{0.5}").score      # 1.0
    countdown = task("countdown")
    problem = countdown.problem(0, "test")
    countdown.verify(problem, "<answer>1+2</answer>").status         # "wrong"

Imports neither torch nor the rest of prorl; what is heavy is imported by the first call that needs it. `docs/envs.md`
has an example of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from prorl.envs.errors import ProrlError
    from prorl.envs.types import Problem, Task, Verdict

__all__ = ["Problem", "ProrlError", "Task", "Verdict", "grade", "task", "tasks"]


def grade(
    kind: Literal["math", "quantity", "choice", "code", "instructions"],
    gold: Any,
    response: str,
    *,
    prompt: str = "",
    options: Sequence[str] | None = None,
    tolerance: float | None = None,
    checkers: Literal["ifeval", "ifbench"] | None = None,
) -> Verdict:
    """Grade the response of a model, as the rows of data sets are graded in training.

    The answer is sought after the thinking: the last `<answer>…</answer>`, else the last `\\boxed{…}`; for code the
    last block of Python in triple backticks; for instructions the whole text.

    Args:
        kind: `math` and `quantity` (a number with a unit) are right or wrong, and so is `choice`; `code` scores the
            share of the tests passed, `instructions` the share of the instructions followed.
        gold: a text for `math` and `quantity`; for `choice` the letter or the text of the right option; for `code`
            `{"inputs": […], "outputs": […], "fn_name": …}` as APPS and PRIME write it, without `fn_name` texts of
            standard input and output; for `instructions` `[{"id": …, "kwargs": {…}}, …]` as IFEval writes it.
        response: the model's text.
        prompt: what was asked, for instructions that refer to it.
        options: the texts of a `choice`, in the order of their letters.
        tolerance: how far a number may be off: absolute for `math`; for `code` as its verifier says, default 1e-6.
        checkers: grade `instructions` by IFEval's or IFBench's own checkers (`pip install 'prorl[evaluations]'`).

    Returns:
        A verdict: `score` in [0, 1]; `status` "ok", "wrong" or "error", where the verifier could not tell.

    Raises:
        ProrlError: arguments that cannot be graded, in one sentence.
        SandboxError: `code` on a machine that has no sandbox; also a `ProrlError`.
    """
    from prorl.envs import grading

    return grading.grade(
        kind, gold, response, prompt=prompt, options=options, tolerance=tolerance, checkers=checkers
    )


def task(name: str, levels: Mapping[int, float] | None = None) -> Task:
    """The generated task called `name`; `levels` weighs its difficulty levels, default: all trained ones alike.

    Raises:
        ProrlError: no such task; the sentence names the nearest.
        ValueError: a level that the task does not train.
    """
    from prorl.envs.registry import make_task

    return make_task(name, levels)


def tasks() -> tuple[str, ...]:
    """The names of all generated tasks, reasoning-gym's among them (`rg_…`), in a fixed order."""
    from prorl.envs.registry import TASKS

    return tuple(TASKS)


def __getattr__(name: str) -> Any:
    """The records, imported when they are asked for: the sandbox's server imports this package without them."""
    if name in ("Problem", "Task", "Verdict"):
        from prorl.envs import types

        return getattr(types, name)
    if name == "ProrlError":
        from prorl.envs.errors import ProrlError

        return ProrlError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
