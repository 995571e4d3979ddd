"""Runs jobs in the safest way this machine offers, and refuses where there is none.

`Sandbox.run` gives one result per input whatever the program did. A run that ended by a failure of the sandbox, or by
a kill from outside, is repeated once; only then its result has the status "sandbox_error".
"""

import json
import os
import subprocess
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self

from prorl.envs.sandbox import jobs, link
from prorl.envs.sandbox.inside import confine
from prorl.envs.sandbox.inside.protocol import NotPlain, require_plain
from prorl.envs.sandbox.jobs import LINE_EXTRA, CaseResult, Job, Limits, Reply
from prorl.envs.sandbox.link import Link, SandboxError, ServerLost, Tier, command, find_numpy

ATTEMPTS = 2
MAX_RESULT_BYTES = 8 << 20  # of all inputs of a job together: parsed JSON takes twenty times its length

NOT_CONTAINED_AT_C = (
    "Tier C limits time, memory and output only: programs can read and write every file this user can, use the "
    "network, signal and start other processes, and read this machine's other processes."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which tier to use. `auto` takes A, else B, and C only with `unsafe`."""

    tier: Literal["auto", "A", "B", "C"] = "auto"
    unsafe: bool = False  # allows tier C


class Sandbox:
    """Fork servers and what contains them. For one thread; they end with that thread at the latest."""

    def __init__(self, tier: Tier) -> None:
        """Use `open` instead."""
        self.tier = tier
        self._links: dict[bool, Link] = {}  # by whether numpy is loaded, which makes every fork slower
        weakref.finalize(self, _close, self._links)  # also when its thread ends

    @classmethod
    def open(cls, policy: Policy = Policy()) -> Self:
        """Start at the best tier that the policy allows and a trial program confirms; SandboxError if none does."""
        if policy.tier == "C" and not policy.unsafe:
            raise SandboxError(f"tier C needs sandbox.unsafe=true. {NOT_CONTAINED_AT_C}")
        failures: list[str] = []
        best_first: tuple[Tier, ...] = ("A", "B", "C") if policy.unsafe else ("A", "B")
        for tier in best_first if policy.tier == "auto" else (policy.tier,):
            sandbox = cls(tier)
            if not (problem := sandbox._problem()):
                return sandbox
            failures.append(f"tier {tier}: {problem}")
        raise SandboxError(
            f"programs cannot be run safely here ({'; '.join(failures)}): install bubblewrap (apt-get install "
            "bubblewrap), use a kernel with Landlock (5.13 or later), or accept the risk with sandbox.unsafe=true"
        )

    @property
    def warning(self) -> str:
        """What the tier leaves open, for the user to read; empty at A and B."""
        return NOT_CONTAINED_AT_C if self.tier == "C" else ""

    def run(self, job: Job) -> tuple[CaseResult, ...]:
        """One result per input, in their order. Raises SandboxError only where the job is not plain data."""
        if job.entry is None:
            return tuple(self._run_scripts(job))
        if not all(type(arguments) in (list, tuple) for arguments in job.inputs):
            raise SandboxError("an input of a function must be the list of its positional arguments")
        try:
            require_plain(job.inputs)
        except NotPlain as error:
            raise SandboxError(f"the inputs of a function must be plain data, not {error}") from error
        room = min(MAX_RESULT_BYTES, len(job.inputs) * (job.limits.output_bytes + LINE_EXTRA))
        reply = self._ask(job, None, job.limits, room)
        if isinstance(reply, CaseResult):
            return (reply,) * len(job.inputs)
        return jobs.read(reply, len(job.inputs), job.limits)

    def close(self) -> None:
        """End the servers and everything in them; the next `run` would start another."""
        _close(self._links)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _problem(self) -> str:
        """Why a trial program cannot be confined, in words, with everything closed; empty if it can."""
        (result,) = self.run(Job(source="print(6 * 7)", inputs=("",)))
        if result.value == "42\n":
            return ""
        self.close()
        return result.note or "a trial program printed something else than it should"

    def _run_scripts(self, job: Job) -> Iterator[CaseResult]:
        left, room = job.limits.seconds, MAX_RESULT_BYTES
        for text in job.inputs:
            if not isinstance(text, str):
                raise SandboxError("an input of a script must be the text of its standard input")
            if left <= 0:
                yield CaseResult(status="time", note=f"the job's {job.limits.seconds:g} s are used up")
                continue
            limits = replace(job.limits, output_bytes=min(job.limits.output_bytes, room))
            reply = self._ask(job, text, replace(limits, seconds=left), LINE_EXTRA)
            if isinstance(reply, CaseResult):
                yield reply
                continue
            begun = time.thread_time()
            (result,) = jobs.read(reply, 1, limits)
            # a program must not use up the time so that the next run cannot begin, which looks like our failure
            starved = reply.cause == "time" and left < job.limits.seconds / 2
            # too much output counts even if the program said "ok" and ended before it could be ended
            if reply.cause == "output" or (starved and result.status == "sandbox_error"):
                result = jobs.ending(reply, limits)
            elif result.status == "ok":
                result = replace(result, value=reply.output.decode("utf-8", "replace"))
            left -= reply.seconds + time.thread_time() - begun
            room -= len(reply.output)
            yield result

    def _ask(self, job: Job, stdin: str | None, limits: Limits, result_bytes: int) -> Reply | CaseResult:
        """The reply to one run of the job, or a "sandbox_error" that says why there is none."""
        inputs = job.inputs if stdin is None else ()
        program = json.dumps({"source": job.source, "entry": job.entry, "inputs": inputs}).encode()
        given = None if stdin is None else stdin.encode("utf-8", "replace")
        numpy, reason = "numpy" in job.source, ""
        for _ in range(ATTEMPTS):
            try:
                if numpy not in self._links:
                    self._links[numpy] = Link(command(self.tier, numpy=find_numpy() if numpy else None))
                reply = self._links[numpy].request(program, given, limits, result_bytes=result_bytes)
            except ServerLost as error:
                reason = str(error)
                self.close()
                continue
            except BaseException:
                self.close()
                raise
            if self.tier == "C" or not jobs.killed_from_outside(reply, limits):
                return reply
            reason = f"the program was killed from outside, by signal {reply.signal}"
        return CaseResult(status="sandbox_error", note=reason)


def _close(links: dict[bool, Link]) -> None:
    while links:
        _, server = links.popitem()
        server.close()


# What this machine offers a sandbox: asked for piece by piece, then proved by running a program at each tier.

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
    """One piece that was checked: whether it works, what was seen, and what its lack costs, in a sentence each."""

    name: str
    works: bool
    detail: str
    cost: str = ""  # empty where it works


def probe() -> tuple[tuple[Finding, ...], Tier | None]:
    """All pieces of this machine, and the tier that `Policy(tier="auto")` reaches, None where it would refuse.

    Takes about a second, changes nothing.
    """
    machine, user = os.uname().machine, os.geteuid()
    landlock, bubblewrap = confine.landlock_abi(), link.find_bubblewrap()
    try:
        filters = confine.prctl(confine.GET_SECCOMP, 0) >= 0
    except OSError:
        filters = False
    apart = [str(link.interpreter()), "-I", "-S", "-c", _NEW_USER_NAMESPACE]
    spaces = subprocess.run(apart, check=False).returncode == 0
    pieces = (
        ("architecture", machine in confine.AUDIT_ARCH, machine),
        ("seccomp", filters, "filters supported" if filters else "the kernel has none"),
        ("Landlock", landlock > 0, f"ABI {landlock}" if landlock else "missing or switched off"),
        ("bubblewrap", bubblewrap is not None, bubblewrap or "bwrap is not installed"),
        ("user namespaces", spaces, "can be made" if spaces else "refused by kernel, container or AppArmor"),
        ("user", *((True, f"not root (uid {user})") if user else _trial(Policy(tier="C", unsafe=True)))),
        ("tier A", *_trial(Policy(tier="A"))),
        ("tier B", *_trial(Policy(tier="B"))),
    )
    findings = tuple(
        Finding(name=name, works=works, detail=detail, cost="" if works else _COSTS[name])
        for name, works, detail in pieces
    )
    tier_a, tier_b = findings[-2:]
    return findings, "A" if tier_a.works else "B" if tier_b.works else None


def _trial(policy: Policy) -> tuple[bool, str]:
    try:
        with Sandbox.open(policy) as sandbox:
            (result,) = sandbox.run(Job(source="import os; print(os.getuid())", inputs=("",)))
    except SandboxError as error:
        return False, str(error)
    return True, f"a trial program ran as uid {str(result.value).strip()}"
