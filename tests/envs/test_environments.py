"""Environments of the real package `verifiers` as tasks, and tasks as one of its environments."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from prorl.envs import task, verifiers_task
from prorl.envs.check import check_task
from prorl.envs.environments import _trace
from prorl.envs.errors import UsageError
from prorl.envs.extensions import find
from prorl.envs.registry import VerifierSpec, make_task, make_verifier
from prorl.local.judge import LocalJudge

vf = pytest.importorskip("verifiers.v1", reason="needs the extra `verifiers`")
import prorl_tasks  # noqa: E402

ADDING = """\
import os
import verifiers.v1 as vf
from prorl.envs.extract import extract_answer
__all__ = ["AddingTaskset"]

class Data(vf.TaskData):
    answer: int

class Adding(vf.Task[Data]):
    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        if trace.last_reply == "raise":
            raise KeyError("no")
        return float(extract_answer(trace.last_reply) == str(self.data.answer))

    @vf.reward(weight=0.5)
    async def brief(self, task, trace) -> float:
        assert trace.num_turns == 1 and task.answer == self.data.answer
        return {"more": 9.0, "less": -9.0}.get(trace.last_reply, float(len(trace.last_reply) < 30))

class AddingTaskset(vf.Taskset[Adding, vf.TasksetConfig]):
    def load(self):
        shots = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "<answer>2</answer>"}]
        shift = int(os.environ.get("SHIFT", 0))
        for n in range(200):
            prompt = [*shots, {"role": "user", "content": f"{n}+3?"}] if n % 2 else f"{n}+3?"
            yield Adding(Data(prompt=prompt, system_prompt="Add.", answer=n + 3 + shift), self.config.task)
