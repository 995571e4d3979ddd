"""Messages between the trainer's side and the fork server: one byte of kind, four of length, the payload.

Both ends use this one description. Payloads that a program has influenced are passed on as bytes, unread.
"""

from __future__ import annotations

import os
import struct

HEADER = struct.Struct("!cI")

HELLO = b"H"  # server is ready: JSON
JOB = b"J"  # to the server: JSON
RESULT = b"R"  # bytes from a program's result descriptor
OUTPUT = b"O"  # bytes from a program's standard output
END = b"E"  # how the program ended: JSON

# what a child reports: READY once it is confined, then lines [index of the input, status, value, note]
READY = b"."
ALL_INPUTS = -1  # index: every input that has no line yet
NOTE_CHARS = 200


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, however often the kernel interrupts."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def send(descriptor: int, kind: bytes, payload: bytes) -> None:
    """Write one message."""
    write_all(descriptor, HEADER.pack(kind, len(payload)) + payload)


def receive(descriptor: int) -> tuple[bytes, bytes] | None:
    """Block for one message; None once the other end has gone."""
    header = _read_exactly(descriptor, HEADER.size)
    if header is None:
        return None
    kind, length = HEADER.unpack(header)
    payload = _read_exactly(descriptor, length)
    return None if payload is None else (kind, payload)


def _read_exactly(descriptor: int, length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        chunk = os.read(descriptor, min(length - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
    return bytes(data)
