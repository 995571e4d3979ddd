"""The fork server: reads jobs from descriptor 0, runs each in a confined child, writes what happened to 1.

It is executed in a fresh interpreter, has never seen the trainer's memory, and ends when its parent does. The next
program starts from its memory, where freed memory keeps its content: a program could search it for another's solution
to the same problem. So the kernel moves a program's text in and its words out between descriptors.
"""

import fcntl
import gc
import importlib
import json
import math
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prorl.envs.sandbox.inside import confine, program, protocol
from prorl.envs.sandbox.inside.protocol import END, HEADER, HELLO, OUTPUT, READY, RESULT

PARENT = 0  # descriptor of jobs: hung up when the parent has ended
ANSWERS = 1
LOOK = 0.2  # seconds between two looks at a silent program; a look that comes much later found this process stopped
# what programs import most: loaded once, and importable even where the library's files are out of reach
PRELOADED = """
abc array ast atexit base64 binascii bisect calendar cmath collections.abc contextlib copy ctypes dataclasses datetime
decimal enum fractions functools hashlib heapq inspect io itertools json math numbers operator queue random re secrets
statistics string struct textwrap threading time traceback types typing unicodedata zlib
"""
STREAM_BYTES = 1 << 17  # on their way from a program; below `MAX_FRAME`, whatever the system's default


def main(settings: dict[str, Any]) -> None:
    """Prepare, say hello, serve until the parent goes; the settings are those of `link.command`."""
    sys.path.remove(settings["source"])
    sys.stdin = sys.stdout = None
    version = confine.landlock_abi() if settings["filtered"] else 0
    if settings["filtered"] and (machine := os.uname().machine) not in confine.AUDIT_ARCH:
        raise SystemExit(f"there is no system-call table for {machine}")
    if settings["needs_landlock"] and not version:
        raise SystemExit("this kernel has no Landlock")
    if settings["packages"]:
        program.load_numpy(settings["packages"])
    confinement = confine.prepare(landlock=version, filtered=settings["filtered"])
    for name in PRELOADED.split():
        with suppress(ImportError):  # an interpreter may be built without some of them
            importlib.import_module(name)
    program.prepare_interpreter()
    for name in [name for name in sys.modules if name.partition(".")[0] == "prorl"]:
        del sys.modules[name]  # a program's world holds no more than a plain interpreter's
    os.dup2(os.open(os.devnull, os.O_RDWR), 2)
    gc.disable()
    gc.freeze()  # a collection in a child would copy every page of the server
    protocol.send(ANSWERS, HELLO, b"")
    while (message := protocol.receive(PARENT)) is not None:
        _serve(json.loads(message), confinement)


def _serve(limits: dict[str, Any], confinement: confine.Confinement) -> None:
    """Run one program. Its text, and what it says, never enter this process: the next child would inherit them."""
    text, given = (take(length) for length in limits["lengths"])
    results, results_end = _stream()
    outputs, outputs_end = _stream()
    pid = os.fork()
    if pid == 0:
        _become_program(limits, confinement, (given, outputs_end, results_end, text))
    for descriptor in (results_end, outputs_end, given, text):
        os.close(descriptor)
    pipes = [Pipe(results, RESULT, limits["result_bytes"]), Pipe(outputs, OUTPUT, limits["output_bytes"])]
    protocol.send(ANSWERS, END, json.dumps(watch(pid, pipes, limits["seconds"])).encode())


def _stream() -> tuple[int, int]:
    """A reading and a writing end. Who writes must not be able to read: unlike a socket, a pipe can be opened again
    through /proc, and a program that takes back what is just being moved on leaves this process waiting for it.
    """
    reading, writing = socket.socketpair()
    writing.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BYTES)
    return reading.detach(), writing.detach()


def _become_program(limits: dict[str, Any], confinement: confine.Confinement, ends: tuple[int, ...]) -> None:
    """In the child: take on streams and limits, run the program, never return."""
    try:
        confine.prctl(confine.SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        given, output, results, text = ends
        null = os.open(os.devnull, os.O_RDWR)  # its own: flags of a shared one would reach the next program
        _keep_only((given, output if limits["script"] else null, null, results, text), confinement)
        processor = math.ceil(limits["seconds"]) + 1
        confine.limit_resources(processor, limits["memory_bytes"], processes=confinement.filter is None)
        confine.apply(confinement)
        os.write(program.RESULT, READY)
        program.run(limits["output_bytes"])
    except BaseException as error:  # before READY, so the parent knows that no line of the program has run
        os.write(program.RESULT, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(1)


def _keep_only(ends: tuple[int, ...], confinement: confine.Confinement) -> None:
    """Make `ends` the descriptors from 0 on, and close all others but the library's and the Landlock rules."""
    kept = [*confinement.keep, *([] if confinement.rules is None else [confinement.rules])]
    for target, source in enumerate([os.dup(end) for end in ends]):
        os.dup2(source, target, inheritable=True)
    low = len(ends)
    for descriptor in sorted(kept):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


@dataclass(slots=True)
class Pipe:
    """The reading end of what a program writes, and how many bytes more it may."""

    descriptor: int
    kind: bytes
    left: int
    overrun: bool = False

    def pass_on(self) -> bool:
        """Move what is there now, within the allowance, to the parent; whether there was anything."""
        (waiting,) = struct.unpack("@i", fcntl.ioctl(self.descriptor, termios.FIONREAD, bytes(4)))
        moved = min(waiting, self.left)
        if moved:
            protocol.write_all(ANSWERS, HEADER.pack(self.kind, moved))
            _move(self.descriptor, ANSWERS, moved)
            self.left -= moved
        self.overrun = waiting > moved
        return bool(waiting)


def watch(pid: int, pipes: list[Pipe], allowed: float) -> dict[str, Any]:
    """How child `pid` ended: `cause` (exit, time or output), `signal` if one not of ours killed it, `cpu_seconds`,
    `peak_bytes`, the memory that it held at most, and `seconds`, of the `allowed` ones, that it ran.

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
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss << 10,
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


def take(length: int) -> int:
    """A new descriptor to read the next `length` bytes from the parent; nobody can change what it holds."""
    descriptor = os.memfd_create("job", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    _move(PARENT, descriptor, length)
    os.lseek(descriptor, 0, os.SEEK_SET)
    # a script may not keep a file in its own standard input
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def _move(source: int, target: int, length: int) -> None:
    while length:
        moved = os.splice(source, target, length)
        if moved == 0:
            raise EOFError("the sender ended in the middle of a message")
        length -= moved
