"""What the fork server gives up once, and what each program's process gives up before it runs a line.

In this order, because each step needs what a later one takes away: user, new privileges, limits, files (Landlock),
system calls (seccomp). With Landlock a process gives up every file, TCP port, foreign signal and abstract socket
except what it names; what an old version (ABI) cannot refuse, seccomp refuses anyway.
"""

import ctypes
import errno
import fcntl
import os
import re
import resource
import signal
import struct
import sys
from dataclasses import dataclass

NOBODY = 65534
OPEN_FILES = 64
STACK_BYTES = 64 << 20
FIRST_KEPT = 16  # descriptors that children keep start here, out of the way of their own

_LIBC = ctypes.CDLL(None, use_errno=True)  # opened once: each opening costs a child more than the call

FILTER_MODE = 2  # of seccomp
SET_PDEATHSIG, SET_DUMPABLE, GET_SECCOMP, SET_SECCOMP, SET_NO_NEW_PRIVS = 1, 4, 21, 22, 38  # options of prctl

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of rights, bits from 0
_TCP_RIGHTS = 0b11  # bind, connect; from ABI 4
_SCOPES = 0b11  # abstract Unix sockets, signals; from ABI 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What programs are put under; prepared once, applied in every child."""

    rules: int | None  # descriptor of Landlock rules
    filter: bytes | None  # seccomp program
    keep: tuple[int, ...]  # descriptors through which the standard library stays readable


def prepare(*, landlock: int, filtered: bool) -> Confinement:
    """Drop root, bind this process's life to its parent's and build the children's rules (Landlock ABI `landlock`).

    The standard library may lie where only root can enter: it is opened before, and imported through descriptors.
    Raises OSError where the kernel refuses something, RuntimeError where root cannot be given up.
    """
    folders = [path for path in sys.path if os.path.isdir(path)]
    opened = [_high(os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in folders]
    _drop_root()
    prctl(SET_PDEATHSIG, signal.SIGKILL)  # when the parent ends; a change of user undoes it
    prctl(SET_NO_NEW_PRIVS, 1)
    prctl(SET_DUMPABLE, 0)  # children inherit it; a crash must not start the host's handler of core dumps
    reachable = all(os.access(path, os.R_OK | os.X_OK) for path in folders)
    if not reachable:
        _import_through(dict(zip(folders, opened, strict=True)))
    rules = _high(ruleset(landlock, opened)) if landlock else None
    if reachable:
        for descriptor in opened:
            os.close(descriptor)
    code = assemble(os.uname().machine) if filtered else None
    return Confinement(rules=rules, filter=code, keep=() if reachable else tuple(opened))


def apply(confinement: Confinement) -> None:
    """Give up files and system calls for good, before a program's first line; needs PR_SET_NO_NEW_PRIVS."""
    if confinement.rules is not None:
        syscall(_RESTRICT_SELF, confinement.rules, 0)
        os.close(confinement.rules)
    if confinement.filter is not None:
        code = ctypes.create_string_buffer(confinement.filter, len(confinement.filter))
        header = struct.pack("@HP", len(confinement.filter) // 8, ctypes.addressof(code))
        prctl(SET_SECCOMP, FILTER_MODE, header)


def _drop_root() -> None:
    """Become nobody where the process is root; RuntimeError if it may not change its user."""
    if os.geteuid() != 0 and os.getuid() != 0:
        return
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as error:
        raise RuntimeError(f"root cannot become user {NOBODY} here: {error}") from error


def limit_resources(seconds: int, memory_bytes: int, *, processes: bool) -> None:
    """Limit seconds of processor time and bytes of address space; no new process or thread without `processes`."""
    limits = {
        resource.RLIMIT_CPU: (seconds, seconds + 1),
        resource.RLIMIT_AS: (memory_bytes, memory_bytes),
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
        resource.RLIMIT_STACK: (STACK_BYTES, resource.RLIM_INFINITY),
    }
    if not processes:
        limits[resource.RLIMIT_NPROC] = (0, 0)
    for kind, (soft, hard) in limits.items():
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            hard = ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
            soft = min(soft, hard)
        resource.setrlimit(kind, (soft, hard))


def _high(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_KEPT)
    os.close(descriptor)
    return moved


def _import_through(descriptors: dict[str, int]) -> None:
    """Replace folders by open descriptors of them wherever the import system looks."""
    packages = [getattr(module, "__path__", None) for module in list(sys.modules.values())]
    for folder, descriptor in descriptors.items():
        alias = f"/proc/self/fd/{descriptor}"
        sys.path[:] = [alias if path == folder else path for path in sys.path]
        for paths in packages:
            if isinstance(paths, list):
                paths[:] = [alias + p[len(folder) :] if p.startswith(folder) else p for p in paths]
    sys.path_importer_cache.clear()


def landlock_abi() -> int:
    """Version of Landlock in this kernel; 0 where there is none or it is switched off."""
    try:
        return syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def ruleset(version: int, readable: list[int]) -> int:
    """A descriptor of Landlock rules that allow nothing but reading beneath these open directories."""
    rights = (1 << _FILE_RIGHTS_BY_ABI[min(version, max(_FILE_RIGHTS_BY_ABI))]) - 1
    tcp = _TCP_RIGHTS if version >= 4 else 0
    scopes = _SCOPES if version >= 6 else 0
    attributes = struct.pack("=QQQ", rights, tcp, scopes)
    rules = syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    for directory in readable:
        syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", _READ_FILE | _READ_DIR, directory), 0)
    return rules


def syscall(number: int, *arguments: int | bytes | None) -> int:
    """Result of a system call that the standard library does not offer; OSError if the kernel refuses it."""
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _checked(int(_LIBC.syscall(ctypes.c_long(number), *words)), f"system call {number}")


def prctl(option: int, value: int, data: bytes | None = None) -> int:
    """Change or read an attribute of this process; OSError if the kernel refuses it."""
    return _checked(int(_LIBC.prctl(option, ctypes.c_ulong(value), data, None, None)), f"prctl {option}")


def _checked(result: int, name: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name} refused: {os.strerror(code)}")
    return result


# System calls: those of `system_calls.txt` are allowed, all others fail with EPERM.

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
_ENDS: list[_Line] = [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]  # allowed, refused


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
        *_ENDS,
    ]


def _only_plain_fcntl(number: int) -> list[_Line]:
    return [
        (_EQUAL, 0, 5, number),
        (_LOAD, 0, 0, _ARG1),
        (_EQUAL, 1, 0, _F_DUPFD_CLOEXEC),
        (_GREATER, 1, 0, _LAST_PLAIN_FCNTL),
        *_ENDS,
    ]


def _only_listed(column: int) -> list[_Line]:
    """Allow the ranges of consecutive numbers in ascending order; a number below the next range is in none."""
    pairs = [pair.split("/") for pair in re.sub("#.*", "", _ALLOWED).split()[1::2]]
    numbers = sorted(int(pair[column]) for pair in pairs if pair[column] != "-")
    lines: list[_Line] = []
    lows = [number for number in numbers if number - 1 not in numbers]
    highs = [number for number in numbers if number + 1 not in numbers]
    for low, high in zip(lows, highs, strict=True):
        lines += [(_GREATER, 3, 0, high), (_AT_LEAST, 0, 1, low), *_ENDS]
    return lines
