"""Moves a program's text in and its words out without reading them.

The server's memory is what the next program starts from, and freed memory keeps its content: a program could
search it for another's solution to the same problem. So the kernel moves these bytes between descriptors.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from prorl.envs.sandbox.inside.frames import HEADER, write_all

PARENT = 0  # descriptor of jobs: hung up when the parent has ended
ANSWERS = 1


def take(length: int) -> int:
    """A new descriptor to read the next `length` bytes from the parent; nobody can change what it holds.

    Raises:
        EOFError: the parent has gone.
    """
    descriptor = os.memfd_create("job", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    _move(PARENT, descriptor, length)
    os.lseek(descriptor, 0, os.SEEK_SET)
    # a script may not keep a file in its own standard input
    fcntl.fcntl(
        descriptor,
        fcntl.F_ADD_SEALS,
        fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
    )
    return descriptor


def available(pipe: int) -> int:
    """Bytes that can be read from a pipe without waiting."""
    (count,) = struct.unpack("@i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)


def give(kind: bytes, pipe: int, length: int) -> None:
    """Send the parent a message whose payload is the next `length` bytes of `pipe`, which must be there."""
    write_all(ANSWERS, HEADER.pack(kind, length))
    _move(pipe, ANSWERS, length)


def _move(source: int, target: int, length: int) -> None:
    while length:
        moved = os.splice(source, target, length)
        if moved == 0:
            raise EOFError("the sender ended in the middle of a message")
        length -= moved
