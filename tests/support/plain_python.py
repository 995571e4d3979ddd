"""Runs programs in plain CPython, each in a forked child of one interpreter.

`python -E plain_python.py FOLDER` reads a JSON list of [source, function or null, arguments or input] from standard
input and writes a JSON list of [standard output or result, standard error] to standard output.
"""

import json
import os
import runpy
import signal
import sys
from pathlib import Path

SECONDS = 20
PRELUDE = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "typing"),
)


def become(source, entry, given, folder, prelude):
    """In a child: run as a script would, or print the function's result as JSON."""
    path = folder / "program.py"
    path.write_text(source)
    stdin = folder / "stdin"
    stdin.write_text("" if entry else given)
    for number, (name, flags) in enumerate(
        (
            (stdin, os.O_RDONLY),
            (folder / "out", os.O_WRONLY | os.O_CREAT),
            (folder / "err", os.O_WRONLY | os.O_CREAT),
        )
    ):
        os.dup2(os.open(name, flags), number)
    os.chdir(folder)
    sys.argv = ["program.py"]
    signal.alarm(SECONDS)
    if not entry:
        runpy.run_path(str(path), run_name="__main__")
        return
    names = prelude | {"__name__": "solution"}
    sys.setrecursionlimit(50_000)
    exec(compile(source, "program", "exec", dont_inherit=True), names)
    function = names.get(entry) or getattr(names["Solution"](), entry)
    (folder / "result").write_text(json.dumps(function(*given)))


def imported():
    """The names that graders import above a program."""
    names = {}
    for module in (*PRELUDE, "builtins"):
        exec(f"from {module} import *\nimport {module}", names)
    return names


def main():
    outcomes, prelude = [], imported()
    for number, (source, entry, given) in enumerate(json.load(sys.stdin)):
        folder = Path(sys.argv[1]) / str(number)
        folder.mkdir()
        pid = os.fork()
        if pid == 0:
            sys.stdin = open(0, closefd=False)  # noqa: SIM115
            become(source, entry, given, folder, prelude)
            return
        os.waitpid(pid, 0)
        files = [folder / ("result" if entry else "out"), folder / "err"]
        outcomes.append([file.read_text() if file.exists() else "" for file in files])
    sys.__stdout__.write(json.dumps(outcomes))


if __name__ == "__main__":
    main()
