"""A small parent that keeps a trainer alive: restarts it after a crash or a hang, and passes signals on.

It imports no torch and holds no state of the run: the trainer resumes exactly from its newest whole checkpoint. It
decides whether to start it again, and the trainer dies with it.
"""

import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prorl.envs.sandbox.inside.confine import SET_PDEATHSIG, prctl
from prorl.envs.seeds import HASHING
from prorl.run.layout import HEARTBEAT, LOG, STACKS, is_born

DONE, FAILED, USAGE = 0, 1, 2
CRASHED = 70  # a trainer's after a bug, or where the system refused something; a supervisor's that gave up
NO_MEMORY = 71  # the trainer stopped, saved, before the machine ran out
PREEMPTED = 75  # stopped by SIGUSR1, saved: start again with `prorl resume`
HUNG_UP = 129  # SIGHUP: the terminal was closed; saved
INTERRUPTED = 130  # Ctrl-C
QUIT = 131  # Ctrl-\: stopped at once, unsaved
TERMINATED = 143  # SIGTERM

STOP_SIGNALS = {
    signal.SIGHUP: HUNG_UP,
    signal.SIGINT: INTERRUPTED,
    signal.SIGTERM: TERMINATED,
    signal.SIGUSR1: PREEMPTED,
}
"""Signals that ask a trainer to save and stop → its exit status then."""
AT_ONCE = signal.SIGQUIT  # a trainer writes down where its threads are, and dies
TAKING_UP = 3600.0  # seconds in which a trainer that goes on with a run has its first heartbeat
ENDED = "PRORL_ENDED"  # in the environment of a trainer that was started again: how the one before it ended
WHERE = signal.SIGUSR2  # asks a trainer to write down where its threads are

_STATUS = {**STOP_SIGNALS, AT_ONCE: QUIT}  # of a supervisor that was asked to stop

_FINAL = {DONE, FAILED, USAGE, *STOP_SIGNALS.values()}
_FROM_TERMINAL = 0x80  # SI_KERNEL: a terminal's Ctrl-C, which the whole process group has heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The last sign of life of a trainer."""

    pid: int
    count: int  # of phases so far: two equal beats are one
    phase: str
    deadline: float  # seconds
    step: int  # completed steps
    at: float  # wall clock, for people
    trouble: str = ""  # what says that the policy no longer works
    ends: bool = False  # by itself: not as Ray ends a process whose cluster has lost its head, with status 1


