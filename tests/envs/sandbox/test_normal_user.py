"""The same sandbox opened by a user who is not root: nothing in it may need privileges."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import prorl
from prorl.envs.sandbox.link import find_bubblewrap, interpreter
from support.sandbox_tiers import TIERS

NOBODY = 65534
SCRIPT = """
import json, sys
from prorl.envs.sandbox.jobs import Job, Limits
from prorl.envs.sandbox.sandbox import Policy, Sandbox
with Sandbox.open(Policy(tier=sys.argv[1])) as sandbox:
    for source in json.loads(sys.argv[2]):
        (result,) = sandbox.run(Job(source=source, inputs=("in",), limits=Limits(seconds=2.0)))
        print(json.dumps([result.status, result.value, result.note]))
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the other tests already run as a normal user")


def is_usable(python: str) -> bool:
    """Whether a normal user can run this interpreter, and it is one that prorl supports."""
    check = [python, "-c", "import sys; raise SystemExit(sys.version_info < (3, 11))"]
    try:
        return subprocess.run(check, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/").returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="module")
def python() -> str:
    found = [
        str(interpreter()),
        sys.executable,
        *filter(None, [shutil.which("python3", path="/usr/bin")]),
    ]
    usable = [candidate for candidate in found if is_usable(candidate)]
    if not usable:
        pytest.skip("no interpreter here that a normal user could run")
    return usable[0]


@pytest.fixture(scope="module")
def source() -> Iterator[Path]:
    """What the sandbox needs of prorl, where a normal user can read it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        package = Path(prorl.__path__[0])
        target = Path(folder, "prorl")
        shutil.copytree(package / "envs" / "sandbox", target / "envs" / "sandbox")
        for name in ("__init__.py", "envs/__init__.py", "envs/errors.py"):
            shutil.copy(package / name, target / name)
        for path in target.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        target.chmod(0o755)
        yield Path(folder)


def run(python: str, source: Path, tier: str, *programs: str) -> list[list[str | None]]:
    done = subprocess.run(
        [python, "-B", "-c", SCRIPT, tier, json.dumps(programs)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        env={"PYTHONPATH": str(source), "PATH": os.environ.get("PATH", os.defpath)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("tier", TIERS)
def test_programs_run_and_are_contained(python, source, tier):
    first, *attempts = run(
        python,
        source,
        tier,
        "import difflib; print(input())",
        "print(open('/etc/passwd').read())",
        "import os; os.fork()",
        "import os; os.kill(-1, 9)",
        "import socket; socket.socket()",
        "open('/tmp/written', 'w')",
        "import os; os.listdir('/proc/self')",
        "import _thread; _thread.start_new_thread(print, ())",
    )
    assert first == ["ok", "in\n", ""]
    assert [status for status, _, _ in attempts] == ["runtime_error"] * len(attempts)
    notes = [note.partition(":")[0] for _, _, note in attempts]
    assert set(notes) <= {"PermissionError", "FileNotFoundError", "RuntimeError"}


def test_a_crash_cannot_be_dumped(python, source):
    """What may be dumped has files in /proc that belong to its user, all else to root."""
    look = "import os, resource\nprint(os.stat('/proc/self/stat').st_uid, resource.getrlimit(resource.RLIMIT_CORE))"
    assert run(python, source, "B", look) == [["ok", "0 (0, 0)\n", ""]]


@pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed")
def test_inside_the_wall_only_the_interpreter_can_be_seen(python, source):
    names = ["/etc/passwd", "/home", "/proc/1", "/tmp", "/var"]
    listing = f"import os\nprint([name for name in {names} if os.path.exists(name)])"
    assert run(python, source, "A", listing) == [["ok", "[]\n", ""]]
