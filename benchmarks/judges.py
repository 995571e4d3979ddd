"""Verdicts per second of judge actors on Ray against a judge beside the driver, with equally many worker processes.

Both judge the same right answers, by default to tasks whose verdicts cost less than the messages around them. They
take turns, so that a busy machine slows both: what counts is the median of the per-turn ratios.

    .venv-cluster/bin/python benchmarks/judges.py --workers 2 --repeats 7
    .venv-cluster/bin/python benchmarks/judges.py --tasks one_liner --items 1000      # programs in the sandbox
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial

import ray

from prorl.cluster.judge import JudgeActor, RayJudge
from prorl.envs.extract import respond
from prorl.envs.registry import VerifierSpec, make_task, make_verifier
from prorl.local.judge import LocalJudge
from prorl.rollout.pipeline import Item, judge_all
from prorl.types import Judge

CHEAP = ("arithmetic", "word_list", "list_synthesis")
DEADLINE = 8.0


def responses(names: Sequence[str], count: int, turn: int) -> dict[int, Item]:
    """Right answers to problems that no other turn asks, as some verifiers remember theirs."""
    tasks = [make_task(name) for name in names]
    draws = range(turn * count, (turn + 1) * count)
    problems = (tasks[draw % len(tasks)].problem(draw // len(tasks), "train") for draw in draws)
    return {
        ticket: (problem, respond(problem.solution.steps, problem.solution.answer))
        for ticket, problem in enumerate(problems)
        if problem.solution is not None
    }


def rate(judge: Judge, items: dict[int, Item]) -> float:
    """Verdicts per second."""
    begun = time.perf_counter()
    verdicts = judge_all(judge, items)
    taken = time.perf_counter() - begun
    assert all(verdict.status == "ok" for verdict in verdicts.values())
    return len(items) / taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, help="of each side (default 2)")
    parser.add_argument("--actors", type=int, default=1, help="that share the workers on Ray (default 1)")
    parser.add_argument("--items", type=int, default=8000, help="a turn (default 8000)")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each side (default 7)")
    parser.add_argument("--tasks", nargs="+", default=CHEAP, help=f"default {' '.join(CHEAP)}")
    arguments = parser.parse_args()
    turns = [responses(arguments.tasks, arguments.items, turn) for turn in range(1 + arguments.repeats)]
    make = partial(
        LocalJudge, partial(make_verifier, VerifierSpec(tasks=tuple(arguments.tasks))), deadline=DEADLINE
    )
    ray.init(address="local", num_cpus=arguments.workers, include_dashboard=False, log_to_driver=False)
    hosted = partial(make, workers=arguments.workers // arguments.actors)
    actor = ray.remote(JudgeActor).options(num_cpus=arguments.workers // arguments.actors)
    with (
        closing(make(workers=arguments.workers)) as beside,
        closing(
            RayJudge(lambda _: actor.remote(hosted), arguments.actors, deadline=DEADLINE, check=str)
        ) as away,
    ):
        beside.ready()
        _, *rates = [(rate(beside, items), rate(away, items)) for items in turns]
    for local, remote in rates:
        print(f"beside the driver {local:8,.0f}/s   on Ray {remote:8,.0f}/s   ratio {remote / local:.2f}")
    print(f"median ratio {statistics.median(remote / local for local, remote in rates):.2f}")
    ray.shutdown()


if __name__ == "__main__":
    main()
