"""What a program that breaks out could reach: each thing here shows afterwards whether somebody touched it."""

import ctypes
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

NOBODY = 65534
_PR_SET_CHILD_SUBREAPER = 36


class Arena:
    """A readable canary file, servers that count visitors, a bystander to kill, a secret in the environment."""

    def __init__(self):
        self.secret = secrets.token_hex(16)
        self._stack = ExitStack()
        self._adopt_orphans(True)
        self._stack.callback(self._adopt_orphans, False)
        self.folder = Path(tempfile.mkdtemp(prefix="arena", dir="/var/tmp"))
        self._stack.callback(shutil.rmtree, self.folder)
        self.folder.chmod(0o777)
        self.canary = self.folder / "canary"
        self.canary.write_text(self.secret)
        self.canary.chmod(0o666)
        variable = f"TEST_SECRET_{secrets.token_hex(4)}"
        os.environ[variable] = self.secret
        self._stack.callback(os.environ.pop, variable)
        self.abstract = f"\0{secrets.token_hex(8)}"
        self.path = self.folder / "socket"
        self._servers = [
            self._listen(socket.AF_INET, ("127.0.0.1", 0)),
            self._listen(socket.AF_UNIX, str(self.path)),
            self._listen(socket.AF_UNIX, self.abstract),
        ]
        self.path.chmod(0o777)
        same_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        self._bystander = subprocess.Popen(["sleep", "600"], cwd="/", **same_user)
        self._stack.callback(self._end_bystander)
        self._files = self._listing()

    def facts(self):
        """What an attacker is told, so that no attack fails for want of a target."""
        return {
            "canary": str(self.canary),
            "folder": str(self.folder),
            "port": self._servers[0].getsockname()[1],
            "path": str(self.path),
            "abstract": self.abstract,
            "bystander": self._bystander.pid,
            "parent": os.getpid(),
            "home": str(Path.home()),
        }

    def damage(self):
        """What has happened to the arena, in words; empty if nothing."""
        found = [f"visitor on {server.getsockname()}" for server in self._servers if _visited(server)]
        if self._listing() != self._files:
            found.append(f"files {self._listing()}")
        if self.canary.read_text() != self.secret:
            found.append("the canary was written to")
        if self._bystander.poll() is not None:
            found.append("the bystander was killed")
        return found

    def close(self):
        """Take everything down."""
        self._stack.close()

    def _listing(self):
        return sorted(
            (entry.name, entry.lstat().st_mode, entry.lstat().st_nlink) for entry in self.folder.iterdir()
        )

    def _listen(self, family, address):
        server = self._stack.enter_context(socket.socket(family))
        server.bind(address)
        server.listen()
        server.setblocking(False)
        return server

    def _end_bystander(self):
        self._bystander.kill()
        self._bystander.wait()

    @staticmethod
    def _adopt_orphans(adopt):
        """Whether a process whose parent ends becomes a child of this one, where it can be counted."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def _visited(server):
    try:
        visitor, _ = server.accept()
    except BlockingIOError:
        return False
    visitor.close()
    return True
