"""Landlock against this kernel: after it, a process reads beneath what it named and nowhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest

import prorl
from prorl.envs.sandbox.inside import confine

pytestmark = pytest.mark.skipif(confine.landlock_abi() == 0, reason="this kernel has no Landlock")

RESTRICTED = """
import os, socket, sys
sys.path.append(sys.argv[1])
from prorl.envs.sandbox.inside import confine
version = min(int(sys.argv[3]), confine.landlock_abi())
confine.prctl(confine.SET_NO_NEW_PRIVS, 1)
folder = os.open(sys.argv[2], os.O_PATH)
confine.restrict(confine.ruleset(version, [folder]))
def attempt(action):
    try:
        action()
        return "done"
    except OSError as error:
        return type(error).__name__
inside, outside = sys.argv[2] + "/file", sys.argv[2] + "/../outside"
print(
    attempt(lambda: open(inside).read()),
    attempt(lambda: os.listdir(sys.argv[2])),
    attempt(lambda: open(outside).read()),
    attempt(lambda: open(inside, "a")),
    attempt(lambda: os.unlink(inside)),
    attempt(lambda: open(sys.argv[2] + "/new", "w")),
    attempt(lambda: os.mkdir(sys.argv[2] + "/folder")),
    attempt(lambda: os.execv("/bin/true", ["true"])),
)
"""


@pytest.mark.parametrize("version", range(1, 8))
def test_reading_beneath_the_named_folder_is_all_that_is_left(tmp_path, version):
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "file").write_text("x")
    (tmp_path / "outside").write_text("x")
    source = str(prorl.__path__[0]).removesuffix("/prorl")
    done = subprocess.run(
        [sys.executable, "-c", RESTRICTED, source, tmp_path / "named", str(version)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["done", "done", *["PermissionError"] * 6]
    assert (tmp_path / "named" / "file").read_text() == "x"