def read_beat(folder: Path) -> Beat | None:
    """The last beat in a run directory; None where there is none to read."""
    try:
        return Beat(**json.loads((folder / HEARTBEAT).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When a restart comes, and when there is no use in another."""

    crashes: int = 4  # in a row without a step more than ever before
    lasting: float = 300.0  # seconds of them, where something is saved: a disk or the memory may come back
    first_wait: float = 1.0  # seconds before a restart; doubled each time
    longest_wait: float = 60.0
    tick: float = 0.5  # seconds between two looks at the heartbeat
    dump: float = 2.0  # seconds in which a hanging trainer may write down its stacks
    taking_up: float = TAKING_UP

    def wait(self, crashes: int) -> float:
        """Seconds before the restart after so many crashes in a row."""
        return float(min(self.longest_wait, self.first_wait * 2 ** (crashes - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one trainer ended."""

    status: int  # as `subprocess` says it: negative for a signal
    beat: Beat | None  # its last sign of life
    reached: int  # the most steps that it has told of: more than the last where it was rolled back
    hung: bool

    def __str__(self) -> str:
        place = f" at step {self.beat.step} in phase {self.beat.phase!r}" if self.beat else ""
        if self.hung:
            return f"the trainer hung{place}"
        if self.status == NO_MEMORY:
            return f"the trainer stopped{place} for want of memory, saved"
        if self.status < 0:
            names = {kind.value: kind.name for kind in signal.Signals}  # most real-time signals have none
            return f"the trainer was killed by {names.get(-self.status, -self.status)}{place}"
        return f"the trainer ended with status {self.status}{place}"


class Supervisor:
    """Runs `first`, and after a crash `again` as soon as there is a checkpoint in `folder` to resume from."""

    def __init__(
        self,
        first: Sequence[str],
        again: Sequence[str],
        folder: Path,
        *,
        say: Callable[[str], None],
        patience: Patience,
    ) -> None:
        self._first, self._again, self._folder, self._say = first, again, folder, say
        self._patience = patience
        self._awaited = {*stop_signals(), AT_ONCE, signal.SIGCHLD, signal.SIGALRM}
        self._asked: signal.Signals | None = None
        self._best = -1  # the most steps any trainer completed, since one of them was rolled back
        self._reached = -1  # the most steps of all
        self._left: Beat | None = None  # by another trainer, before this one began
        self._crashes = 0  # since then
        self._since = 0.0  # when the first of them was, monotonic
        self._born = is_born(folder)  # whether there ever was a checkpoint to resume from

    def run(self) -> int:
        """Until the run is done, somebody stops it, or restarts are no use; returns the exit status."""
        command, environment = self._first, {**HASHING, **os.environ}
        with _blocked(self._awaited) as mask:
            while True:
                ending = self._live(command, environment, mask)
                command = self._again if self._born else self._first
                if self._is_final(ending):
                    return ending.status
                self._log(f"{ending}{self._keep_stacks() if ending.status < 0 and not ending.hung else ''}")
                environment[ENDED] = str(ending)
                if self._asked is not None:
                    self._log(f"stopped at once, unsaved; {self._way_on()}")
                    return _STATUS[self._asked]
                step = ending.beat.step if ending.beat else 0
                # It was rolled back: what it did before is no measure.
                if step < ending.reached > self._reached:
                    self._best = -1
                self._reached = max(self._reached, ending.reached)
                self._crashes = 1 if step > self._best else self._crashes + 1
                self._best = max(self._best, step)
                if self._crashes == 1:
                    self._since = time.monotonic()
                passing = self._born and time.monotonic() - self._since < self._patience.lasting
                if self._crashes >= self._patience.crashes and not passing:
                    self._say(
                        f"gave up after {self._crashes} crashes without a step of progress; the last: {ending}; "
                        f"{self._way_on()}"
                    )
                    return CRASHED
                self._back_off()
                if self._asked is not None:
                    return _STATUS[self._asked]

    def _is_final(self, ending: Ending) -> bool:
        """Whether it was meant, or another trainer would end alike."""
        if ending.status != FAILED:
            return ending.status in _FINAL
        if not self._born and not self._crashes and not self._folder.exists():
            return True  # it took back what it had begun, its heartbeat too
        gone = self._born and not is_born(self._folder)  # with its disk, perhaps for seconds
        # A library has ended it, or what ended the one before it has taken what it needed to begin.
        cut_off = not ending.beat.ends if ending.beat else self._crashes > 0
        return not (gone or cut_off)

    def _way_on(self) -> str:
        if self._born:
            return f"see {self._folder / LOG}, then go on with: prorl resume {self._folder}"
        return "nothing was saved yet: mend what it printed above, if anything, and begin it again"

    def _live(self, command: Sequence[str], environment: Mapping[str, str], mask: set[int]) -> Ending:
        """One trainer, from its start to its end."""
        parent, self._left = os.getpid(), read_beat(self._folder)

        def settle() -> None:
            prctl(SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before we could ask to die with it
                os._exit(CRASHED)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        try:
            trainer = subprocess.Popen(command, env=environment, preexec_fn=settle)
        except OSError as error:  # for want of memory or processes, which may pass
            self._log(f"no trainer can be started: {error}")
            return Ending(status=CRASHED, beat=None, reached=0, hung=False)
        return self._watch(trainer)

    def _watch(self, trainer: subprocess.Popen[bytes]) -> Ending:
        """Pass signals on and look at the heartbeat until the trainer has ended.

        It hangs when one beat has been the last for longer than its deadline, in time that we saw pass: neither a
        jump of the clock nor a machine that slept condemns a trainer.
        """
        beat, reached, quiet, hung, seen = None, 0, 0.0, False, time.monotonic()
        while trainer.poll() is None:
            self._hear(self._patience.tick, trainer)
            now = time.monotonic()
            # More than a tick or two: it was this process that did not run, stopped or on a sleeping machine.
            passed, seen = min(now - seen, 2 * self._patience.tick), now
            self._born = self._born or is_born(self._folder)
            last, beat = beat, self._beat(trainer.pid) or beat
            reached = max(reached, beat.step if beat else 0)
            quiet = quiet + passed if beat == last else 0.0
            deadline = beat.deadline if beat else self._patience.taking_up if self._born else math.inf
            if quiet > deadline:
                hung = True
                self._end(trainer, f"for {deadline:.0f} s in phase {beat.phase if beat else 'taking up'!r}")
        # Later the folder may be gone: nothing is begun anew then.
        self._born = self._born or is_born(self._folder)
        beat = self._beat(trainer.pid) or beat
        return Ending(status=trainer.returncode, beat=beat, reached=reached, hung=hung)

    def _hear(self, seconds: float, trainer: subprocess.Popen[bytes] | None = None) -> None:
        """Wait for a signal; one that asks to stop is passed on, unless the trainer has heard it itself.

        The end of the wait is a signal too: CPython's `sigtimedwait` invents one when a stop outlasts its timeout.
        """
        # Again after a tick: where there are other threads, one of them may have taken the alarm.
        signal.setitimer(signal.ITIMER_REAL, seconds, self._patience.tick)
        heard = signal.sigwaitinfo(self._awaited)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if heard.si_signo not in _STATUS:
            return
        self._asked = signal.Signals(heard.si_signo)
        if trainer is None:
            return
        if self._asked == AT_ONCE:  # a second one would cut off the stacks of the first
            with suppress(subprocess.TimeoutExpired):
                trainer.wait(self._patience.dump)
        if heard.si_code != _FROM_TERMINAL or self._asked != signal.SIGINT:
            trainer.send_signal(self._asked)  # but not a second Ctrl-C: to stop at once

    def _beat(self, pid: int) -> Beat | None:
        beat = read_beat(self._folder)
        # Where a container was started again, the trainer of the one before may have had this number.
        return beat if beat is not None and beat.pid == pid and beat != self._left else None

    def _end(self, trainer: subprocess.Popen[bytes], silence: str) -> None:
        """Ask a hanging trainer where it is, keep the answer, and kill it."""
        trainer.send_signal(WHERE)
        time.sleep(self._patience.dump)
        self._log(f"no sign of life {silence}{self._keep_stacks()}")
        trainer.kill()
        trainer.wait()

    def _keep_stacks(self) -> str:
        """Move what a trainer wrote of where its threads were out of the next one's way; says where it is."""
        stacks = self._folder / f"stacks-{time.strftime('%Y%m%d-%H%M%S')}.txt"
        with suppress(OSError):
            if (self._folder / STACKS).stat().st_size:
                (self._folder / STACKS).rename(stacks)
                return f"; stacks in {stacks.name}"
        return ""

    def _back_off(self) -> None:
        """Wait before the restart, until somebody asks to stop."""
        seconds = self._patience.wait(self._crashes)
        self._log(f"starting it again in {seconds:.0f} s")
        end = time.monotonic() + seconds
        while self._asked is None and (left := end - time.monotonic()) > 0:
            self._hear(left)

    def _log(self, text: str) -> None:
        self._say(text)
        with suppress(OSError), (self._folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


def stop_signals() -> set[signal.Signals]:
    """The signals of `STOP_SIGNALS` that this process hears: one that nohup made deaf to SIGHUP stays so."""
    return {
        kind for kind in STOP_SIGNALS if kind != signal.SIGHUP or signal.getsignal(kind) != signal.SIG_IGN
    }


@contextmanager
def _blocked(awaited: set[signal.Signals]) -> Iterator[set[int]]:
    """Hold back the signals that are waited for; yields the mask a child is to start with."""
    mask: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, awaited))
    alarm = signal.signal(signal.SIGALRM, lambda _number, _frame: None)  # one that comes too late ends nobody
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGALRM, alarm)
