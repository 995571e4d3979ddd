"""A process that trains in children and kills each of them, at a random moment or at a chosen point of the code.

    python killer.py RECIPE FOLDER SEED KILLS

Runs are trained one after the other in FOLDER/run_N until there were KILLS kills and the last run is done. What was
killed where is printed as JSON. Children are forked, because importing torch takes longer than what they do.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 1.5  # in which a random moment lies: about the life of a child that nobody kills


def points() -> dict[str, tuple[Any, str, int]]:
    """Where to kill: name → owner, attribute, and about how often a child comes by."""
    from prorl import loop
    from prorl.backends.local.judge import LocalJudge
    from prorl.learn import optim
    from prorl.learn.learner import TorchLearner
    from prorl.run import retention, sealed
    from prorl.run.journal import Journal
    from prorl.run.store import RunStore

    return {
        "optimizer written, weights not": (optim.torch, "save", 3),
        "checkpoint or reference not yet synced": (sealed, "fsync_tree", 4),
        "checkpoint or reference in place, folder not synced": (sealed, "fsync", 4),
        "old checkpoint half deleted": (retention.sealed.shutil, "rmtree", 3),
        "reset": (TorchLearner, "reset_reference", 2),
        "reference being stored": (RunStore, "write_reference", 2),
        "exam": (loop, "sit_exam", 2),
        "judging": (LocalJudge, "poll", 12),
        "update": (TorchLearner, "update", 4),
        "journal": (Journal, "append", 8),
    }


def arm(owner: Any, name: str, call: int, *, after: bool) -> None:
    """Let this process be killed before or after the n-th call of a function."""
    original = getattr(owner, name)
    left = call

    def fatal(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **named)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, fatal)


def tear_journal(call: int) -> None:
    """Let this process be killed in the middle of writing the n-th line of its journal."""
    from prorl.run import journal

    original, left = journal._write, call

    def torn(descriptor: int, data: bytes) -> None:
        nonlocal left
        left -= 1
        original(descriptor, data if left else data[: len(data) // 2])
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    journal._write = torn


def child(train: Callable[[], Any], prepare: Callable[[], None]) -> int:
    """The id of a new process that prepares its death and trains."""
    pid = os.fork()
    if pid:
        return pid
    try:
        prepare()
        train()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def attempt(train: Callable[[], Any], dice: random.Random) -> tuple[str, int]:
    """One child, and how it was to end; returns where it was killed and its wait status."""
    chosen = [*points(), "torn line"]
    where = dice.choice([*chosen, *["any moment"] * len(chosen)])
    if where == "any moment":
        pid = child(train, lambda: None)
        time.sleep(dice.uniform(0.05, SECONDS))
        os.kill(pid, signal.SIGKILL)  # one that has ended waits to be waited for
    elif where == "torn line":
        call = dice.randint(1, 8)
        pid = child(train, lambda: tear_journal(call))
    else:
        owner, name, often = points()[where]
        call, after = dice.randint(1, often), dice.random() < 0.5
        pid = child(train, lambda: arm(owner, name, call, after=after))
    return where, os.waitpid(pid, 0)[1]


def main(recipe: str, folder: Path, seed: int, kills: int) -> None:
    """Kill until there were enough, and let the last run end."""
    from prorl import launch
    from prorl.config.recipe import load_recipe
    from prorl.run.layout import is_born
    from prorl.run.store import RunStore
    from support.runs import quiet

    config = load_recipe(recipe)
    dice = random.Random(seed)
    killed: list[dict[str, Any]] = []
    runs = 0
    while len(killed) < kills:
        run = folder / f"run_{runs}"
        runs += 1
        newest = -1

        def train(run: Path = run) -> None:
            state = (
                launch.resume_run(run, quiet()) if is_born(run) else launch.start_run(config, run, quiet())
            )
            assert state.stopped == "done"

        while True:
            if len(killed) < kills:
                where, status = attempt(train, dice)
            else:
                where, status = "nowhere", os.waitpid(child(train, lambda: None), 0)[1]
            if status == 0:
                break
            assert os.WIFSIGNALED(status), f"a child failed by itself, to be killed at: {where}"
            found = RunStore.open(run).latest_checkpoint() if is_born(run) else None
            saved = -1 if found is None else found.step
            assert saved >= newest, f"after a kill at {where} the checkpoint of step {newest} is lost"
            newest = saved
            killed.append({"run": run.name, "where": where, "saved": saved})
    print(json.dumps({"runs": runs, "killed": killed}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
