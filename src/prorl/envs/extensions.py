"""Tasks and reward functions of the user's own: `FILE.py:NAME`, `package.module:NAME`, and tasks in others' formats.

`verifiers:ENVIRONMENT` is an environment of that package, `harbor:FOLDER` a folder of tasks.

A file is read once, where a run starts, and its text travels to every process that judges, on any machine. What the
file says later holds from the next start on; `fingerprint` tells that it changed. Modules that it imports must be
importable where it is used; those beside it are, on the machine that it lies on.
"""

import ast
import asyncio
import importlib.util
import inspect
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from hashlib import blake2b
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from prorl.envs.base import ProceduralTask, verdict_of
from prorl.envs.errors import UsageError
from prorl.envs.files import hash_folder
from prorl.envs.types import Task, Verdict

ENTRY_POINTS = "prorl.tasks"
ENVIRONMENTS, FOLDERS = "verifiers", "harbor"
FORMS = "FILE.py:NAME, package.module:NAME, verifiers:ENVIRONMENT or harbor:FOLDER"
MODULE = "prorl_extension_"  # prefix of the module that a file becomes
TASK_MEMBERS = ("domain", "splits", "all_levels", "pass_threshold", "problem", "problem_at", "verify")

Reward = Callable[[str, Mapping[str, Any], Any], Verdict]
"""Judges a response by the row that was asked and its gold answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Where code of the user's own lies, and for a file what it says: plain data, to be sent to who judges."""

    use: str
    source: str | None = None  # of a file

    @property
    def fingerprint(self) -> str:
        """Hash of the folder, the file and what it imports beside it, or the module's file if found unimported."""
        place, name = _parts(self.use)
        if place == FOLDERS:
            return hash_folder(Path(name))
        if self.source is None:
            spec = _spec(self.use)
            path = Path(spec.origin) if spec and spec.origin else Path()
            return blake2b(path.read_bytes() if path.is_file() else b"", digest_size=8).hexdigest()
        helpers = [path.read_bytes() for path in _beside(place, self.source).values()]
        return blake2b(b"".join([self.source.encode(), *helpers]), digest_size=8).hexdigest()


def absolute(use: str, folder: Path) -> str:
    """The same with the path of a file or folder made absolute; it may have been relative to another folder."""
    place, name = _parts(use)
    if place == FOLDERS:
        return f"{place}:{(folder / name).resolve()}"
    return f"{(folder / place).resolve()}:{name}" if place.endswith(".py") else use


def find(use: str) -> Extension:
    """Read code where it lies, without running it.

    Raises UsageError: it is not of the form, there is no such file or module, or the file is no Python.
    """
    place, name = _parts(use)
    if not place or not (name.isidentifier() or place in (ENVIRONMENTS, FOLDERS)):
        raise UsageError(f"{use!r}: say {FORMS}")
    if place == FOLDERS and not Path(name).is_dir():
        raise UsageError(f"{use}: there is no such folder")
    if not place.endswith(".py"):
        if place != FOLDERS and _spec(use) is None:
            raise UsageError(f"{use}: there is no module {_module(use)}: install it, or give FILE.py:NAME")
        return Extension(use=use)
    try:
        source = Path(place).read_text("utf-8-sig")  # an editor may put a mark of the byte order there
        compile(source, place, "exec")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{use}: the file cannot be read: {error}") from None
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{use}: the file is no Python: {error}") from None
    return Extension(use=use, source=source)


def load(extension: Extension) -> Any:
    """What the name stands for in the module, which is run, once in a process.

    Raises UsageError: the module fails, or has no such name.
    """
    place, name = _parts(extension.use)
    if place == FOLDERS:
        from prorl.envs.harbor import HarborTask

        return partial(HarborTask, Path(name))
    if place == ENVIRONMENTS:
        from prorl.envs.environments import verifiers_task

        return partial(verifiers_task, name)
    try:
        source = extension.source
        module = importlib.import_module(place) if source is None else _run(place, source)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{extension.use}: running it failed: {_told(error, extension.use)}") from error
    if not hasattr(module, name):
        known = sorted(known for known in vars(module) if not known.startswith("_"))
        raise UsageError(f"{extension.use}: it has no {name}, only {', '.join(known) or 'nothing'}")
    return getattr(module, name)


def load_task(extension: Extension, name: str, levels: Mapping[int, float] | None = None) -> Task:
    """A task of the user's own under the name that the recipe gives it.

    `NAME` is a subclass of `ProceduralTask`, which is given the weights of its levels; or anything that returns a
    task when it is called with nothing. Raises UsageError: it is neither, or cannot be made; a level that it does not
    train.
    """
    make = load(extension)
    try:
        if isinstance(make, type) and issubclass(make, ProceduralTask):
            task: Task = make(levels)
        elif levels:
            said = f"only a subclass of ProceduralTask has levels to choose from, not {list(levels)}"
            raise UsageError(said)
        else:
            task = make()
        if fault := _fault(task):
            raise UsageError(fault)
        task.name = name
    except (Exception, SystemExit) as error:
        failed = f"no task can be made of it: {_told(error, extension.use)}"
        raise UsageError(f"{extension.use}: {error if isinstance(error, UsageError) else failed}") from error
    return task


