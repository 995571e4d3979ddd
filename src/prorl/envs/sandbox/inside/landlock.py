"""Landlock: a process gives up every file, TCP port, foreign signal and abstract socket except what it names.

Each version of the kernel's interface (ABI) can refuse more; what an old one cannot, `seccomp` refuses anyway.
"""

from __future__ import annotations

import struct

from prorl.envs.sandbox.inside.libc import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of rights, bits from 0
_TCP_RIGHTS = 0b11  # bind, connect; from ABI 4
_SCOPES = 0b11  # abstract Unix sockets, signals; from ABI 6


def abi() -> int:
    """Version of Landlock in this kernel; 0 where there is none or it is switched off."""
    try:
        return syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def ruleset(version: int, readable: list[int]) -> int:
    """A descriptor of rules that allow nothing but reading beneath these directories (given as descriptors).

    Raises:
        OSError: the kernel refuses them.
    """
    rights = (1 << _FILE_RIGHTS_BY_ABI[min(version, max(_FILE_RIGHTS_BY_ABI))]) - 1
    tcp = _TCP_RIGHTS if version >= 4 else 0
    scopes = _SCOPES if version >= 6 else 0
    attributes = struct.pack("=QQQ", rights, tcp, scopes)
    rules = syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    for directory in readable:
        syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", _READ_FILE | _READ_DIR, directory), 0)
    return rules


def restrict(rules: int) -> None:
    """Put this process under the rules for good; needs PR_SET_NO_NEW_PRIVS.

    Raises:
        OSError: the kernel refuses.
    """
    syscall(_RESTRICT_SELF, rules, 0)