"""


@pytest.fixture
def adding(tmp_path, monkeypatch):
    """The place of an environment that lies where Python finds it."""
    (tmp_path / "adding_env.py").write_text(ADDING)
    monkeypatch.syspath_prepend(tmp_path)
    return "verifiers:adding-env"


def test_the_rows_of_an_environment_are_problems_of_which_none_is_in_two_splits(adding):
    made = make_task("mine", own=adding)
    asked = {
        split: {made.problem(n, split).prompt for n in range(made.row_count(split))} for split in made.splits
    }
    assert {split: len(prompts) for split, prompts in asked.items()}.keys() == {"train", "validation", "test"}
    assert set.union(*asked.values()) == {f"{n}+3?" for n in range(200)}
    assert sum(map(len, asked.values())) == 200
    problem = next(p for n in range(9) if len((p := made.problem(n, "train")).history) > 1)
    assert (problem.task, problem.domain) == ("mine", "adding-env")
    assert problem.history == (("system", "Add."), ("user", "1+1?"), ("assistant", "<answer>2</answer>"))
    assert "an empty response scores" in check_task(made).faults  # as it is brief


def test_weighted_rewards_judge_in_the_judge_s_process(adding):
    problem = make_task("mine", own=adding).problem(0, "test")
    right = f"<answer>{int(problem.prompt.partition('+')[0]) + 3}</answer>"
    expected = {
        f"<think>x</think>{right}": (1.0, "ok"),
        f"{right} and then a great many words more": (0.8, "wrong"),
        "<answer>no</answer>": (0.2, "wrong"),
        f"<think>{right}": (0.0, "wrong"),  # thinking that never ended
        "raise": (0.0, "error"),
        "more": (0.0, "error"),
        "less": (0.0, "error"),
    }
    spec = VerifierSpec(tasks=("mine",), own={"mine": find(adding)})
    judge, verdicts = LocalJudge(partial(make_verifier, spec), deadline=60), {}
    try:
        for ticket, response in enumerate(expected):
            judge.submit(ticket, problem, response)
        while len(verdicts) < len(expected):
            verdicts |= judge.poll(wait=True)
    finally:
        judge.close()
    found = {text: (verdicts[n].score, verdicts[n].status) for n, text in enumerate(expected)}
    assert found == expected


def test_other_rows_at_the_judge_are_an_error(adding, monkeypatch):
    problem = make_task("mine", own=adding).problem(0, "train")
    monkeypatch.setenv("SHIFT", "1")
    assert "not those of the run" in make_task("mine", own=adding).verify(problem, "").note


HEAD = "import verifiers.v1 as vf\n__all__ = ['Own']\n"
ROWS = "class Own(vf.Taskset[T, vf.TasksetConfig]):\n def load(self): return [T(vf.TaskData({}), self.config.task)]\n"
PAID = "class T(vf.Task):\n @vf.reward{}\n async def paid(self, trace{}): return 1.0\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (PAID.format("", "") + ROWS.format("prompt='?'") + " INFINITE = True", "never ends: take a part"),
        (PAID.format("", ", runtime") + ROWS.format("prompt='?'"), "needs a runtime; what can be trained on"),
        (
            PAID.format("", "")
            + " async def setup(self, trace, runtime): pass\n"
            + ROWS.format("prompt='?'"),
            "needs a runtime",
        ),
        (PAID.format("(weight=-1)", "") + ROWS.format("prompt='?'"), "one of negative weight"),
        ("T = vf.Task\n" + ROWS.format("prompt='?'"), "has no reward"),
        (PAID.format("", "") + ROWS.format(""), r"rows that do not end in a user's text \(\[0\]\)"),
        (
            PAID.format("", "")
            + ROWS.format("prompt='?'")
            + " @classmethod\n def toolsets(cls, config): return [1]",
            "tools",
        ),
        (
            PAID.format("", "")
            + ROWS.format("prompt='?'")
            + "class E(vf.Env[vf.SingleAgentEnvConfig]):\n async def run(self, task, agents): pass\n__all__ += ['E']",
            "an Env of its own",
        ),
        ("class T: pass", "no task can be made of it: TypeError: taskset module"),
    ],
)
def test_what_is_more_than_a_turn_of_text_is_refused_in_a_sentence(
    tmp_path, monkeypatch, request, text, sentence
):
    name = f"own_env_{request.node.callspec.indices['text']}"
    (tmp_path / f"{name}.py").write_text(HEAD + text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"^verifiers:{name}: .*{sentence}"):
        make_task("mine", own=f"verifiers:{name}")


def test_an_environment_that_is_not_installed_and_a_part_of_one(adding):
    with pytest.raises(UsageError, match="there is no module not_here: install it"):
        find("verifiers:not-here")
    part = verifiers_task(vf.load_taskset(vf.TasksetConfig(id="adding-env")).take(30))
    assert sum(part.row_count(split) for split in part.splits) == 30


def test_a_task_is_an_environment_of_theirs():
    asked = {"id": "prorl-tasks", "family": "countdown", "levels": {1: 1.0}, "split": "test", "count": 5}
    env = vf.load_environment(vf.resolve_env_config({"taskset": asked}))
    rows, ours = list(env.taskset), task("countdown", {1: 1.0})
    assert [row.data.prompt[-1].content for row in rows] == [ours.problem(n, "test").prompt for n in range(5)]
    answer = ours.problem(2, "test").solution.answer
    assert scored(rows[2], f"<answer>{answer}</answer>") == 1.0
    assert scored(rows[3], f"<answer>{answer}</answer>") == 0.0


def test_where_our_verifier_cannot_tell_there_is_no_reward(monkeypatch):
    row = next(iter(prorl_tasks.ProrlTaskset(prorl_tasks.ProrlConfig(family="arithmetic"))))
    monkeypatch.setattr(type(task("arithmetic")), "score", lambda *_: 1 / 0)
    with pytest.raises(vf.TaskError, match="the verifier of arithmetic could not tell: ZeroDivisionError"):
        scored(row, "<answer>1</answer>")


def scored(row, reply: str) -> float:
    """What `verifiers` itself makes of a response to one row of an environment."""
    trace = _trace(row, reply)
    asyncio.run(row.score(trace))
    return trace.reward
