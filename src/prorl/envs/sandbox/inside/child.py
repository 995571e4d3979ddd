"""Runs one program in a process that has just been confined, and reports on a descriptor of its own.

The report is a sequence of lines, each the JSON array [index of the input, status, value, note], and an index of
-1 speaks for all inputs not yet reported. A program can write to that descriptor too: it can only claim results,
and whether they are right is decided elsewhere.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from prorl.envs.sandbox.inside import world
from prorl.envs.sandbox.inside.frames import ALL_INPUTS, NOTE_CHARS, write_all
from prorl.envs.sandbox.inside.values import NotPlain, encode

RESULT = 3  # descriptor of the report
PROGRAM = 4  # descriptor of the program and the inputs of a function: JSON, read before the program begins
Report = Callable[..., None]

# bound here, before a program can replace them
_dumps = json.dumps
_write = write_all
_leave = os._exit


def run(output_bytes: int) -> None:
    """Run the program behind descriptor PROGRAM on 0, 1 and 2 as its standard streams, report; never returns."""

    def report(index: int, status: str, value: str = "null", note: str = "") -> None:
        _write(RESULT, f"[{index},{_dumps(status)},{value},{_dumps(note[:NOTE_CHARS])}]\n".encode())

    try:
        with os.fdopen(PROGRAM, "rb") as file:
            job = json.load(file)
        if job["entry"] is None:
            _run_script(job["source"], report)
        else:
            _call(job, output_bytes, report)
    except MemoryError:
        report(ALL_INPUTS, "memory")
    except BaseException as error:
        report(ALL_INPUTS, "runtime_error", note=_describe(error))
    finally:
        _leave(0)


def _run_script(source: str, report: Report) -> None:
    namespace = world.enter("__main__")
    code = _compile(source, report)
    if code is None:
        return

    def leave(status: int) -> NoReturn:
        report(0, "ok")
        _leave(status)

    os._exit = leave
    sys.setrecursionlimit(world.RECURSION_LIMIT)
    with suppress(SystemExit):  # how a script ends says nothing; what it printed does
        exec(code, namespace)
    with suppress(SystemExit):
        atexit._run_exitfuncs()
    streams: list[Any] = [sys.stdout, sys.__stdout__]  # a program may have put anything there
    for stream in streams:
        with suppress(AttributeError, OSError, ValueError):  # or closed it
            stream.flush()
    report(0, "ok")


def _call(job: dict[str, Any], output_bytes: int, report: Report) -> None:
    namespace = world.enter("solution")
    code = _compile(job["source"], report)
    if code is None:
        return
    sys.setrecursionlimit(world.RECURSION_LIMIT)
    exec(code, namespace)
    find = _finder(namespace, job["entry"])
    if find is None:
        report(ALL_INPUTS, "runtime_error", note=f"no function {job['entry']}")
        return
    for index, arguments in enumerate(job["inputs"]):
        try:
            text = encode(find()(*arguments), output_bytes)
        except MemoryError:
            report(index, "memory")
        except NotPlain as error:
            report(index, "runtime_error", note=f"returned {error}")
        except BaseException as error:
            report(index, "runtime_error", note=_describe(error))
        else:
            if text is None:
                report(index, "output")
            else:
                report(index, "ok", text)


def _finder(namespace: dict[str, Any], name: str) -> Callable[[], Any] | None:
    """How to get the function for one input: itself, or the method of a new Solution; None if there is none."""
    if callable(namespace.get(name)):
        return lambda: namespace[name]
    solution: Any = namespace.get("Solution")
    if callable(getattr(solution, name, None)):
        return lambda: getattr(solution(), name)
    return None


def _compile(source: str, report: Report) -> types.CodeType | None:
    try:
        return compile(source, "<program>", "exec", dont_inherit=True)
    except MemoryError:  # also what the parser says of thousands of brackets
        report(ALL_INPUTS, "memory")
    except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
        report(ALL_INPUTS, "compile_error", note=_describe(error))
    return None


def _describe(error: BaseException) -> str:
    """The error in a few words; what the program makes of its own exceptions must not matter."""
    try:
        return f"{type(error).__name__}: {error}"[:NOTE_CHARS]
    except BaseException:
        return "an exception that cannot be printed"
