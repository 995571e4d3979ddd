"""What goes into the sandbox and what comes out: plain data, the same at every tier.

Expected outputs are no part of a job: they stay with whoever asks, who compares. Nothing that a program does to
its own process can therefore turn a wrong result into a right one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

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
    value: Any = (
        None  # of a function: its result as plain data, tuples as lists; of a script: its standard output
    )
    note: str = ""  # why it failed, in a few words
