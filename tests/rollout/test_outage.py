"""An outage delays verdicts and never turns into rejected groups."""

from collections import Counter

import pytest

from prorl.envs.types import Problem, Verdict
from prorl.rollout.outage import LONGEST_WAIT, WaitEnded, failures, heal, judge_all
from prorl.types import JudgeOutError

OK = Verdict(score=1.0, status="ok")
ERROR = Verdict(score=0.0, status="error", note="no connection")


class FlakyJudge:
    """Fails on everything of the task "code" until it has been asked `failing` times about each item."""

    def __init__(self, failing: int) -> None:
        self.asked: Counter[str] = Counter()
        self._failing = failing
        self._ready: list[tuple[int, Verdict]] = []

    def submit(self, ticket, problem, text):
        self.asked[text] += 1
        broken = problem.task == "code" and self.asked[text] <= self._failing
        self._ready.append((ticket, ERROR if broken else OK))

    def poll(self, *, wait):
        return [self._ready.pop()] if self._ready else []


def items(**tasks: int):
    return [
        (
            Problem(task=task, domain="d", index=i, split="train", level=0, prompt="p", payload=None),
            f"{task}{i}",
        )
        for task, count in tasks.items()
        for i in range(count)
    ]


class AbsentJudge(FlakyJudge):
    """Cannot be started for the first three polls."""

    absent = 3

    def poll(self, *, wait):
        if self.absent:
            self.absent -= 1
            raise JudgeOutError("no judge can be started (no memory)", 4.0)
        return super().poll(wait=wait)


def judged(judge, asked):
    return judge_all(judge, dict(enumerate(asked)))


def test_a_task_that_is_out_is_judged_again_until_it_heals():
    judge, asked, waits = FlakyJudge(failing=4), items(code=8, math=8), []
    verdicts = heal(judge, asked, judged(judge, asked), lambda why, seconds: waits.append((why, seconds)))
    assert set(verdicts.values()) == {OK}
    assert [seconds for _, seconds in waits] == [5.0, 10.0, 20.0]
    assert "code fail on 8 of 8 responses (no connection)" in waits[0][0]
    assert "math" not in waits[0][0]
    assert {text: times for text, times in judge.asked.items() if text.startswith("math")} == {
        f"math{i}": 1 for i in range(8)
    }


def test_waits_grow_to_a_minute_and_no_further_in_a_day():
    judge, asked, waits = FlakyJudge(failing=1440), items(code=8), []
    heal(judge, asked, judged(judge, asked), lambda _, seconds: waits.append(seconds))
    assert waits[-1] == LONGEST_WAIT == max(waits)


@pytest.mark.parametrize(
    ("errors", "of", "out"), [(0, 20, 0), (15, 20, 0), (16, 20, 16), (20, 20, 20), (7, 7, 0), (7, 8, 7)]
)
def test_single_errors_are_no_outage(errors, of, out):
    verdicts = {ticket: ERROR if ticket < errors else OK for ticket in range(of)}
    assert len(failures(items(code=of), verdicts)) == out


def test_an_error_is_judged_once_more_at_once_and_no_more_often():
    for failing, status in ((1, "ok"), (2, "error")):
        judge, asked = FlakyJudge(failing), items(code=1, math=8)
        verdicts = heal(judge, asked, judged(judge, asked), lambda why, seconds: pytest.fail(why))
        assert (verdicts[0].status, judge.asked) == (
            status,
            Counter({"code0": 2, **{f"math{i}": 1 for i in range(8)}}),
        )


def test_judges_that_cannot_be_started_are_waited_for():
    waits = []
    judge_all(AbsentJudge(failing=0), dict(enumerate(items(math=3))), lambda *wait: waits.append(wait))
    why = "paused: no judge can be started (no memory); trying again in 4 s; Ctrl-C saves and stops"
    assert waits == [(why, 4.0)] * 3


@pytest.mark.parametrize("judge", [FlakyJudge(failing=100), AbsentJudge(failing=0)])
def test_who_waits_may_end_it(judge):
    asked = dict(enumerate(items(code=8)))

    def stop(_why, _seconds):
        raise WaitEnded

    with pytest.raises(WaitEnded):
        heal(judge, list(asked.values()), judge_all(judge, asked, stop), stop)
