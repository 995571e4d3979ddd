"""A person at a terminal, an out-of-memory killer and a power cut, all at once, over runs that must not notice.

    python killer.py RECIPE FOLDER SEED FAULTS

Runs are trained one after the other in FOLDER/run_N, each by a supervisor at a terminal of its own, until there were
FAULTS faults and the last run is done. Faults are drawn from a table, in a shuffled order so that each kind comes
equally often, and besides trainers are killed at chosen points of the code. What was done is printed as JSON.
Supervisors and trainers are forked, because importing torch takes longer than what they do.
"""

import ctypes
import json
import os
import pty
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from prorl.run.layout import holder, is_born
from prorl.run.supervise import Ending, Patience, Supervisor
from support.processes import command, descendants, eventually, parent, state

PAUSE = (0.05, 1.2)  # seconds between two faults
STOPPED = (0.02, 0.4)  # seconds for which something is stopped: less than a program in the sandbox may take
AWAY = 0.2  # seconds between Ctrl-Z and fg
ARMED = 0.6  # share of the trainers that are to be killed at a chosen point

TORN = "torn line"

Log = Callable[[str], None]


# -- where a trainer kills itself


def points() -> dict[str, tuple[Any, str, int]]:
    """Where to kill: name → owner, attribute, and about how often a trainer comes by."""
    from prorl import loop
    from prorl.envs import files
    from prorl.learn import optim
    from prorl.learn.learner import TorchLearner
    from prorl.local.judge import LocalJudge
    from prorl.run import checkpoint, journal
    from prorl.run.journal import Journal
    from prorl.run.store import RunStore

    return {
        "optimizer written, weights not": (optim.torch, "save", 3),
        "checkpoint or reference not yet synced": (files, "fsync_tree", 4),
        "checkpoint or reference in place, folder not synced": (files.Path, "rename", 6),
        "old checkpoint half deleted": (checkpoint.shutil, "rmtree", 3),
        "reset": (TorchLearner, "reset_reference", 2),
        "reference being stored": (RunStore, "write_reference", 2),
        "validation": (loop, "sample_problems", 2),
        "judging": (LocalJudge, "poll", 12),
        "update begun": (TorchLearner, "begin_update", 4),
        "update": (optim.GuardedAdamW, "step", 4),
        "journal": (Journal, "append", 8),
        "journal being cut": (Journal, "truncate", 1),
        "journal cut": (RunStore, "_discard", 1),
        TORN: (journal, "_write", 8),
    }


