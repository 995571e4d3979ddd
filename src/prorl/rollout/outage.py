"""Verdicts that failed: each is asked for once more, and those of a task that is out until it heals.

An error drops its group, so a judge killed from outside would change what a run learns from, and a broken verifier
would quietly turn a run of five domains into one of four. While a task (nearly all of its verdicts are errors) or the
judge is out the run waits, says so, and tries again at growing intervals; nothing that was sampled is lost, and the
verdicts are those that would have come at once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from prorl.envs.types import Problem, Verdict
from prorl.types import Judge, JudgeOutError

OUTAGE_SHARE = 0.8  # errors among the verdicts of a task from which it counts as out
OUTAGE_VERDICTS = 8  # fewer say nothing about a task
FIRST_WAIT, LONGEST_WAIT = 5.0, 60.0  # seconds; doubled from one to the other

Item = tuple[Problem, str]  # what was judged: a problem and a response to it
Wait = Callable[[str, float], None]
"""Says a sentence, if given one, then lets so many seconds pass; raises `WaitEnded` if somebody asks to stop."""


class WaitEnded(Exception):
    """Somebody asked to stop while verifiers were out: what was sampled is not counted, and will be again."""


def wait_silently(_reason: str, seconds: float) -> None:
    """The `Wait` of whoever has nobody to tell."""
    time.sleep(seconds)


def judge_all(judge: Judge, items: Mapping[int, Item], wait: Wait = wait_silently) -> dict[int, Verdict]:
    """Submit items under their tickets and block until all are judged.

    Raises:
        WaitEnded: from `wait`.
    """
    for ticket, (problem, text) in items.items():
        judge.submit(ticket, problem, text)
    return collect_verdicts(judge, {}, len(items), wait)


def collect_verdicts(
    judge: Judge, verdicts: Mapping[int, Verdict], expected: int, wait: Wait = wait_silently
) -> dict[int, Verdict]:
    """`verdicts` and those still outstanding, `expected` in all.

    Raises:
        WaitEnded: from `wait`, while no judge could be started.
    """
    found = dict(verdicts)
    while len(found) < expected:
        try:
            found.update(judge.poll(wait=True))
        except JudgeOutError as out:
            wait(f"paused: {out}; trying again in {out.seconds:.0f} s; Ctrl-C saves and stops", out.seconds)
    return found


def heal(
    judge: Judge, items: Sequence[Item], verdicts: Mapping[int, Verdict], wait: Wait
) -> dict[int, Verdict]:
    """`verdicts` by position in `items`, with errors judged once more, those of a task that is out until it heals.

    Raises:
        WaitEnded: from `wait`.
    """
    healed = dict(verdicts)
    failed = sorted(ticket for ticket, verdict in verdicts.items() if verdict.status == "error")
    seconds = 0.0
    while failed:
        if seconds:
            wait(_describe(items, healed, failed, seconds), seconds)
        healed |= judge_all(judge, {ticket: items[ticket] for ticket in failed}, wait)
        failed = failures(items, healed)
        seconds = min(2 * seconds or FIRST_WAIT, LONGEST_WAIT)
    return healed


def failures(items: Sequence[Item], verdicts: Mapping[int, Verdict]) -> list[int]:
    """Tickets of the errors of tasks that are out."""
    by_task: dict[str, list[int]] = defaultdict(list)
    for ticket, (problem, _) in enumerate(items):
        by_task[problem.task].append(ticket)
    failed: list[int] = []
    for tickets in by_task.values():
        errors = [ticket for ticket in tickets if verdicts[ticket].status == "error"]
        if len(tickets) >= OUTAGE_VERDICTS and len(errors) >= OUTAGE_SHARE * len(tickets):
            failed += errors
    return failed


def _describe(
    items: Sequence[Item], verdicts: Mapping[int, Verdict], failed: Sequence[int], seconds: float
) -> str:
    tasks = sorted({items[ticket][0].task for ticket in failed})
    of = sum(problem.task in tasks for problem, _ in items)
    return (
        f"paused: the verifiers of {', '.join(tasks)} fail on {len(failed)} of {of} responses "
        f"({verdicts[failed[0]].note}); trying again in {seconds:.0f} s; Ctrl-C saves and stops"
    )
