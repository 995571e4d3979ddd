"""A fork server as its parent sees it: a process to talk to within a deadline, killed when it does not answer.

Nothing that arrives is trusted beyond its framing: lengths are bounded by what the server was told to allow.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from prorl.envs.errors import ProrlError
from prorl.envs.sandbox.inside.frames import END, HEADER, HELLO, JOB, OUTPUT, RESULT

START_SECONDS = 30.0  # a fresh interpreter on a busy machine
MAX_FRAME = 1 << 20
CHUNK = 1 << 16
# the order of a set of strings, and with it a verdict, must not differ between two servers
ENVIRONMENT = {"PYTHONHASHSEED": "0"}


class SandboxError(ProrlError):
    """Programs cannot be run safely here; the text says how to change that."""


class ServerLost(Exception):
    """The server died, hung or talked nonsense: no program's fault that anybody could tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one child left behind: raw bytes of its report and of its output, and how it ended."""

    report: bytes
    output: bytes
    cause: str  # "exit", "time" or "output"
    signal: int  # that killed it, unless the server did; 0 if none
    cpu_seconds: float
    peak_bytes: int  # of memory held
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one child is to run, and within which limits."""

    program: bytes  # JSON of source, entry and inputs
    stdin: bytes | None  # of a script; None where a function is called
    seconds: float
    memory_bytes: int
    output_bytes: int
    result_bytes: int  # length of the whole report

    def message(self) -> bytes:
        """As it travels: the limits, which the server reads, then program and input, which it only moves."""
        stdin = self.stdin or b""
        limits = {
            "script": self.stdin is not None,
            "program_length": len(self.program),
            "stdin_length": len(stdin),
            "seconds": self.seconds,
            "memory_bytes": self.memory_bytes,
            "output_bytes": self.output_bytes,
            "result_bytes": self.result_bytes,
        }
        payload = json.dumps(limits).encode()
        return HEADER.pack(JOB, len(payload)) + payload + self.program + stdin


class Link:
    """One running fork server. Used by the thread that made it: the server dies when that thread ends."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the server and wait until it is ready.

        Raises:
            ServerLost: it does not start; the text is what it said.
        """
        try:
            self._process = subprocess.Popen(
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
        for stream in (self._stdin, self._stdout):
            os.set_blocking(stream.fileno(), False)
        try:
            kind, payload = self._frame(time.monotonic() + START_SECONDS)
            if kind != HELLO:
                raise ServerLost("the sandbox server does not speak this protocol")
        except ServerLost as error:
            raise ServerLost(self._last_words() or str(error)) from error
        self.hello: dict[str, Any] = json.loads(payload)

    @property
    def pid(self) -> int:
        """Process id of the server, or of the wall around it."""
        return self._process.pid

    def request(self, order: Order, grace: float) -> Reply:
        """Have one child run; wait for its seconds and at most `grace` more.

        Raises:
            ServerLost: no complete answer in time; the server has been killed.
        """
        try:
            deadline = time.monotonic() + order.seconds + grace
            self._send(order.message(), deadline)
            return self._reply(deadline)
        except ServerLost:
            self.close()
            raise

    def close(self) -> None:
        """Kill the server, with it every program, and collect it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _reply(self, deadline: float) -> Reply:
        parts: dict[bytes, bytearray] = {RESULT: bytearray(), OUTPUT: bytearray()}
        while True:
            kind, payload = self._frame(deadline)
            if kind == END:
                end = json.loads(payload)
                return Reply(
                    report=bytes(parts[RESULT]),
                    output=bytes(parts[OUTPUT]),
                    cause=end["cause"],
                    signal=end["signal"],
                    cpu_seconds=end["cpu"],
                    peak_bytes=end["peak"],
                    seconds=end["seconds"],
                )
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

    def _last_words(self) -> str:
        """The last line that a server which failed to start wrote to its standard error."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        assert self._process.stderr is not None
        words = self._process.stderr.read().decode("utf-8", "replace").strip()
        self.close()
        return words.splitlines()[-1] if words else ""
