"""From the bytes that a child left behind to results: everything is checked here, nothing there is believed.

A report is read line by line as long as the lines are what they must be, in order; the first that is not ends
the reading, and inputs without a line get the status of how the process ended. No line can claim that the
sandbox failed, because that would take a wrong program's sample out of the training.
"""

from __future__ import annotations

import json
import math
import signal
from typing import Any

from prorl.sandbox.inside.frames import ALL_INPUTS, NOTE_CHARS, READY
from prorl.sandbox.inside.values import MAX_DEPTH
from prorl.sandbox.jobs import CaseResult, Limits, Status
from prorl.sandbox.link import Reply

LINE_EXTRA = 4096  # bytes of a line of a report beside the value

_CLAIMABLE: tuple[Status, ...] = ("ok", "compile_error", "runtime_error", "memory", "output")


def read(reply: Reply, count: int, limits: Limits) -> tuple[CaseResult, ...]:
    """Results of a child that was given `count` inputs, in the order of the inputs."""
    if not reply.report.startswith(READY):
        reason = (
            reply.report.decode("utf-8", "replace")[:NOTE_CHARS] or "the child ended before the program began"
        )
        return (CaseResult(status="sandbox_error", note=reason),) * count
    results, rest = _claims(reply.report[len(READY) :], count)
    return (*results, *(rest or _ending(reply, limits),) * (count - len(results)))


def _claims(report: bytes, count: int) -> tuple[list[CaseResult], CaseResult | None]:
    """The well-formed lines, at most one per input in order, and what was said of all inputs that remain."""
    results: list[CaseResult] = []
    for line in report.split(b"\n")[:-1]:
        claim = _parse(line)
        if claim is None or len(results) == count:
            break
        index, result = claim
        if index == ALL_INPUTS and result.status != "ok":
            return results, result
        if index != len(results):
            break
        results.append(result)
    return results, None


def _parse(line: bytes) -> tuple[int, CaseResult] | None:
    try:
        claim = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not Unicode, thousands of digits or of brackets
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
    return index, CaseResult(status=status, value=value, note=_printable(note[:NOTE_CHARS]))


def _is_sound(value: Any) -> bool:
    """Whether whoever compares, prints or stores the value will not stumble over its depth or its text."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return True
        deeper: list[Any] = []
        for item in level:
            if type(item) is str and not _is_text(item):
                return False
            if type(item) is list:
                deeper += item
            elif type(item) is dict:
                deeper += item.keys()
                deeper += item.values()
        level = deeper
    return not level


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(note: str) -> str:
    return "".join(character if character.isprintable() else " " for character in note)


def _ending(reply: Reply, limits: Limits) -> CaseResult:
    """What the end of the process says of inputs that have no result."""
    if reply.cause == "time":
        return CaseResult(status="time", note=f"more than {limits.seconds:g} s")
    if reply.cause == "output":
        return CaseResult(status="output", note=f"more than {limits.output_bytes} bytes")
    if reply.signal in (signal.SIGXCPU, signal.SIGKILL):
        # nobody in there can send SIGKILL: it was the limit on processor time, or the kernel out of memory
        if reply.cpu_seconds >= math.floor(limits.seconds):
            return CaseResult(status="time", note=f"{reply.cpu_seconds:.1f} s of processor time")
        return CaseResult(status="memory", note="killed for memory")
    if reply.signal:
        return CaseResult(status="runtime_error", note=f"killed by signal {reply.signal}")
    return CaseResult(status="runtime_error", note="ended before its result")
