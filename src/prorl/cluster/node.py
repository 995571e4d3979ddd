"""The process that looks at a node of a cluster for the driver. It imports nothing heavy, as it runs everywhere."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from prorl.cluster.checks import installed
from prorl.envs.errors import ProrlError
from prorl.envs.files import write_atomic
from prorl.envs.sandbox.probe import probe
from prorl.run.process import machine_memory

Address = tuple[str, int]

CONNECT_SECONDS = 5.0
DRIVER = "driver"  # the file that the driver has written


class NodeProbe:
    """An actor on the node. It listens at a port of the system's choice, as learner ranks do."""

    def __init__(self) -> None:
        self._server = socket.create_server(("", 0))

    def look(self) -> tuple[dict[str, str], float, tuple[float, ...], str, str]:
        """Installed versions, GiB of memory that it may use and of each GPU's, their driver, its sandbox's tier."""
        memory = machine_memory()[0] / 2**30
        devices, driver = gpus()
        return installed(), memory, devices, driver, probe().tier or ""

    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.getsockname()[1]
        return port

    def close(self) -> None:
        """Listen no more."""
        self._server.close()

    def unreachable(self, others: Sequence[Address]) -> tuple[str, ...]:
        """Those of the other nodes to which no connection can be opened."""
        return tuple(host for host, port in others if not _connects(host, port))

    def exchange(self, folder: str, name: str) -> str:
        """Read the driver's file and write the same into one of this name; returns what went wrong."""
        try:
            write_atomic(Path(folder) / name, (Path(folder) / DRIVER).read_bytes())
        except (OSError, ProrlError) as error:
            return f"{error}: the run directory must lie on storage that all nodes see under one path"
        return ""


def gpus() -> tuple[tuple[float, ...], str]:
    """GiB of every GPU of this machine, whoever may use it, and the version of their driver."""
    query = ["nvidia-smi", "--query-gpu=memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return (), ""
    rows = [line.split(", ") for line in listed.splitlines() if line.strip()]
    return tuple(float(memory) / 1024 for memory, _ in rows), rows[0][1] if rows else ""


def _connects(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            return True
    except OSError:
        return False
