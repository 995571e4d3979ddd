"""What this machine offers a sandbox: asked for piece by piece, then proved by running a program at each tier.

A piece can be there and still fail in combination (a container that forbids namespaces, say), so the tier comes
from the proof and the pieces explain it.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from prorl.envs.sandbox import wall
from prorl.envs.sandbox.inside import landlock, seccomp
from prorl.envs.sandbox.inside.libc import GET_SECCOMP, prctl
from prorl.envs.sandbox.jobs import Job
from prorl.envs.sandbox.link import SandboxError
from prorl.envs.sandbox.sandbox import Policy, Sandbox
from prorl.envs.sandbox.wall import Tier

_NEW_USER_NAMESPACE = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x10000000) != 0)"


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
    tiers: tuple[Tier, ...] = ("A", "B")
    trials = [_trial(tier) for tier in tiers]
    reached = [tier for tier, trial in zip(tiers, trials, strict=True) if trial.works]
    pieces = (_architecture(), _seccomp(), _landlock(), _bubblewrap(), _user_namespaces(), _user())
    return Report(findings=(*pieces, *trials), tier=reached[0] if reached else None)


def _architecture() -> Finding:
    machine = os.uname().machine
    return _finding(
        "architecture",
        seccomp.supported(machine),
        machine,
        "system calls cannot be filtered on this architecture, so programs can only run with sandbox.unsafe=true",
    )


def _seccomp() -> Finding:
    try:
        works = prctl(GET_SECCOMP, 0) >= 0
    except OSError:
        works = False
    return _finding(
        "seccomp",
        works,
        "filters supported" if works else "the kernel has none",
        "without it a program can start processes and use the network, so neither tier A nor B works",
    )


def _landlock() -> Finding:
    version = landlock.abi()
    return _finding(
        "Landlock",
        version > 0,
        f"ABI {version}" if version else "missing or switched off",
        "tier B is impossible, and tier A keeps programs from files by bubblewrap alone; a kernel from 5.13 has it",
    )


def _bubblewrap() -> Finding:
    program = wall.find_bubblewrap()
    return _finding(
        "bubblewrap",
        program is not None,
        program or "bwrap is not installed",
        "tier A is impossible; apt-get install bubblewrap",
    )


def _user_namespaces() -> Finding:
    """Only a normal user needs them: root can make the other namespaces by itself, where the machine lets it."""
    tried = subprocess.run([wall.interpreter(), "-I", "-S", "-c", _NEW_USER_NAMESPACE], check=False)
    works = tried.returncode == 0
    return _finding(
        "user namespaces",
        works,
        "can be made" if works else "refused by the kernel, a container or AppArmor",
        "tier A is impossible for a normal user",
    )


def _user() -> Finding:
    if os.geteuid() != 0:
        return Finding(name="user", works=True, detail=f"not root (uid {os.geteuid()})")
    try:
        with Sandbox.open(Policy(tier="C", unsafe=True)) as sandbox:
            (result,) = sandbox.run(Job(source="import os; print(os.getuid())", inputs=("",)))
        uid = str(result.value).strip()
    except SandboxError as error:
        return _finding("user", False, f"root, and stays it: {error}", "no tier works; run as a normal user")
    return Finding(name="user", works=True, detail=f"root, programs run as uid {uid}")


def _trial(tier: Tier) -> Finding:
    cost = {
        "A": "programs run at tier B: the kernel keeps them from files and network, but they share its namespaces",
        "B": "where tier A fails too, programs can only run with sandbox.unsafe=true",
    }
    try:
        with Sandbox.open(Policy(tier=tier)):
            return Finding(name=f"tier {tier}", works=True, detail="a trial program ran")
    except SandboxError as error:
        return _finding(f"tier {tier}", False, str(error), cost[tier])


def _finding(name: str, works: bool, detail: str, cost: str) -> Finding:
    return Finding(name=name, works=works, detail=detail, cost="" if works else cost)
