"""What goes into the sandbox, and what comes out: everything is checked here, nothing that a child left is believed.

Expected outputs are no part of a job, so nothing that a program does to its own process can turn a wrong result into
a right one. A child's report is read line by line until one is not what it must be; inputs without a line get the
status of how the process ended. No line can claim that the sandbox failed: that would drop a wrong sample.
"""

from __future__ import annotations

import json
import math
import signal
import time
from dataclasses import dataclass
from typing import Any, Literal

from prorl.envs.sandbox.inside.protocol import ALL_INPUTS, MAX_DEPTH, NOTE_CHARS, READY

LINE_EXTRA = 4096  # bytes of a line of a report beside the value
LINE_VALUES = 5  # the list that a line is, and its four items
VALUE_BYTES = 2  # the least that a value takes in JSON with spaces after its commas and colons
READ_SECONDS = 1.0  # of this process's time for one report

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
_OWN_MEMORY = 0.25  # share of its memory limit from which on a program may be why memory ran out

_CLAIMABLE: tuple[Status, ...] = ("ok", "compile_error", "runtime_error", "memory", "output")

Status = Literal[
    "ok",  # a result came back; whether it is right is not the sandbox's business
    "compile_error",
    "runtime_error",  # an exception, an early exit, or a value that is not plain data
    "time",
    "memory",
    "output",  # more than `Limits.output_bytes`
    "sandbox_error",  # the sandbox itself failed: the only status that says nothing about the program
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a job may use."""

    seconds: float = 5.0  # wall clock over all inputs of the job
    memory_bytes: int = 512 << 20
    output_bytes: int = 1 << 20  # per input


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A Python program and the inputs to run it on.

    With `entry`, a function or a method of a class `Solution` by that name is called once per input, which is the
    list of its positional arguments, all in one process. Without, the program runs once per input as a script,
    each time in a new process; the input is the text of its standard input. Inputs are plain JSON data.
    """

    source: str
    entry: str | None = None
    inputs: tuple[Any, ...]
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What the program did on one input."""

    status: Status
    value: Any = None  # a function's result as plain data, tuples as lists; a script's standard output
    note: str = ""  # why it failed, in a few words


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one child left behind: raw bytes of its report and of its output, and how it ended."""

    report: bytes
    output: bytes
    cause: str  # "exit", "time" or "output"
    signal: int  # that killed it, unless the server did; 0 if none
    cpu_seconds: float
    peak_bytes: int  # of memory held
    seconds: float


def read(reply: Reply, count: int, limits: Limits) -> tuple[CaseResult, ...]:
    """Results of a child that was given `count` inputs, in the order of the inputs."""
    if not reply.report.startswith(READY):
        reason = reply.report.decode("utf-8", "replace")[:NOTE_CHARS]
        note = reason or "the child ended before the program began"
        return (CaseResult(status="sandbox_error", note=note),) * count
    results, rest = _claims(reply.report[len(READY) :].decode("utf-8", "replace"), count, limits.output_bytes)
    return (*results, *(rest or ending(reply, limits),) * (count - len(results)))


def killed_from_outside(reply: Reply, limits: Limits) -> bool:
    """Whether somebody else ended the program, where the filter of system calls forbids it to do that itself.

    Not if it had used up its processor time or held much memory: no program may choose to be a sandbox failure.
    """
    own = reply.cpu_seconds >= limits.seconds or reply.peak_bytes >= limits.memory_bytes * _OWN_MEMORY
    return reply.signal in _FROM_OUTSIDE and not own


def _claims(report: str, count: int, output_bytes: int) -> tuple[list[CaseResult], CaseResult | None]:
    """The well-formed lines, at most one per input in order, and what was said of all inputs that remain."""
    results: list[CaseResult] = []
    room = count * LINE_VALUES + output_bytes // VALUE_BYTES  # values, of all lines together
    end = time.thread_time() + READ_SECONDS
    for line in report.split("\n", count)[:-1]:
        if time.thread_time() > end:
            return results, CaseResult(status="time", note="its results take too long to read")
        if len(line) > output_bytes + LINE_EXTRA or (values := _values(line)) > room:
            results.append(CaseResult(status="output", note="a result of too many bytes or values"))
            continue
        room -= values
        if (claim := _parse(line)) is None:
            break
        index, result = claim
        if index == ALL_INPUTS and result.status != "ok":
            return results, result
        if index != len(results):
            break
        results.append(result)
    return results, None


def _values(text: str) -> int:
    """At least as many as the values that a parser of JSON makes of the text before it ends or refuses it."""
    between = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])  # what is in no string
    return 1 + sum(map(between.count, "[{,:"))


def _parse(line: str) -> tuple[int, CaseResult] | None:
    try:
        claim = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, or thousands of digits or of nested brackets
        return None
    if type(claim) is not list or len(claim) != 4:
        return None
    index, claimed, value, note = claim
    status = next((status for status in _CLAIMABLE if status == claimed), None)
    if type(index) is not int or status is None or type(note) is not str:
        return None
    if not _is_sound(value):
        return index, CaseResult(status="runtime_error", note="returned a value that is not plain data")
    value = value if status == "ok" else None
    printable = "".join(character if character.isprintable() else " " for character in note[:NOTE_CHARS])
    return index, CaseResult(status=status, value=value, note=printable)


def _is_sound(value: Any) -> bool:
    """Whether whoever compares, prints or stores the value will not stumble over its depth or its text."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for item in level:
            if type(item) is str:
                try:
                    item.encode()
                except UnicodeEncodeError:
                    return False
            elif type(item) is list:
                deeper += item
            elif type(item) is dict:
                deeper += item.keys()
                deeper += item.values()
        level = deeper
    return not level


def ending(reply: Reply, limits: Limits) -> CaseResult:
    """What the end of the process says of inputs that have no result."""
    if reply.cause == "time":
        return CaseResult(status="time", note=f"more than {limits.seconds:g} s")
    if reply.cause == "output":
        return CaseResult(status="output", note=f"more than {limits.output_bytes} bytes")
    if reply.signal in (signal.SIGXCPU, signal.SIGKILL):
        # the limit on processor time, or what `killed_from_outside` holds to be the program's doing
        if reply.cpu_seconds >= math.floor(limits.seconds):
            return CaseResult(status="time", note=f"{reply.cpu_seconds:.1f} s of processor time")
        return CaseResult(status="memory", note="killed for memory")
    note = f"killed by signal {reply.signal}" if reply.signal else "ended before its result"
    return CaseResult(status="runtime_error", note=note)
