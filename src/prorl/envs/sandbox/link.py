"""A fork server as its parent sees it: how it is started at each tier, talked to within a deadline, and killed.

Tier A puts it into a container of bubblewrap: own mount, process, network, IPC and host-name spaces, no files
but the interpreter and the system's libraries, all read-only. Tiers B and C start it bare. Nothing that arrives
from it is trusted beyond its framing: lengths are bounded by what the server was told to allow.
"""

import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Literal, cast

from prorl.envs.errors import ProrlError
from prorl.envs.sandbox.inside.protocol import END, HEADER, HELLO, JOB, OUTPUT, RESULT
from prorl.envs.sandbox.jobs import Limits, Reply

START_SECONDS = 30.0  # a fresh interpreter on a busy machine
GRACE_SECONDS = 10.0  # beyond a job's own limit, which the server enforces, before the server counts as hung
MAX_FRAME = 1 << 20
CHUNK = 1 << 16
# the order of a set of strings, and with it a verdict, must not differ between two servers;
# what is bound to libraries before the fork costs no child anything
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LD_BIND_NOW": "1"}

Tier = Literal["A", "B", "C"]

SOURCE = Path(__file__).resolve().parents[3]  # the folder that holds prorl
OWN_PARTS = ("prorl/__init__.py", "prorl/envs/__init__.py", "prorl/envs/sandbox")  # what the server imports
INSIDE_SOURCE = "/code"  # where the server's own code lies in the container
PACKAGES = "/packages"  # where numpy lies there
SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
# What modules want called after a fork (a new seed, locks of threads) would take a tenth of each child's time.
_BOOT = (
    "import json, os, sys; os.register_at_fork = lambda **hooks: None; "
    "settings = json.loads(sys.argv[1]); sys.path.append(settings['source']); "
    "from prorl.envs.sandbox.inside import server; server.main(settings)"
)


class SandboxError(ProrlError):
    """Programs cannot be run safely here; the text says how to change that."""


class ServerLost(Exception):
    """The server died, hung or talked nonsense: no program's fault that anybody could tell."""


class Link:
    """One running fork server, for the thread that made it: the server dies when that thread ends."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the server and wait until it is ready; ServerLost, with what it said, if it does not start."""
        self._owner = os.getpid()
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                env=ENVIRONMENT,
                start_new_session=True,  # an interrupt at the terminal is for the trainer to handle
            )
        except OSError as error:
            raise ServerLost(f"{command[0]} cannot be executed: {error}") from error
        streams = cast(list[IO[bytes]], [self.process.stdin, self.process.stdout, self.process.stderr])
        self._stdin, self._stdout, self._stderr = streams
        for stream in streams[:2]:
            os.set_blocking(stream.fileno(), False)
        try:
            if self._frame(time.monotonic() + START_SECONDS)[0] != HELLO:
                raise ServerLost("the sandbox server does not speak this protocol")
        except ServerLost as error:
            self._kill()
            words = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
            self.close()
            raise ServerLost(words[-1] if words else str(error)) from error
        except BaseException:
            self.close()
            raise

    def request(self, program: bytes, stdin: bytes | None, limits: Limits, *, result_bytes: int) -> Reply:
        """Have one child run; wait for the limit's seconds and at most `GRACE_SECONDS` more.

        `program` is JSON of source, entry and inputs; `stdin` is of a script, None where a function is called;
        `result_bytes` bounds the report. Raises ServerLost where no answer is complete in time. After any exception
        the caller closes the link: what is on its way would be the next program's reply.
        """
        given = stdin or b""
        bounds, lengths = {"result_bytes": result_bytes, **asdict(limits)}, [len(program), len(given)]
        payload = json.dumps({"script": stdin is not None, "lengths": lengths, **bounds}).encode()
        deadline = time.monotonic() + limits.seconds + GRACE_SECONDS
        self._send(HEADER.pack(JOB, len(payload)) + payload + program + given, deadline)
        return self._reply(deadline)

    def close(self) -> None:
        """Kill the server, with it every program, and collect it; in a fork, only let go of it."""
        if self._owner == os.getpid():
            self._kill()
            self.process.wait()
        for stream in (self._stdin, self._stdout, self._stderr):
            stream.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def _reply(self, deadline: float) -> Reply:
        parts = {RESULT: bytearray(), OUTPUT: bytearray()}
        while True:
            kind, payload = self._frame(deadline)
            if kind == END:
                return Reply(report=bytes(parts[RESULT]), output=bytes(parts[OUTPUT]), **json.loads(payload))
            if kind not in parts:
                raise ServerLost(f"the sandbox server sent an unknown message {kind!r}")
            parts[kind] += payload

    def _frame(self, deadline: float) -> tuple[bytes, bytes]:
        kind, length = HEADER.unpack(self._read(HEADER.size, deadline))
        if length > MAX_FRAME:
            raise ServerLost(f"the sandbox server announced a message of {length} bytes")
        return kind, self._read(length, deadline)

    def _read(self, length: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < length:
            self._await(self._stdout, select.POLLIN, deadline)
            chunk = os.read(self._stdout.fileno(), min(CHUNK, length - len(data)))
            if not chunk:
                raise ServerLost("the sandbox server ended")
            data += chunk
        return bytes(data)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._await(self._stdin, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._stdin.fileno(), view) :]
            except BrokenPipeError as error:
                raise ServerLost("the sandbox server ended") from error

    def _await(self, stream: IO[bytes], event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(stream, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise ServerLost("the sandbox server does not answer")


def command(tier: Tier, *, numpy: Path | None = None) -> list[str]:
    """Arguments that start a fork server at this tier, with numpy loaded from a folder of packages if one is given.

    Raises ServerLost for tier A without bubblewrap.
    """
    contained = tier == "A"
    settings = {
        "source": INSIDE_SOURCE if contained else str(SOURCE),
        "packages": None if numpy is None else PACKAGES if contained else str(numpy),
        "filtered": tier != "C",
        "needs_landlock": tier == "B",
    }
    # -I but for -E: the environment is ours, and -E would ignore the seed of string hashes
    server = [str(interpreter()), *["-P", "-s", "-S", "-B", "-X", "utf8", "-c"], _BOOT, json.dumps(settings)]
    return [*_bubblewrap(numpy), "--", *server] if contained else server


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


def _bubblewrap(numpy: Path | None) -> list[str]:
    program = find_bubblewrap()
    if program is None:
        raise ServerLost("bubblewrap is not installed")
    # root becomes nobody in the container: the interpreter may lie where only root can enter
    user = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    if os.geteuid() != 0:
        help_text = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
        # no user namespace inside its own; since bubblewrap 0.8
        user = ["--unshare-user", *(["--disable-userns"] if "--disable-userns" in help_text else [])]
    return [
        program,
        *["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"],
        *["--die-with-parent", "--new-session", "--cap-drop", "ALL", *user],
        *_mounts(numpy),
        *["--remount-ro", "/", "--chdir", "/"],
    ]


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