def arm(dice: random.Random, log: Log) -> None:
    """Let this process be killed before or after the n-th call of a function, or in the middle of a journal line."""
    where = dice.choice([*points()])
    owner, name, often = points()[where]
    after = dice.random() < 0.5 and where != TORN
    left = dice.choice([1, dice.randint(1, often)])
    original = getattr(owner, name)

    def die() -> None:
        log(f"trainer killed: {where}")
        os.kill(os.getpid(), signal.SIGKILL)

    def fatal(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and where == TORN:
            descriptor, data = arguments
            original(descriptor, data[: len(data) // 2])
        if left == 0 and not after:
            die()
        result = original(*arguments, **named)
        if left == 0:
            die()
        return result

    setattr(owner, name, fatal)


# -- the family: terminal, supervisor, trainer; judge workers and sandbox servers are the product's own


class Child(ForkProcess):
    """A forked process with as much of `subprocess.Popen` as a supervisor asks for; dies with its parent."""

    def __init__(self, main: Callable[[], None], mask: set[int]) -> None:
        super().__init__()
        self._main, self._mask, self._forked_by = main, mask, os.getpid()
        self.start()

    def run(self) -> None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        assert os.getppid() == self._forked_by
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        self._main()

    @property
    def returncode(self) -> int | None:
        return self.exitcode

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self.join(timeout)
        return self.exitcode

    def send_signal(self, kind: int) -> None:
        if self.exitcode is None:
            os.kill(self.pid, kind)


class Forking(Supervisor):
    """The supervisor, with trainers that need not import torch; it sees that no checkpoint is ever lost."""

    def __init__(self, run: Path, config: Any, seed: int, log: Log, armed: Callable[[], bool]) -> None:
        patience = Patience(crashes=10**6, first_wait=0.01, longest_wait=0.01, tick=0.1)
        super().__init__((), (), run, say=print, patience=patience)
        self._run, self._config, self._log_fault, self._armed = run, config, log, armed
        self._dice = random.Random(seed)
        self._newest = -1

    def _live(self, command: Sequence[str], environment: Mapping[str, str], mask: set[int]) -> Ending:
        from prorl.run.store import RunStore

        newest = RunStore.open(self._run).latest_checkpoint().step if is_born(self._run) else -1
        assert newest >= self._newest, f"the checkpoint of step {self._newest} is lost"
        self._newest = newest
        chance, seed = self._dice.random(), self._dice.random()
        return self._watch(Child(lambda: self._train(random.Random(seed) if chance < ARMED else None), mask))

    def _train(self, dice: random.Random | None) -> None:
        from prorl import session
        from support.runs import quiet

        if dice is not None and self._armed():
            arm(dice, self._log_fault)
            armed(self._run).write_text(str(os.getpid()))
        if is_born(self._run):
            state = session.resume_run(self._run, quiet())
        else:
            state = session.start_run(self._config, self._run, quiet())
        assert state.stopped == "done"


def terminal(main: Callable[[], int], output: Path) -> tuple[int, int]:
    """A shell of one job at a terminal of its own: its process, and the descriptor at which keys are pressed.

    It takes a job that Ctrl-Z has stopped to the foreground again, and ends like the job.
    """
    pid, keyboard = pty.fork()
    if pid:
        return pid, keyboard
    with suppress(BaseException):
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        job = os.fork()
        if job == 0:
            run_job(main, output)
        while True:
            _, status = os.waitpid(job, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                os._exit(os.waitstatus_to_exitcode(status) % 256)
            time.sleep(AWAY)
            os.killpg(job, signal.SIGCONT)
    os._exit(1)


def run_job(main: Callable[[], int], output: Path) -> None:
    """Become the foreground job of a terminal, with output to a file."""
    status = 1
    try:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        with output.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        status = main()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


# -- faults from outside


class Family:
    """The processes of one run at a terminal."""

    def __init__(self, run: Path, shell: int, keyboard: int, dice: random.Random) -> None:
        self.run, self.shell, self.keyboard, self.dice = run, shell, keyboard, dice

    def members(self, role: str) -> list[int]:
        """Processes that are now what they are asked for."""
        everybody = sorted(descendants(self.shell))
        supervisors = [pid for pid in everybody if parent(pid) == self.shell]
        forked = [pid for pid in everybody if "multiprocessing.forkserver" in command(pid)]
        return {
            "supervisor": supervisors,
            "trainer": [pid for pid in everybody if parent(pid) in supervisors],
            "judge worker": [pid for pid in everybody if "spawn_main" in command(pid)],
            "worker": [pid for pid in forked if parent(pid) in forked],
            "fork server": [pid for pid in forked if parent(pid) not in forked],
            # A program that it runs has been forked, so it looks like its server.
            "sandbox server": [
                pid
                for pid in everybody
                if "sandbox.inside import server" in command(pid) and command(parent(pid)) != command(pid)
            ],
            "everybody": everybody,
        }[role]

    def kill(self, role: str) -> bool:
        """Kill one of a role, if there is one; not a trainer that is going to kill itself."""
        found = self.members(role)
        if role in ("trainer", "supervisor") and self._is_armed():
            return False
        if found:
            send([self.dice.choice(found)], signal.SIGKILL)
        return bool(found)

    def _is_armed(self) -> bool:
        return armed(self.run).exists() and int(armed(self.run).read_text() or 0) in self.members("trainer")

    def stop(self, role: str) -> bool:
        """Stop one of a role, or everybody, and let it go on after a while."""
        found = self.members(role)
        if found and role != "everybody":
            found = [self.dice.choice(found)]
        send(found, signal.SIGSTOP)
        time.sleep(self.dice.uniform(*STOPPED))
        send(found, signal.SIGCONT)
        return bool(found)

    def press_ctrl_z(self) -> bool:
        """Press it, and wait until the shell has taken the job to the foreground again."""
        found = self.members("trainer")
        if not found:
            return False
        os.write(self.keyboard, b"\x1a")
        time.sleep(2 * AWAY)
        eventually(lambda: all(state(pid) != "T" for pid in found))
        return True


ROLES = ("trainer", "supervisor", "judge worker", "worker", "fork server", "sandbox server")
FAULTS: Mapping[str, Callable[[Family], bool]] = {
    **{f"kill {role}": partial(Family.kill, role=role) for role in ROLES},
    **{f"stop {role}": partial(Family.stop, role=role) for role in (*ROLES, "everybody")},
    "Ctrl-Z and fg": Family.press_ctrl_z,
}
"""Faults by name; each says whether there was anybody to be hit."""


def armed(run: Path) -> Path:
    """Holds the process that is going to kill itself."""
    return run.with_suffix(".armed")


def send(pids: Sequence[int], kind: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, kind)


class Deck:
    """The names of faults in an order drawn from dice, each equally often."""

    def __init__(self, names: Sequence[str], dice: random.Random) -> None:
        self._names, self._dice = names, dice
        self._left: list[str] = []

    def draw(self) -> str:
        if not self._left:
            self._left = self._dice.sample(self._names, len(self._names))
        return self._left.pop()

    def put_back(self, name: str) -> None:
        self._left.insert(0, name)


def disturb(family: Family, deck: Deck, log: Log, enough: Callable[[], bool]) -> int:
    """One fault after the other until the terminal is left or there were enough; its exit status."""
    while True:
        pid, status = os.waitpid(family.shell, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(family.dice.uniform(*PAUSE))
        if enough():
            continue
        name = deck.draw()
        if FAULTS[name](family):
            log(name)
        else:
            deck.put_back(name)


def main(recipe: str, folder: Path, seed: int, faults: int) -> None:
    """Disturb until there were enough faults, and let the last run end."""
    from prorl.config.recipe import load_recipe
    from prorl.envs.families.programs import puzzles

    points(), puzzles()  # once, for all that are forked
    config, done = load_recipe(recipe), folder / "faults"
    done.touch()
    dice = random.Random(seed)
    deck = Deck(os.environ.get("CHAOS_FAULTS", ",".join(FAULTS)).split(","), dice)

    def log(name: str) -> None:
        with done.open("a") as file:
            file.write(f"{name}\n")

    def enough() -> bool:
        return len(done.read_text().splitlines()) >= faults

    runs = 0
    while not enough():
        run, status = folder / f"run_{runs}", -1
        computing = config.model_copy(update={"workers": 1 + runs % 2})  # in two processes: a slower start
        runs += 1
        while status != 0:
            supervisor = Forking(run, computing, dice.randrange(1 << 32), log, lambda: not enough())
            shell, keyboard = terminal(supervisor.run, folder / f"{run.name}.log")
            family = Family(run, shell, keyboard, dice)
            try:
                status = disturb(family, deck, log, enough)
            finally:
                os.close(keyboard)
            if status not in (0, 256 - signal.SIGKILL):
                sys.exit(
                    f"the supervisor ended with {status}\n{(folder / f'{run.name}.log').read_text()[-4000:]}"
                )
            # A trainer that lost its supervisor may still be dying.
            eventually(lambda run=run: holder(run) is None)
    print(json.dumps({"runs": runs, "faults": done.read_text().splitlines()}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
