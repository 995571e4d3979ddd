"""Watches one program from the fork server: passes its bytes on, and ends it at the first limit it breaks.

When `watch` returns the process is dead and reaped, and all that it wrote within the limits has been passed on.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from typing import Any

from prorl.envs.sandbox.inside.transfer import PARENT, available, give

LOOK = 0.2  # seconds between two looks at a silent program; a look that comes much later found this process stopped


class Pipe:
    """The reading end of what a program writes, and how many bytes more it may."""

    def __init__(self, descriptor: int, kind: bytes, allowance: int) -> None:
        self.descriptor = descriptor
        self.kind = kind
        self.left = allowance
        self.overrun = False

    def pass_on(self) -> bool:
        """Move what is there now, within the allowance, to the parent; whether there was anything."""
        waiting = available(self.descriptor)
        moved = min(waiting, self.left)
        if moved:
            give(self.kind, self.descriptor, moved)
            self.left -= moved
        self.overrun = waiting > moved
        return waiting > 0


def watch(pid: int, pipes: list[Pipe], allowed: float) -> dict[str, Any]:
    """How child `pid` ended: `cause` (exit, time or output), `signal` if one not of ours killed it, `cpu` seconds,
    `peak`, the bytes of memory that it held at most, and `seconds`, of the `allowed` ones, that it ran.

    Time in which this process was stopped, or the machine asleep, does not count.
    """
    cause, seconds = _wait(pid, pipes, allowed)
    os.kill(pid, signal.SIGKILL)  # it is ours until it is reaped, so this cannot hit another
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # where nothing forbids it, it may have children
    _, status, usage = os.wait4(pid, 0)
    for pipe in pipes:
        pipe.pass_on()
        os.close(pipe.descriptor)
    if cause == "exit" and any(pipe.overrun for pipe in pipes):
        cause = "output"
    died = cause == "exit" and os.WIFSIGNALED(status)
    return {
        "cause": cause,
        "signal": os.WTERMSIG(status) if died else 0,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss << 10,
        "seconds": seconds,
    }


def _wait(pid: int, pipes: list[Pipe], allowed: float) -> tuple[str, float]:
    """Pass bytes on until the child ends (exit) or breaks a limit (time, output); also the seconds that it took."""
    exited = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(exited, select.POLLIN)
    poll.register(PARENT, 0)  # hanging up is always reported
    for pipe in pipes:
        poll.register(pipe.descriptor, select.POLLIN)
    spent, looked = 0.0, time.monotonic()
    try:
        while spent < allowed:
            ready = {descriptor for descriptor, _ in poll.poll(min(LOOK, allowed - spent) * 1000)}
            now = time.monotonic()
            spent, looked = spent + min(now - looked, 2 * LOOK), now
            if PARENT in ready:
                raise SystemExit("the parent has gone")
            if exited in ready:
                return "exit", spent
            for pipe in pipes:
                if pipe.descriptor in ready:
                    more = pipe.pass_on()
                    if pipe.overrun:
                        return "output", spent
                    if not more:  # readable without a byte: the program has closed it
                        poll.unregister(pipe.descriptor)
        return "time", spent
    finally:
        os.close(exited)
