"""Environments of the real package `verifiers` as tasks, and tasks as one of its environments."""

import asyncio

import pytest

from prorl.envs import task, verifiers_task
from prorl.envs.check import check_task
from prorl.envs.environments import _trace
from prorl.envs.errors import UsageError
from prorl.envs.extensions import find
from prorl.envs.registry import VerifierSpec, make_task, make_verifier
from support.data_rows import all_problems
from support.own_tasks import ADDING

vf = pytest.importorskip("verifiers.v1", reason="needs the extra `verifiers`")
import prorl_tasks  # noqa: E402


@pytest.fixture
def adding(tmp_path, monkeypatch):
    """The place of an environment that lies where Python finds it."""
    (tmp_path / "adding_env.py").write_text(ADDING)
    monkeypatch.syspath_prepend(tmp_path)
    return "verifiers:adding-env"


def test_the_rows_of_an_environment_are_problems_of_which_none_is_in_two_splits(adding):
    made = make_task("mine", own=adding)
    asked = all_problems(made)
    assert made.splits == {"train", "validation", "test"}
    assert sorted(problem.prompt for problem in asked) == sorted(f"{n}+3?" for n in range(200))
    problem = next(problem for problem in asked if len(problem.history) > 1)
    assert (problem.task, problem.domain) == ("mine", "adding-env")
    assert problem.history == (("system", "Add."), ("user", "1+1?"), ("assistant", "<answer>2</answer>"))
    assert "an empty response scores" in check_task(made).faults  # as it is brief


def test_weighted_rewards_are_a_verdict(adding):
    problem = make_task("mine", own=adding).problem(0, "test")
    verify = make_verifier(VerifierSpec(tasks=("mine",), own={"mine": find(adding)}))
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
    found = {text: verify(problem, text) for text in expected}
    assert {text: (verdict.score, verdict.status) for text, verdict in found.items()} == expected


def test_other_rows_at_the_judge_are_an_error(adding, monkeypatch):
    problem = make_task("mine", own=adding).problem(0, "train")
    monkeypatch.setenv("SHIFT", "1")
    assert "not those of the run" in make_task("mine", own=adding).verify(problem, "").note


OWN = """
import verifiers.v1 as vf
class T(vf.Task):
    {setup}
    @vf.reward({weight})
    async def paid(self, trace{more}): return 1.0
class Own(vf.Taskset[T, vf.TasksetConfig]):
    INFINITE = {infinite}
    def load(self): return [T(vf.TaskData(prompt={prompt}), self.config.task)]
    @classmethod
    def toolsets(cls, config): return {tools}
class E(vf.Env[vf.SingleAgentEnvConfig]):
    async def run(self, task, agents): pass
__all__ = ["Own", *{env}]
"""
PLAIN = {"setup": "", "weight": "", "more": "", "infinite": False, "prompt": "'?'", "tools": [], "env": []}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"infinite": True}, r"never ends, unlike taskset.take\(1000\); a task is"),
        ({"more": ", runtime"}, "needs a runtime; a task is"),
        ({"setup": "async def setup(self, trace, runtime): pass"}, "needs a runtime"),
        ({"weight": "weight=-1"}, "one of negative weight"),
        ({"weight": "weight=0"}, "has no reward"),
        ({"prompt": None}, r"rows that do not end in a user's text \(\[0\]\)"),
        ({"tools": [1]}, "has tools"),
        ({"env": ["E"]}, "has an Env of its own"),
        ({"tools": "nonsense"}, "no task can be made of it: NameError"),
    ],
)
def test_what_is_more_than_turns_of_text_is_refused_in_a_sentence(
    tmp_path, monkeypatch, request, change, sentence
):
    name = f"own_env_{request.node.callspec.indices['change']}"
    (tmp_path / f"{name}.py").write_text(OWN.format(**PLAIN | change))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"^verifiers:{name}: .*{sentence}"):
        make_task("mine", own=f"verifiers:{name}")


def test_an_environment_that_is_not_installed_and_a_part_of_one(adding):
    with pytest.raises(UsageError, match="there is no module not_here: install it"):
        find("verifiers:not-here")
    part = verifiers_task(vf.load_taskset(vf.TasksetConfig(id="adding-env")).take(30))
    assert len(all_problems(part)) == 30


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
