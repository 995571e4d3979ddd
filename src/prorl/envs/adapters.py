"""Our verifiers as reward functions of other trainers: TRL's `GRPOTrainer`, verl.

A score is in [0, 1]; where the verifier could not tell it is None for TRL, which then leaves the response out, and
for verl 0 with `judged` 0, as verl has no such value.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prorl.envs.datasets.catalogue import Kind
from prorl.envs.errors import UsageError
from prorl.envs.grading import check_kind, grade
from prorl.envs.types import Split, Task

TrlReward = Callable[..., list[float | None]]


def trl_reward(judge: Kind | Task, *, answer: str = "answer", options: str = "options") -> TrlReward:
    """A reward function for `GRPOTrainer(reward_funcs=…)`.

    Args:
        judge: how responses are judged: a kind of `grade`, or a task of ours (`prorl.envs.task("countdown")`), whose
            problems `task_rows` gives.
        answer: for a kind, the column of the gold answer, as `grade` takes it.
        options: for `choice`, the column of the options.

    Returns:
        `f(prompts, completions, **columns) -> list[float | None]`. Prompts and completions may be texts or chats.

    Raises:
        ProrlError: no such kind; as it judges, also a column that is not there.
    """
    if isinstance(judge, str):
        check_kind(judge)
        needed = [answer, options] if judge == "choice" else [answer]
        way = 'say which one it is, trl_reward(…, answer="COLUMN", options="COLUMN")'
    else:
        needed, way = ["index", "split"], "train on the rows that task_rows gives"

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        if absent := [name for name in needed if name not in columns]:
            raise UsageError(f"the data has no column {' and no '.join(absent)}: {way}")
        scores: list[float | None] = []
        for place, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            text, row = _last_text(completion), {name: columns[name][place] for name in needed}
            if isinstance(judge, str):
                offered = row[options] if judge == "choice" else None
                verdict = grade(judge, row[answer], text, prompt=_last_text(prompt), options=offered)
            else:
                verdict = judge.verify(judge.problem(row["index"], row["split"]), text)
            scores.append(None if verdict.status == "error" else verdict.score)
        return scores

    reward.__name__ = f"prorl_{judge if isinstance(judge, str) else judge.name}"  # TRL logs under it
    return reward


def task_rows(task: Task, count: int, split: Split = "train") -> Iterator[dict[str, Any]]:
    """Problems of a task as rows of a data set: `prompt` as a chat, and what `trl_reward(task)` finds it again by."""
    for index in range(count):
        problem = task.problem(index, split)
        turns = (*problem.history, ("user", problem.prompt))
        chat = [{"role": role, "content": content} for role, content in turns]
        yield {"prompt": chat, "index": index, "split": split, "level": problem.level}


def verl_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, *, kind: Kind = "math"
) -> dict[str, float]:
    """verl's `compute_score`: its `custom_reward_function` has the path `pkg://prorl.envs.adapters` and this name.

    The kind is that of `extra_info["kind"]`, else of `custom_reward_function.reward_kwargs.kind`; a `choice` needs
    `extra_info["options"]`. Returns `score`, and whether the response was `answered` and `judged`.
    """
    about = extra_info or {}
    kind = about.get("kind", kind)
    options = about.get("options") if kind == "choice" else None
    verdict = grade(kind, ground_truth, solution_str, options=options)
    judged = verdict.status != "error"
    return {"score": verdict.score, "answered": float(verdict.answered), "judged": float(judged)}


def _last_text(said: Any) -> str:
    """A text, or what the last message of a chat says."""
    return str(said[-1]["content"]) if isinstance(said, list) else str(said)
