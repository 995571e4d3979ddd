"""What this machine offers a sandbox: asked for piece by piece, then proved by running a program at each tier."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from prorl.envs.sandbox import link
from prorl.envs.sandbox.inside import confine, seccomp
from prorl.envs.sandbox.jobs import Job
from prorl.envs.sandbox.link import SandboxError, Tier
from prorl.envs.sandbox.sandbox import Policy, Sandbox

_NEW_USER_NAMESPACE = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x10000000) != 0)"
_COSTS = {  # of a piece that does not work
    "architecture": "system calls cannot be filtered on this architecture, so programs can only run with "
    "sandbox.unsafe=true",
    "seccomp": "without it a program can start processes and use the network, so neither tier A nor B works",
    "Landlock": "tier B is impossible, and tier A keeps programs from files by bubblewrap alone; a kernel from 5.13 "
    "has it",
    "bubblewrap": "tier A is impossible; apt-get install bubblewrap",
    "user namespaces": "tier A is impossible for a normal user",  # root can make the other namespaces by itself
    "user": "no tier works; run as a normal user",
    "tier A": "programs run at tier B: the kernel keeps them from files and network, but they share its namespaces",
    "tier B": "where tier A fails too, programs can only run with sandbox.unsafe=true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One piece: whether it works, what was seen, and what its lack costs, in one sentence each."""

    name: str
    works: bool
    detail: str
    cost: str = ""  # empty where it works


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All pieces, and the tier that `Policy(tier="auto")` reaches; None where it would refuse."""

    findings: tuple[Finding, ...]
    tier: Tier | None


def probe() -> Report:
    """Look at this machine; takes about a second, changes nothing."""
    machine, landlock, bubblewrap = os.uname().machine, confine.landlock_abi(), link.find_bubblewrap()
    try:
        filters = confine.prctl(confine.GET_SECCOMP, 0) >= 0
    except OSError:
        filters = False
    apart = [str(link.interpreter()), "-I", "-S", "-c", _NEW_USER_NAMESPACE]
    spaces = subprocess.run(apart, check=False).returncode == 0
    pieces = (
        ("architecture", machine in seccomp.AUDIT_ARCH, machine),
        ("seccomp", filters, "filters supported" if filters else "the kernel has none"),
        ("Landlock", landlock > 0, f"ABI {landlock}" if landlock else "missing or switched off"),
        ("bubblewrap", bubblewrap is not None, bubblewrap or "bwrap is not installed"),
        ("user namespaces", spaces, "can be made" if spaces else "refused by kernel, container or AppArmor"),
        ("user", *_user()),
        ("tier A", *_trial("A")),
        ("tier B", *_trial("B")),
    )
    findings = tuple(
        Finding(name=name, works=works, detail=detail, cost="" if works else _COSTS[name])
        for name, works, detail in pieces
    )
    tier_a, tier_b = findings[-2:]
    return Report(findings=findings, tier="A" if tier_a.works else "B" if tier_b.works else None)


def _user() -> tuple[bool, str]:
    if os.geteuid() != 0:
        return True, f"not root (uid {os.geteuid()})"
    try:
        with Sandbox.open(Policy(tier="C", unsafe=True)) as sandbox:
            (result,) = sandbox.run(Job(source="import os; print(os.getuid())", inputs=("",)))
    except SandboxError as error:
        return False, f"root, and stays it: {error}"
    return True, f"root, programs run as uid {str(result.value).strip()}"


def _trial(tier: Tier) -> tuple[bool, str]:
    try:
        with Sandbox.open(Policy(tier=tier)):
            return True, "a trial program ran"
    except SandboxError as error:
        return False, str(error)
