"""What a Ray cluster is like, and whether a run finds on it what it needs: probes of all nodes, and findings.

Ray is imported inside functions alone: findings are plain functions of what the probes saw.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.specifiers import SpecifierSet

from prorl.cluster.capacity import GIB, PLANNED
from prorl.cluster.settings import ClusterError, device_kind, free_address, places, use_interface_of
from prorl.config.schema import RunConfig
from prorl.envs.errors import ProrlError
from prorl.envs.files import write_atomic
from prorl.envs.sandbox.sandbox import Finding, probe
from prorl.run.process import machine_memory

RANGES: Mapping[str, str] = {
    "ray": "==2.60.*",
    "vllm": ">=0.25.1,<0.33",
    "torch": ">=2.11,<2.14",
    "transformers": ">=5.16.1,<5.20",
}
"""What the tests of the cluster backend run on at both ends; a vLLM is built for one version of torch."""

OLDEST_DRIVER: Mapping[str, int] = {"12": 525, "13": 580}
"""CUDA that torch is built for, its major version → the first of NVIDIA's drivers that serves it."""

CONNECT_SECONDS = 5.0
MEETING_SECONDS = 30.0  # for all nodes to form a process group
ANSWER_SECONDS = 120.0  # for a process to start on a node and answer
LEAST_SHARED = 1.0  # GiB; containers have a sixteenth where nobody asks for more
DRIVER = "driver"  # the file that the driver has written


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a cluster as the driver and a process on it see it."""

    name: str  # its address
    cpus: float = 0.0  # that Ray has to give
    gpus: int = 0  # likewise
    memory: float = 0.0  # of the machine or of the container there, GiB
    shared: float = LEAST_SHARED  # of /dev/shm there, GiB
    devices: Sequence[float] = ()  # GiB of every GPU of the machine
    driver: str = ""  # version of its GPUs' driver; empty where it has none
    cuda: str = ""  # that its torch is built for; empty where for CPUs
    sandbox: str = ""  # tier at which it runs programs of models; empty where it cannot
    versions: Mapping[str, str] = field(default_factory=dict)  # of RANGES, and of prorl; empty where missing
    lacks: Sequence[str] = ()  # for vLLM's kernels, if it has GPUs
    files: str = ""  # what went wrong with files between it and the driver
    unreachable: Sequence[str] = ()  # nodes that it cannot open a connection to
    alone: str = ""  # why it could not add up numbers with the others
    trouble: str = ""  # why it could not be asked at all


class NodeProbe:
    """An actor on a node. It listens at a port that the system chooses, as learner ranks do."""

    def __init__(self) -> None:
        self._server = socket.create_server(("", 0))
        self.port: int = self._server.getsockname()[1]

    def look(self, folder: str, name: str) -> dict[str, Any]:
        """What only a process on the node can see, as fields of `Node`, and its port; files as in `exchange`."""
        import torch

        devices, driver = gpus()
        _, tier = probe()
        return {
            "cuda": torch.version.cuda or "",
            "versions": installed(),
            "memory": machine_memory()[0] / GIB,
            "shared": shutil.disk_usage("/dev/shm").total / GIB,
            "devices": devices,
            "driver": driver,
            "lacks": tuple(no_compiler()) if devices else (),
            "sandbox": tier or "",
            "port": self.port,
            "files": self.exchange(folder, name),
        }

    def unreachable(self, others: Sequence[tuple[str, int]]) -> tuple[str, ...]:
        """Hosts to whose port no connection can be opened."""
        missed = []
        for address in others:
            try:
                socket.create_connection(address, timeout=CONNECT_SECONDS).close()
            except OSError:
                missed.append(address[0])
        return tuple(missed)

    def meeting(self) -> str:
        """An address of this node at which all probes can form a process group."""
        return "tcp://{}:{}".format(*free_address())

    def add_up(self, meeting: str, index: int, count: int) -> str:
        """An all-reduce with the probes of all nodes, as learner ranks do; returns what went wrong."""
        import torch
        import torch.distributed as dist

        use_interface_of(free_address()[0])
        group: dict[str, Any] = {"init_method": meeting, "rank": index, "world_size": count}
        total = torch.ones(1)
        try:
            dist.init_process_group("gloo", timeout=timedelta(seconds=MEETING_SECONDS), **group)
            dist.all_reduce(total)
            return "" if total.item() == count else f"the sum of {count} ones was {total.item():g}"
        except (RuntimeError, ValueError) as error:
            return str(error).partition("\n")[0]

    def exchange(self, folder: str, name: str) -> str:
        """Copy the driver's file to one of this name; returns what went wrong."""
        try:
            write_atomic(Path(folder) / name, (Path(folder) / DRIVER).read_bytes())
        except (OSError, ProrlError) as error:
            return f"{error}: the run directory must lie on storage that all nodes see under one path"
        return ""


