"""System calls that the standard library does not offer, through the C library that is loaded anyway."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)  # opened once: each opening costs a child more than the call

SET_PDEATHSIG, SET_DUMPABLE, GET_SECCOMP, SET_SECCOMP, SET_NO_NEW_PRIVS = 1, 4, 21, 22, 38  # options of prctl


def syscall(number: int, *arguments: int | bytes | None) -> int:
    """Result of a system call by number.

    Raises:
        OSError: the kernel refuses it.
    """
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _checked(int(_LIBC.syscall(ctypes.c_long(number), *words)), f"system call {number}")


def prctl(option: int, value: int, data: bytes | None = None) -> int:
    """Change or read an attribute of this process.

    Raises:
        OSError: the kernel refuses it.
    """
    return _checked(int(_LIBC.prctl(option, ctypes.c_ulong(value), data, None, None)), f"prctl {option}")


def _checked(result: int, name: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name} refused: {os.strerror(code)}")
    return result
