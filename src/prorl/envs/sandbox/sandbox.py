"""Runs jobs in the safest way this machine offers, and refuses where there is none.

`Sandbox.run` gives one result per input whatever the program did. What a failure of the sandbox itself ended, or a
kill from outside, is run once more; only then it is a result with status "sandbox_error".
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from prorl.envs.sandbox import jobs
from prorl.envs.sandbox.inside.protocol import NotPlain, require_plain
from prorl.envs.sandbox.jobs import LINE_EXTRA, CaseResult, Job
from prorl.envs.sandbox.link import Link, Order, Reply, SandboxError, ServerLost, Tier, command, find_numpy

ATTEMPTS = 2
GRACE_SECONDS = 10.0  # beyond a job's own limit, which the server enforces, before the server counts as hung
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
    """One fork server and the wall around it. For one thread; it ends with that thread at the latest."""

    def __init__(self, tier: Tier, link: Link, numpy: Path | None = None) -> None:
        """Use `open` instead. `numpy` is the folder that numpy is loaded from."""
        self.tier = tier
        self._link: Link | None = link
        self._numpy = numpy
        self._for_numpy: Sandbox | None = self if numpy else None

    @classmethod
    def open(cls, policy: Policy = Policy()) -> Self:
        """Start at the best tier that the policy allows and a trial program confirms; SandboxError if none does."""
        if policy.tier == "C" and not policy.unsafe:
            raise SandboxError(f"tier C needs sandbox.unsafe=true. {NOT_CONTAINED_AT_C}")
        failures: list[str] = []
        best_first: tuple[Tier, ...] = ("A", "B", "C") if policy.unsafe else ("A", "B")
        for tier in best_first if policy.tier == "auto" else (policy.tier,):
            try:
                return cls(tier, _tried(tier))
            except ServerLost as error:
                failures.append(f"tier {tier}: {error}")
        raise SandboxError(
            f"programs cannot be run safely here ({'; '.join(failures)}): install bubblewrap (apt-get install "
            "bubblewrap), use a kernel with Landlock (5.13 or later), or accept the risk with sandbox.unsafe=true"
        )

    @property
    def warning(self) -> str:
        """What the tier leaves open, for the user to read; empty at A and B."""
        return NOT_CONTAINED_AT_C if self.tier == "C" else ""

    @property
    def server_pid(self) -> int | None:
        """Process id of the server, or of the wall around it; None while there is none."""
        return None if self._link is None else self._link.pid

    def run(self, job: Job) -> tuple[CaseResult, ...]:
        """One result per input, in their order. Raises SandboxError only where the job is not plain data."""
        if "numpy" in job.source and (beside := self._with_numpy()) is not self:
            return beside.run(job)
        if job.entry is None:
            return tuple(self._run_scripts(job))
        if not job.inputs:
            return ()
        if not all(type(arguments) in (list, tuple) for arguments in job.inputs):
            raise SandboxError("an input of a function must be the list of its positional arguments")
        try:
            require_plain(job.inputs)
        except NotPlain as error:
            raise SandboxError(f"the inputs of a function must be plain data, not {error}") from error
        room = min(MAX_RESULT_BYTES, len(job.inputs) * (job.limits.output_bytes + LINE_EXTRA))
        reply = self._ask(_order(job, job.limits.seconds, stdin=None, result_bytes=room))
        if isinstance(reply, str):
            return (CaseResult(status="sandbox_error", note=reply),) * len(job.inputs)
        return jobs.read(reply, len(job.inputs), job.limits)

    def close(self) -> None:
        """End the server and everything in it; the next `run` would start another."""
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._for_numpy not in (None, self):
            self._for_numpy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with_numpy(self) -> Sandbox:
        """The sandbox for programs that name numpy: a second server, as numpy makes every fork slower.

        This one, where numpy is not installed or cannot be loaded.
        """
        if self._for_numpy is None:
            self._for_numpy = self
            with suppress(ServerLost):
                if folder := find_numpy():
                    self._for_numpy = Sandbox(self.tier, _tried(self.tier, folder), folder)
        return self._for_numpy

    def _run_scripts(self, job: Job) -> Iterator[CaseResult]:
        left, room = job.limits.seconds, MAX_RESULT_BYTES
        for text in job.inputs:
            if not isinstance(text, str):
                raise SandboxError("an input of a script must be the text of its standard input")
            if left <= 0:
                yield CaseResult(status="time", note=f"the job's {job.limits.seconds:g} s are used up")
                continue
            limits = replace(job.limits, output_bytes=min(job.limits.output_bytes, room))
            order = _order(replace(job, limits=limits), left, stdin=text, result_bytes=LINE_EXTRA)
            reply = self._ask(order)
            if isinstance(reply, str):
                yield CaseResult(status="sandbox_error", note=reply)
                continue
            begun = time.thread_time()
            (result,) = jobs.read(reply, 1, limits)
            if reply.cause == "output":  # even if the program ended before it could be ended, and said "ok"
                result = jobs.ending(reply, limits)
            elif result.status == "ok":
                result = replace(result, value=reply.output.decode("utf-8", "replace"))
            left -= reply.seconds + time.thread_time() - begun
            room -= len(reply.output)
            yield result

    def _ask(self, order: Order) -> Reply | str:
        """The reply, or in words why there is none."""
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                if self._link is None:
                    self._link = Link(command(self.tier, numpy=self._numpy))
                reply = self._link.request(order, GRACE_SECONDS)
            except ServerLost as error:
                reason = str(error)
                self.close()
                continue
            if self.tier == "C" or not jobs.killed_from_outside(reply, order):
                return reply
            reason = f"the program was killed from outside, by signal {reply.signal}"
        return reason


def _tried(tier: Tier, numpy: Path | None = None) -> Link:
    """A server that has shown, by a trial program, that it can confine a child; ServerLost if it cannot."""
    try:
        link = Link(command(tier, numpy=numpy))
    except FileNotFoundError as error:
        raise ServerLost(str(error)) from error
    trial = Job(source="print(6 * 7)", inputs=("",))
    order = _order(trial, trial.limits.seconds, stdin="", result_bytes=LINE_EXTRA)
    reply = link.request(order, GRACE_SECONDS)
    (result,) = jobs.read(reply, 1, trial.limits)
    if result.status != "ok" or reply.output != b"42\n":
        link.close()
        raise ServerLost(result.note or "a trial program printed something else than it should")
    return link


def _order(job: Job, seconds: float, *, stdin: str | None, result_bytes: int) -> Order:
    inputs = job.inputs if stdin is None else ()
    program = {"source": job.source, "entry": job.entry, "inputs": inputs}
    return Order(
        program=json.dumps(program).encode(),
        stdin=None if stdin is None else stdin.encode("utf-8", "replace"),
        seconds=seconds,
        memory_bytes=job.limits.memory_bytes,
        output_bytes=job.limits.output_bytes,
        result_bytes=result_bytes,
    )