@cache
def load_reward(extension: Extension) -> Reward:
    """A reward function of the user's own. It may be async, and may have the signature that TRL or verl calls:

    - `f(response, row, gold)`: the text, the row's columns, and the column of the answer;
    - `f(prompts, completions, **columns)` as for TRL's `GRPOTrainer`: lists of one;
    - `f(data_source, solution_str, ground_truth, extra_info)` as verl's `compute_score`.

    It returns a score in [0, 1], a `Verdict`, or None where it cannot tell; TRL's a list of them, verl's may return a
    dict with `score`. Raises UsageError: it cannot be loaded, or is no function.
    """
    function = load(extension)
    if not callable(function):
        raise UsageError(f"{extension.use}: it is of type {type(function).__name__}, not a function")
    try:
        call = _caller(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{extension.use} cannot be called with (response, row, gold): {error}") from None

    def reward(response: str, row: Mapping[str, Any], gold: Any) -> Verdict:
        found = call(response, row, gold)
        return verdict_of(awaited(found) if inspect.isawaitable(found) else found)

    return reward


def awaited(found: Awaitable[Any]) -> Any:
    """What it gives. A thread keeps its event loop, as a client that a response made is of use to the next."""

    async def result() -> Any:
        return await found

    return _runner(os.getpid(), threading.get_ident()).run(result())


def installed_tasks() -> Mapping[str, str]:
    """Name → `package.module:NAME` of the tasks that installed packages offer as entry points `prorl.tasks`."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def _fault(task: Task) -> str | None:
    generated = isinstance(task, ProceduralTask)
    if generated and not hasattr(task, "weights"):
        return "the task's __init__ must call super().__init__(weights)"
    if missing := [member for member in TASK_MEMBERS if not hasattr(task, member)]:
        way = "set it in the class" if generated else "derive it from prorl.envs.ProceduralTask"
        return f"a task needs {', '.join(missing)}: {way}"
    if not isinstance(task.domain, str):
        return f"the task's domain must be a text, not {task.domain!r}"
    return None if task.splits else "the task has no problems: name at least one of its levels"


def _caller(function: Callable[..., Any]) -> Callable[[str, Mapping[str, Any], Any], Any]:
    signature = inspect.signature(function)
    names = signature.parameters
    if "completions" in names:

        def as_trl(response: str, row: Mapping[str, Any], gold: Any) -> Any:
            prompt = row.get("prompt")
            said: Any = [{"role": "assistant", "content": response}] if isinstance(prompt, list) else response
            columns = {key: [value] for key, value in row.items() if key not in ("prompt", "completion")}
            return function(prompts=[prompt], completions=[said], **columns)

        return as_trl
    if "solution_str" in names:
        return lambda response, row, gold: function(
            data_source=row.get("data_source"),
            solution_str=response,
            ground_truth=gold,
            extra_info=row.get("extra_info"),
        )
    signature.bind("", {}, None)
    return function


@cache
def _runner(process: int, thread: int) -> asyncio.Runner:  # a process that is forked must not share the loop
    return asyncio.Runner()


@lru_cache
def _run(place: str, source: str) -> ModuleType:
    module = ModuleType(MODULE + blake2b(f"{place}\n{source}".encode(), digest_size=8).hexdigest())
    module.__file__ = place
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class's module up
    if (folder := str(Path(place).parent)) not in sys.path:
        sys.path.append(folder)
    for name, path in _beside(place, source).items():
        found = importlib.util.find_spec(name)  # who has the name already keeps it
        if found and found.origin and Path(found.origin).resolve() != path.resolve():
            raise ImportError(f"{name} is {found.origin} and not {path}, beside it: rename one of them")
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    exec(compile(source, place, "exec"), vars(module))
    return module


def _beside(place: str, source: str) -> dict[str, Path]:
    """The modules that a file imports by a name that lies in its folder, too, and where they lie there."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    tops = sorted({name.partition(".")[0] for name in names})
    paths = [
        (name, Path(place).parent / end) for name in tops for end in (f"{name}.py", f"{name}/__init__.py")
    ]
    return {name: path for name, path in paths if path.is_file()}


def _parts(use: str) -> tuple[str, str]:
    """What is before the colon, empty where there is none, and what is after it."""
    form, _, rest = use.partition(":")
    if form in (ENVIRONMENTS, FOLDERS):
        return form, rest
    place, _, name = use.rpartition(":")
    return place, name


def _module(use: str) -> str:
    place, name = _parts(use)
    return name.replace("-", "_").lower() if place == ENVIRONMENTS else place


def _spec(use: str) -> Any:
    try:
        return importlib.util.find_spec(_module(use))
    except (ImportError, AttributeError, ValueError):
        return None
    except (Exception, SystemExit) as error:  # of a package above it, which is imported
        package = _module(use).partition(".")[0]
        raise UsageError(f"{use}: running {package} failed: {_told(error, use)}") from error


def _told(error: BaseException, use: str) -> str:
    """Type and message of an error, and the line of the user's file that it came through last."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == _parts(use)[0]]
    return f"{type(error).__name__}: {error}" + (f" (line {lines[-1]})" if lines else "")
