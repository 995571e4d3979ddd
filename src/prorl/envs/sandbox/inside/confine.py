"""What the fork server gives up once, and what each program's process gives up before it runs a line.

In this order, because each step needs what a later one takes away: user, new privileges, limits, files (Landlock),
system calls (seccomp).
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys
from dataclasses import dataclass

from prorl.envs.sandbox.inside import landlock, seccomp
from prorl.envs.sandbox.inside.libc import SET_DUMPABLE, SET_NO_NEW_PRIVS, SET_PDEATHSIG, prctl

NOBODY = 65534
OPEN_FILES = 64
STACK_BYTES = 64 << 20
FIRST_KEPT = 16  # descriptors that children keep start here, out of the way of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What programs are put under; prepared once, applied in every child."""

    rules: int | None  # descriptor of Landlock rules
    filter: bytes | None  # seccomp program
    keep: tuple[int, ...]  # descriptors through which the standard library stays readable


def prepare(*, landlock_abi: int, filtered: bool) -> Confinement:
    """Drop root, bind this process's life to its parent's and build the rules for the children.

    The standard library stays importable even where it lies in a directory that only root may enter: its
    folders are opened before, and imports go through these descriptors after.

    Raises:
        OSError: the kernel refuses something.
        RuntimeError: root cannot be given up.
    """
    folders = [path for path in sys.path if os.path.isdir(path)]
    opened = [_high(os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in folders]
    drop_root()
    die_with_parent()
    prctl(SET_NO_NEW_PRIVS, 1)
    prctl(SET_DUMPABLE, 0)  # children inherit it; a crash must not start the host's handler of core dumps
    reachable = all(os.access(path, os.R_OK | os.X_OK) for path in folders)
    if not reachable:
        _import_through(dict(zip(folders, opened, strict=True)))
    rules = _high(landlock.ruleset(landlock_abi, opened)) if landlock_abi else None
    if reachable:
        for descriptor in opened:
            os.close(descriptor)
    return Confinement(
        rules=rules,
        filter=seccomp.assemble(os.uname().machine) if filtered else None,
        keep=() if reachable else tuple(opened),
    )


def apply(confinement: Confinement) -> None:
    """Give up files and system calls for good; the last thing before a program's first line."""
    if confinement.rules is not None:
        landlock.restrict(confinement.rules)
        os.close(confinement.rules)
    if confinement.filter is not None:
        seccomp.install(confinement.filter)


def drop_root() -> None:
    """Become nobody where the process is root.

    Raises:
        RuntimeError: the process may not change its user.
    """
    if os.geteuid() != 0 and os.getuid() != 0:
        return
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as error:
        raise RuntimeError(f"root cannot become user {NOBODY} here: {error}") from error


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that ends; a change of user undoes it."""
    prctl(SET_PDEATHSIG, signal.SIGKILL)


def limit_resources(seconds: int, memory_bytes: int, *, processes: bool) -> None:
    """Limits that hold even when nobody watches: seconds of processor time, bytes of address space.

    Without `processes` no new process or thread can be made.
    """
    limits = [
        (resource.RLIMIT_CPU, seconds, seconds + 1),
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_STACK, STACK_BYTES, resource.RLIM_INFINITY),
    ]
    if not processes:
        limits.append((resource.RLIMIT_NPROC, 0, 0))
    for kind, soft, hard in limits:
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
    for folder, descriptor in descriptors.items():
        alias = f"/proc/self/fd/{descriptor}"
        sys.path[:] = [alias if path == folder else path for path in sys.path]
        for module in list(sys.modules.values()):
            paths = getattr(module, "__path__", None)
            if isinstance(paths, list):
                paths[:] = [
                    alias + path[len(folder) :] if path.startswith(folder) else path for path in paths
                ]
    sys.path_importer_cache.clear()