def survey(address: str | None, run: Path) -> tuple[Node, ...]:
    """Probe every node of a cluster; files are exchanged where the run directory is or would be.

    Raises ClusterError where no cluster answers or a node falls silent, OSError where the driver itself cannot write.
    """
    import ray
    from ray.exceptions import RayError

    from prorl.cluster.cluster import join, reason

    join(address)
    there = next(folder for folder in (run.absolute(), *run.absolute().parents) if folder.is_dir())
    try:
        with TemporaryDirectory(dir=there, prefix=".doctor-") as folder:
            return _survey(Path(folder))
    except RayError as error:
        raise ClusterError(f"a node fell silent while it was probed ({reason(error)}): try again") from None
    finally:
        ray.shutdown()


def _survey(folder: Path) -> tuple[Node, ...]:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from prorl.cluster.cluster import reason

    alive = {str(node["NodeID"]): node for node in ray.nodes() if node["Alive"]}
    token = secrets.token_bytes(16)
    write_atomic(folder / DRIVER, token)
    probes, looking = {}, {}
    seen: dict[str, dict[str, Any]] = {}  # fields of `Node`
    for name, node in alive.items():
        cpus, devices = (node["Resources"].get(kind, 0.0) for kind in ("CPU", "GPU"))
        seen[name] = {"name": node["NodeManagerAddress"], "cpus": cpus, "gpus": int(devices)}
        here = NodeAffinitySchedulingStrategy(node_id=name, soft=False)
        probes[name] = ray.remote(NodeProbe).options(num_cpus=0, scheduling_strategy=here).remote()
        looking[name] = probes[name].look.remote(str(folder), name)
    for name, answer in looking.items():
        try:
            seen[name] |= ray.get(answer, timeout=ANSWER_SECONDS)
        except RayError as error:
            trouble = f"prorl does not run there ({reason(error)}): install the same on every node"
            seen[name]["trouble"] = trouble
            del probes[name]
            continue
        back = folder / name
        if not seen[name]["files"] and not (back.is_file() and back.read_bytes() == token):
            lost = f"a file written into {folder.parent} does not arrive at the driver: it is another storage"
            seen[name]["files"] = lost
    listening = {name: (seen[name]["name"], seen[name].pop("port")) for name in probes}
    asked = {
        name: probe.unreachable.remote([there for other, there in listening.items() if other != name])
        for name, probe in probes.items()
    }
    for name, answer in asked.items():
        within = ANSWER_SECONDS + CONNECT_SECONDS * len(probes)
        seen[name]["unreachable"] = ray.get(answer, timeout=within)
    if len(probes) > 1 and not any(seen[name]["unreachable"] for name in probes):
        meeting = ray.get(next(iter(probes.values())).meeting.remote(), timeout=ANSWER_SECONDS)
        adding = {
            name: probe.add_up.remote(meeting, at, len(probes))
            for at, (name, probe) in enumerate(probes.items())
        }
        for name, answer in adding.items():
            seen[name]["alone"] = ray.get(answer, timeout=ANSWER_SECONDS + 2 * MEETING_SECONDS)
    return tuple(Node(**fields) for fields in seen.values())


