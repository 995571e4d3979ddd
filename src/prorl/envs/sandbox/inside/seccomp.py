"""The system calls that a program may make (`system_calls.txt`), as a filter for the kernel; others give EPERM.

A list of what is allowed, not of what is forbidden: a call that a future kernel adds is refused until somebody
has thought about it. Nothing here creates a process or thread, reaches the network, another process or the
clock, changes a file by name, or waives a right that was taken before.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import struct

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

with open(os.path.join(os.path.dirname(__file__), "system_calls.txt"), encoding="ascii") as _file:
    _ALLOWED = _file.read()
_CLONE3 = 435
_FCNTL = (72, 25)
_PRLIMIT64 = (302, 261)
# F_DUPFD..F_SETFL; F_SETOWN and F_SETSIG would deliver a signal of choice to any process of the same user
_LAST_PLAIN_FCNTL = 4
_F_DUPFD_CLOEXEC = 1030

_NUMBER, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32  # low words in struct seccomp_data (little endian)
_LOAD, _EQUAL, _GREATER, _AT_LEAST, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x06  # BPF instructions
_X32_BIT = 0x40000000
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_Line = tuple[int, int, int, int]  # instruction, lines to skip if true, if false, operand


def assemble(machine: str) -> bytes:
    """The filter as an array of `struct sock_filter`, for one of `AUDIT_ARCH` (`os.uname().machine`)."""
    column = list(AUDIT_ARCH).index(machine)
    lines = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _KILL),
        (_EQUAL, 0, 1, _CLONE3),  # its flags are behind a pointer; told that it is missing, libc tries clone
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        *_only_own_limits(_PRLIMIT64[column]),
        *_only_plain_fcntl(_FCNTL[column]),
        *_only_listed(column),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _only_own_limits(number: int) -> list[_Line]:
    """Not those of others, and no new limit on processor time: to reach it would be a SIGKILL of its own making."""
    return [
        (_EQUAL, 0, 10, number),
        (_LOAD, 0, 0, _ARG0),
        (_EQUAL, 0, 7, 0),
        (_LOAD, 0, 0, _ARG1),
        (_EQUAL, 0, 4, resource.RLIMIT_CPU),
        (_LOAD, 0, 0, _ARG2),  # where the new limit is; both words are zero where it is only read
        (_EQUAL, 0, 3, 0),
        (_LOAD, 0, 0, _ARG2 + 4),
        (_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]


def _only_plain_fcntl(number: int) -> list[_Line]:
    return [
        (_EQUAL, 0, 5, number),
        (_LOAD, 0, 0, _ARG1),
        (_EQUAL, 1, 0, _F_DUPFD_CLOEXEC),
        (_GREATER, 1, 0, _LAST_PLAIN_FCNTL),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]


def _only_listed(column: int) -> list[_Line]:
    """Allow the ranges of consecutive numbers in ascending order; a number below the next range is in none."""
    pairs = [pair.split("/") for pair in re.sub("#.*", "", _ALLOWED).split()[1::2]]
    numbers = sorted(int(pair[column]) for pair in pairs if pair[column] != "-")
    lines: list[_Line] = []
    lows = [number for number in numbers if number - 1 not in numbers]
    highs = [number for number in numbers if number + 1 not in numbers]
    for low, high in zip(lows, highs, strict=True):
        lines += [
            (_GREATER, 3, 0, high),
            (_AT_LEAST, 0, 1, low),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        ]
    return lines
