"""The fork server: reads jobs from descriptor 0, runs each in a confined child, writes what happened to 1.

It is executed in a fresh interpreter and has never seen the trainer's memory, nor does it see a program's text or
results. It moves bytes, watches limits and says how a process ended. It ends when its parent does.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import socket
import sys
from contextlib import suppress
from typing import Any

from prorl.envs.sandbox.inside import child, confine, landlock, seccomp, world
from prorl.envs.sandbox.inside.frames import END, HELLO, OUTPUT, READY, RESULT, receive, send
from prorl.envs.sandbox.inside.transfer import ANSWERS, PARENT, take
from prorl.envs.sandbox.inside.watch import Pipe, watch

# what programs import most: loaded once, and importable even where the library's files are out of reach
PRELOADED = """
abc array ast atexit base64 binascii bisect calendar cmath collections.abc contextlib copy ctypes dataclasses datetime
decimal enum fractions functools hashlib heapq inspect io itertools json math numbers operator queue random re secrets
statistics string struct textwrap threading time traceback types typing unicodedata zlib
"""
STREAM_BYTES = 1 << 17  # on their way from a program; below `MAX_FRAME`, whatever the system's default


def main(settings: dict[str, Any]) -> None:
    """Prepare, say hello, serve until the parent goes; the settings are those of `wall.command`."""
    sys.path.remove(settings["source"])
    sys.stdin = sys.stdout = None
    version = landlock.abi() if settings["filtered"] else 0
    machine = os.uname().machine
    if settings["filtered"] and not seccomp.supported(machine):
        raise SystemExit(f"there is no system-call table for {machine}")
    if settings["needs_landlock"] and not version:
        raise SystemExit("this kernel has no Landlock")
    if settings["packages"]:
        world.load_numpy(settings["packages"])
    confinement = confine.prepare(landlock_abi=version, filtered=settings["filtered"])
    for name in PRELOADED.split():
        with suppress(ImportError):  # an interpreter may be built without some of them
            importlib.import_module(name)
    world.furnish()
    for name in [name for name in sys.modules if name.partition(".")[0] == "prorl"]:
        del sys.modules[name]  # a program's world holds no more than a plain interpreter's
    os.dup2(os.open(os.devnull, os.O_RDWR), 2)
    gc.disable()
    gc.freeze()  # a collection in a child would copy every page of the server
    hello = {"landlock": version, "uid": os.getuid(), "machine": machine}
    send(ANSWERS, HELLO, json.dumps(hello).encode())
    while (message := receive(PARENT)) is not None:
        _serve(json.loads(message[1]), confinement)


def _serve(limits: dict[str, Any], confinement: confine.Confinement) -> None:
    """Run one program. Its text, and what it says, never enter this process: the next child would inherit them."""
    program = take(limits["program_length"])
    given = take(limits["stdin_length"])
    results, results_end = _stream()
    outputs, outputs_end = _stream()
    pid = os.fork()
    if pid == 0:
        _become_program(limits, confinement, (given, outputs_end, results_end, program))
    for descriptor in (results_end, outputs_end, given, program):
        os.close(descriptor)
    pipes = [Pipe(results, RESULT, limits["result_bytes"]), Pipe(outputs, OUTPUT, limits["output_bytes"])]
    send(ANSWERS, END, json.dumps(watch(pid, pipes, limits["seconds"])).encode())


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
        confine.die_with_parent()
        os.setsid()
        given, output, results, program = ends
        null = os.open(os.devnull, os.O_RDWR)  # its own: flags of a shared one would reach the next program
        _keep_only((given, output if limits["script"] else null, null, results, program), confinement)
        filtered = confinement.filter is not None
        processor = math.ceil(limits["seconds"]) + 1
        confine.limit_resources(processor, limits["memory_bytes"], processes=not filtered)
        confine.apply(confinement)
        os.write(child.RESULT, READY)
        child.run(limits["output_bytes"])
    except (
        BaseException
    ) as error:  # before READY: that is how the parent knows that no line of the program has run
        os.write(child.RESULT, f"{type(error).__name__}: {error}".encode())
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