def gpus() -> tuple[tuple[float, ...], str]:
    """GiB of every GPU of this machine, whoever may use it, and the version of their driver."""
    query = ["nvidia-smi", "--query-gpu=memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return (), ""
    # Where there are none it may say "No devices were found".
    rows = [line.rsplit(", ", 1) for line in listed.splitlines() if ", " in line]
    shared = machine_memory()[0] / GIB  # of a GPU that uses the machine's memory, whose own reads "[N/A]"
    sizes = tuple(float(said) / 1024 if said.isdecimal() else shared for said, _ in rows)
    return sizes, rows[0][1] if rows else ""


def installed() -> dict[str, str]:
    """Versions in this Python, without importing anything; empty where a package is missing."""
    found = {one.name: one.version for one in reversed([*distributions()])}  # the first of a name is imported
    # vLLM has another name where it is built for CPUs.
    return {name: found.get(name) or found.get(f"{name}-cpu", "") for name in (*RANGES, "prorl")}


def no_compiler() -> Iterator[str]:
    """What is missing here for the kernels that vLLM builds on a GPU when it starts."""
    if not any(map(shutil.which, filter(None, (os.environ.get("CC"), "gcc", "clang")))):
        yield "vLLM builds kernels when it starts, and there is no C compiler: apt-get install gcc"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        yield "vLLM builds kernels when it starts, and Python's headers are missing: apt-get install python3-dev"


def wrong_versions(there: Mapping[str, str]) -> Iterator[str]:
    """Of what is installed, what is none of `RANGES`."""
    for name, wanted in RANGES.items():
        if not there[name] or there[name] not in SpecifierSet(wanted, prereleases=True):
            yield f"{name} {there[name]} is not {wanted}" if there[name] else f"{name} {wanted} is missing"


def findings(nodes: Sequence[Node], driver: Mapping[str, str]) -> Iterator[Finding]:
    """All checks that do not depend on a recipe; `driver` is what is installed there."""
    asked = [node for node in nodes if not node.trouble]
    yield from (_finding(f"node {node.name}", [node.trouble], "") for node in nodes if node.trouble)
    wrong = list(wrong_versions(driver))
    wrong += [
        f"node {node.name} has {name} {there or 'not at all'}, the driver {driver[name]}"
        for node in asked
        for name, there in node.versions.items()
        if there != driver[name]
    ]
    said = ", ".join(f"{name} {number}" for name, number in driver.items())
    yield _finding("versions", wrong, f"{said}, the same on every node")
    yield from map(_hardware, asked)
    wrong = [f"{node.name}: {node.files}" for node in asked if node.files]
    yield _finding("shared storage", wrong, "files pass both ways between the driver and every node")
    wrong = [
        f"{node.name}: no connection to {', '.join(node.unreachable)}: open all ports between the nodes"
        for node in asked
        if node.unreachable
    ]
    wrong += [
        f"{node.name}: an all-reduce over all nodes failed: {node.alone}" for node in asked if node.alone
    ]
    yield _finding("network", wrong, "every node opens connections to every other, and all add up numbers")


def room(nodes: Sequence[Node], config: RunConfig) -> Finding:
    """Whether the processes of a settled recipe find places, and use the GPUs that are there.

    They claim no CPUs where Ray is started for this run alone.
    """
    wanted, workers, claimed = config.cluster, config.judge.workers, config.cluster.address is not None
    cuda, threads = device_kind(config) == "cuda", config.threads if claimed else 0
    gpus, cpus = [node.gpus for node in nodes], [node.cpus for node in nodes]
    found = 0
    for place in sorted(places(config), reverse=True):  # the largest first, none over two nodes
        for at in range(len(nodes)):
            if gpus[at] >= place * cuda and cpus[at] >= place * threads:
                gpus[at] -= place * cuda
                cpus[at] -= place * threads
                found += 1
                break
    seats = sum(int(left // workers) for left in cpus) if claimed else wanted.judges
    gpu = "two in turn on a GPU" if wanted.colocate else f"of {wanted.tensor_parallel} GPUs of one node"
    asked = f"{wanted.learners} learner ranks and {wanted.engines} engines" + f", {gpu}" * cuda
    asked += f", {threads} CPUs for each{' GPU' * cuda}" * claimed
    asked += f", and {wanted.judges} judges on {workers} CPUs each" * (wanted.judges > 0)
    wrong = []
    if found < len(places(config)):
        wrong = [f"{asked}: there are places for {found}; lower cluster.learners, cluster.engines or threads"]
    elif seats < wanted.judges:
        wrong = [f"{asked}: there are CPUs for {seats}; lower cluster.judges, judge.workers or threads"]
    elif any(gpus) and not cuda:
        wrong = [f"{asked}: all {sum(gpus)} GPUs would be idle; set device=cuda"]
    return _finding("room", wrong, asked + f"; {sum(gpus)} GPUs stay idle" * any(gpus))


def host_memory(nodes: Sequence[Node], needed: float, *, gpus: int) -> Finding:
    """Whether nodes have the GiB of host memory that one needs at most, which computes on so many GPUs.

    Every process takes some for itself as well, so not all of a node's is planned with.
    """
    asked = f"a node holds up to {needed:.1f} GiB for the run, beside what every process takes for itself"
    small = [
        f"{asked}; {node.name} has {node.memory:.1f}, of which {PLANNED:.0%} is planned with: take nodes with more "
        "memory, or fewer places on a node"
        for node in nodes
        if node.gpus >= gpus and PLANNED * node.memory < needed
    ]
    return _finding("host memory", small[:1], asked)


def _hardware(node: Node) -> Finding:
    seen = f"{node.gpus} GPUs" + (f" of {min(node.devices):.0f} GiB" if node.devices else "")
    seen += f", {node.cpus:g} CPUs, {node.memory:.0f} GiB of memory, "
    seen += f"sandbox of tier {node.sandbox}" if node.sandbox else "no safe sandbox (docs/sandbox.md)"
    wrong = []
    if node.gpus < len(node.devices):
        wrong += [f"Ray offers {node.gpus} of its {len(node.devices)} GPUs: start it without --num-gpus"]
    if node.shared < LEAST_SHARED:
        wrong += [
            f"/dev/shm has {node.shared:.2g} GiB, too little for Ray's store and engines of several GPUs: start the "
            "container with --shm-size=16g, or mount a volume of `medium: Memory` there"
        ]
    oldest = OLDEST_DRIVER.get(node.cuda.partition(".")[0], 0)
    if node.driver and int(node.driver.partition(".")[0]) < oldest:
        wrong += [f"driver {node.driver} cannot serve CUDA {node.cuda} ({oldest} or newer)"]
    return _finding(f"node {node.name}", [*wrong, *node.lacks], seen)


def _finding(name: str, wrong: Sequence[str], good: str) -> Finding:
    return Finding(name=name, works=not wrong, detail="; ".join(wrong) or good)
