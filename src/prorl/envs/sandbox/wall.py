"""How the fork server is started at each tier: the command line, and nothing that runs.

Tier A puts a bubblewrap wall around it: own mount, process, network, IPC and host-name spaces, an empty file
system but for the interpreter and the system's libraries, all read-only. Tiers B and C start it bare.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Tier = Literal["A", "B", "C"]

SOURCE = Path(__file__).resolve().parents[3]  # the folder that holds prorl
OWN_PARTS = ("prorl/__init__.py", "prorl/envs/__init__.py", "prorl/envs/sandbox")  # what the server imports
INSIDE_SOURCE = "/code"  # where the server's own code lies behind the wall
PACKAGES = "/packages"  # where numpy lies there
SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_BOOT = (
    "import json, sys; settings = json.loads(sys.argv[1]); sys.path.append(settings['source']); "
    "from prorl.envs.sandbox.inside import server; server.main(settings)"
)


def command(tier: Tier, *, numpy: Path | None = None) -> list[str]:
    """Arguments that start a fork server at this tier, with numpy loaded from a folder of packages if one is given.

    Raises:
        FileNotFoundError: tier A without bubblewrap.
    """
    if tier == "A":
        packages = None if numpy is None else PACKAGES
        server = _server(source=INSIDE_SOURCE, packages=packages, filtered=True, needs_landlock=False)
        return [*_bubblewrap(numpy), "--", *server]
    packages = None if numpy is None else str(numpy)
    filtered = tier == "B"
    return _server(source=str(SOURCE), packages=packages, filtered=filtered, needs_landlock=filtered)


def find_numpy() -> Path | None:
    """The folder of packages that this interpreter would import numpy from, None if it is not installed."""
    spec = importlib.util.find_spec("numpy")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent.parent


def find_bubblewrap() -> str | None:
    """Path of the bwrap program, None if it is not installed."""
    return shutil.which("bwrap", path=os.environ.get("PATH", os.defpath) + ":/usr/bin:/bin")


def interpreter() -> Path:
    """The real interpreter: that of a virtual environment is a link into folders that need not be reachable."""
    return Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()


def _server(*, source: str, packages: str | None, filtered: bool, needs_landlock: bool) -> list[str]:
    settings = {
        "source": source,
        "packages": packages,
        "filtered": filtered,
        "needs_landlock": needs_landlock,
    }
    # -I but for -E: the environment holds only the seed of string hashes, which -E would ignore
    return [str(interpreter()), *["-P", "-s", "-S", "-B", "-X", "utf8", "-c"], _BOOT, json.dumps(settings)]


def _bubblewrap(numpy: Path | None) -> list[str]:
    program = find_bubblewrap()
    if program is None:
        raise FileNotFoundError("bubblewrap is not installed")
    return [
        program,
        *["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"],
        *["--die-with-parent", "--new-session", "--cap-drop", "ALL"],
        *_user_flags(program),
        *_mounts(numpy),
        *["--remount-ro", "/", "--chdir", "/"],
    ]


def _user_flags(program: str) -> list[str]:
    """A user namespace of its own, and none inside it; root instead becomes nobody inside the wall.

    Root cannot first become nobody outside: the interpreter may lie where only root can enter.
    """
    if os.geteuid() == 0:
        return ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    help_text = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    disable = ["--disable-userns"] if "--disable-userns" in help_text else []  # since 0.8
    return ["--unshare-user", *disable]


def _mounts(numpy: Path | None) -> Iterator[str]:
    yield from _bound("/usr")
    for folder in SYSTEM_FOLDERS:
        if os.path.islink(folder):
            yield from ("--symlink", os.readlink(folder), folder)
        elif os.path.isdir(folder):
            yield from _bound(folder)
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    for prefix in sorted({sys.base_prefix, str(interpreter().parent.parent), sysconfig.get_path("stdlib")}):
        if not prefix.startswith("/usr/"):
            yield from _bound(prefix)
    for part in ("numpy", "numpy.libs"):  # its own C libraries lie beside it
        if numpy is not None and (numpy / part).is_dir():
            yield from _bound(str(numpy / part), f"{PACKAGES}/{part}")
    yield from ("--dir", "/dev", "--dev-bind", os.devnull, os.devnull)
    for part in OWN_PARTS:
        yield from _bound(str(SOURCE / part), f"{INSIDE_SOURCE}/{part}")


def _bound(source: str, target: str | None = None) -> Iterator[str]:
    """A read-only view; folders above it are made here, because bubblewrap's own are for its user only."""
    target = target or source
    for parent in reversed(Path(target).parents[:-1]):
        yield from ("--dir", str(parent))
    yield from ("--ro-bind", source, target)
