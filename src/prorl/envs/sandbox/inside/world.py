"""What a program finds when it begins, beyond a bare interpreter: what the field's graders give it, and threads.

`furnish` changes the server's interpreter once, before the first fork, so that no program pays for it.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import io
import os
import random
import site
import sys
import threading
import types
from contextlib import suppress
from typing import Any

# what LiveCodeBench's and PRIME's graders import above a program, `from module import *` and `import module`
PRELUDE = """
string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json
typing
"""
RECURSION_LIMIT = 50_000  # LiveCodeBench's
NUMPY = "numpy numpy.linalg numpy.fft numpy.random numpy.polynomial numpy.ma"
# a wall without /dev and /proc cannot open these by name
_DEVICES = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2, os.devnull: 2}

_open = open


def furnish() -> None:
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
    for name, method in (("start", _run_now), ("join", _joined), ("is_alive", _is_alive)):
        setattr(threading.Thread, name, method)


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


def _joined(_: threading.Thread, timeout: float | None = None) -> None:
    """`Thread.join`: whatever was started has ended."""


def _is_alive(_: threading.Thread) -> bool:
    return False
