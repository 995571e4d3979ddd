"""Runs this interpreter as a normal user from tests that root started."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

NOBODY = 65534
_ELSEWHERE = "/mnt"
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 1 << 12, 1 << 14, 1 << 18


def run_as_normal_user(arguments, cwd, python_path):
    """Run `python *arguments` as nobody and return what came of it.

    An interpreter beneath a folder of root's alone is shown to that process, and to no other, in another place.

    Raises:
        OSError or subprocess.SubprocessError: this machine does not let root do that.
    """
    hidden = not _reachable(Path(sys.base_prefix))
    prefix = _ELSEWHERE if hidden else sys.base_prefix
    return subprocess.run(
        [f"{prefix}/bin/python3", "-B", *arguments],
        preexec_fn=lambda: _become_nobody(hidden),
        env={
            "PYTHONPATH": os.pathsep.join(python_path),
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": "/",
        },
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def _become_nobody(hidden):
    if hidden:
        libc = ctypes.CDLL(None, use_errno=True)
        for failed in (
            libc.unshare(_CLONE_NEWNS),
            libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None),
            libc.mount(sys.base_prefix.encode(), _ELSEWHERE.encode(), None, _MS_BIND, None),
        ):
            if failed:
                raise OSError(ctypes.get_errno(), "no private view of the file system")
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _reachable(path):
    return all(folder.stat().st_mode & 1 for folder in (path, *path.parents))
