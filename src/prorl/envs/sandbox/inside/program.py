"""Runs one program in a process that has just been confined, and what the program finds there.

`prepare_interpreter` changes the server once, before the first fork, so that no program pays for it. Results are
reported on a descriptor of their own, by lines as `protocol` has them. A program can write to that descriptor too: it
can only claim results, and whether they are right is decided elsewhere.
"""

import atexit
import builtins
import gc
import importlib
import io
import json
import os
import random
import site
import sys
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from prorl.envs.sandbox.inside.protocol import ALL_INPUTS, NOTE_CHARS, NotPlain, encode, write_all

RESULT = 3  # descriptor of the report
PROGRAM = 4  # descriptor of the program and the inputs of a function: JSON, read before the program begins
Report = Callable[..., None]

# bound here, before a program can replace them
_dumps = json.dumps
_write = write_all
_leave = os._exit

# what LiveCodeBench's and PRIME's graders import above a program, `from module import *` and `import module`
PRELUDE = """
string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json
typing
"""
RECURSION_LIMIT = 50_000  # LiveCodeBench's
NUMPY = "numpy numpy.linalg numpy.fft numpy.random numpy.polynomial numpy.ma"
# a container without /dev and /proc cannot open these by name
_DEVICES = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2, os.devnull: 2}

_open = open


def run(output_bytes: int) -> None:
    """Run the program behind descriptor PROGRAM on 0, 1 and 2 as its standard streams, report; never returns."""

    def report(index: int, status: str, value: str = "null", note: str = "") -> None:
        _write(RESULT, f"[{index},{_dumps(status)},{value},{_dumps(note[:NOTE_CHARS])}]\n".encode())

    try:
        with os.fdopen(PROGRAM, "rb") as file:
            job = json.load(file)
        is_script = job["entry"] is None
        namespace = enter("__main__" if is_script else "solution")
        try:
            code = compile(job["source"], "<program>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
            report(ALL_INPUTS, "compile_error", note=_describe(error))
            return
        sys.setrecursionlimit(RECURSION_LIMIT)
        if is_script:
            _run_script(code, namespace, report)
        else:
            exec(code, namespace)
            _call(job["entry"], job["inputs"], namespace, output_bytes, report)
    except MemoryError:  # also what the parser says of thousands of brackets
        report(ALL_INPUTS, "memory")
    except BaseException as error:
        report(ALL_INPUTS, "runtime_error", note=_describe(error))
    finally:
        _leave(0)


def _run_script(code: types.CodeType, namespace: dict[str, Any], report: Report) -> None:
    def leave(status: int) -> NoReturn:
        report(0, "ok")
        _leave(status)

    os._exit = leave
    with suppress(SystemExit):  # how a script ends says nothing; what it printed does
        exec(code, namespace)
    with suppress(SystemExit):
        atexit._run_exitfuncs()
    streams: list[Any] = [sys.stdout, sys.__stdout__]  # a program may have put anything there
    for stream in streams:
        with suppress(AttributeError, OSError, ValueError):  # or closed it
            stream.flush()
    last: Any = sys.__stdout__
    with suppress(BaseException):
        del streams, stream
        namespace.clear()  # as CPython does at the end: files that were never closed write what they hold
        last.flush()
    report(0, "ok")


def _call(name: str, inputs: list[Any], namespace: dict[str, Any], output_bytes: int, report: Report) -> None:
    """Call the function, or the method of a new Solution, once per input."""
    solution: Any = namespace.get("Solution")
    is_function = callable(namespace.get(name))
    if not is_function and not callable(getattr(solution, name, None)):
        report(ALL_INPUTS, "runtime_error", note=f"no function {name}")
        return
    for index, arguments in enumerate(inputs):
        try:
            function = namespace[name] if is_function else getattr(solution(), name)
            text = encode(function(*arguments), output_bytes)
        except MemoryError:
            report(index, "memory")
        except NotPlain as error:
            report(index, "runtime_error", note=f"returned {error}")
        except BaseException as error:
            report(index, "runtime_error", note=_describe(error))
        else:
            report(index, "output") if text is None else report(index, "ok", text)


def _describe(error: BaseException) -> str:
    """The error in a few words; what the program makes of its own exceptions must not matter."""
    try:
        return f"{type(error).__name__}: {error}"[:NOTE_CHARS]
    except BaseException:
        return "an exception that cannot be printed"


def prepare_interpreter() -> None:
    """Give all programs to come the prelude's names, `exit` and `quit`, standard streams by name, and threads.

    The names stand among the builtins, where a program's own definitions hide them, and never replace one.
    """
    names: dict[str, Any] = {}
    for module in PRELUDE.split():
        exec(f"from {module} import *", names)
    names |= {module: sys.modules[module] for module in PRELUDE.split()}
    vars(builtins).update({name: value for name, value in names.items() if not hasattr(builtins, name)})
    site.setquit()
    builtins.open = io.open = _open_stream
    # threads are forbidden: the work of one is done before `start` returns
    thread_class: Any = threading.Thread
    thread_class.start, thread_class.join = _run_now, lambda thread, timeout=None: None
    thread_class.is_alive = lambda thread: False


def load_numpy(folder: str) -> None:
    """Import numpy from a folder of packages, which nothing is imported from afterwards.

    Where that fails, a program's own import fails as in an interpreter without numpy.
    """
    for library in ("OPENBLAS", "MKL", "OMP"):
        os.environ[f"{library}_NUM_THREADS"] = "1"  # a thread would not be there after a fork
    sys.path.append(folder)
    with suppress(ImportError):
        for name in NUMPY.split():
            importlib.import_module(name)
    sys.path.remove(folder)


def enter(module_name: str) -> dict[str, Any]:
    """Standard streams on 0, 1 and 2, an empty environment and a new main module."""
    for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        stream = os.fdopen(descriptor, mode, encoding="utf-8", errors="surrogateescape", closefd=False)
        for place, key in ((sys, name), (sys, f"__{name}__"), (builtins, name)):
            setattr(place, key, stream)
    sys.argv[:] = ["program.py"]
    os.environ.clear()
    random.seed(0)  # a verdict must not depend on luck
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    gc.enable()
    module = types.ModuleType(module_name)
    module.__file__ = "program.py"
    vars(module)["__builtins__"] = builtins
    sys.modules[module_name] = module
    return module.__dict__


def _open_stream(file: Any, *arguments: Any, **options: Any) -> Any:
    """The builtin `open`, which also knows the standard streams by their names."""
    descriptor = _DEVICES.get(str(file))
    return _open(file if descriptor is None else os.dup(descriptor), *arguments, **options)


def _run_now(thread: threading.Thread) -> None:
    """`Thread.start` where threads are forbidden: the thread's work is done before this returns."""
    started: threading.Event = vars(thread)["_started"]
    if started.is_set():
        raise RuntimeError("threads can only be started once")
    started.set()
    with suppress(BaseException):  # what ends a thread does not end the program
        thread.run()
