"""What a Ray cluster is like, found out by a small process on every node. Nothing of it stays behind."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from prorl.cluster.checks import Node
from prorl.cluster.cluster import ClusterError, join
from prorl.cluster.node import CONNECT_SECONDS, DRIVER, NodeProbe
from prorl.envs.files import write_atomic

ANSWER_SECONDS = 120.0  # to start a process on a node, and to look around there


def survey(address: str | None, run: Path) -> tuple[Node, ...]:
    """Look at every node of a cluster; files are exchanged where the run directory is or would be.

    Raises:
        ClusterError: no cluster answers at this address, or a node falls silent meanwhile.
        OSError: the driver itself cannot write there.
    """
    join(address)
    try:
        alive = {str(node["NodeID"]): node for node in ray.nodes() if node["Alive"]}
        probes = {name: _start(name) for name in alive}
        nodes = {name: _seen(node, probes[name]) for name, node in alive.items()}
        probes = {name: probe for name, probe in probes.items() if not nodes[name].trouble}
        nodes = _exchanged(nodes, probes, run)
        return tuple(_connected(nodes, probes).values())
    except RayError as error:
        raise ClusterError(
            f"a node fell silent while it was looked at ({_last_line(error)}): try again"
        ) from None
    finally:
        ray.shutdown()


def _start(node: str) -> Any:
    here = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    return ray.remote(NodeProbe).options(num_cpus=0, scheduling_strategy=here).remote()


def _seen(node: Mapping[str, Any], probe: Any) -> Node:
    known = Node(
        name=node["NodeManagerAddress"],
        cpus=node["Resources"].get("CPU", 0.0),
        gpus=int(node["Resources"].get("GPU", 0)),
    )
    try:
        versions, memory, devices, driver, sandbox = ray.get(probe.look.remote(), timeout=ANSWER_SECONDS)
    except RayError as error:
        reason = f"prorl does not run there ({_last_line(error)}): install the same on every node"
        return replace(known, trouble=reason)
    return replace(known, versions=versions, memory=memory, devices=devices, driver=driver, sandbox=sandbox)


def _exchanged(nodes: Mapping[str, Node], probes: Mapping[str, Any], run: Path) -> dict[str, Node]:
    found = dict(nodes)
    run = run.absolute()
    there = next(folder for folder in (run, *run.parents) if folder.is_dir())
    with TemporaryDirectory(dir=there, prefix=".doctor-") as name:
        folder, token = Path(name), secrets.token_bytes(16)
        write_atomic(folder / DRIVER, token)
        asked = {node: probe.exchange.remote(name, node) for node, probe in probes.items()}
        for node, answer in asked.items():
            trouble = ray.get(answer, timeout=ANSWER_SECONDS)
            back = folder / node
            if not trouble and not (back.is_file() and back.read_bytes() == token):
                trouble = (
                    f"what it writes into {there} does not arrive at the driver: it is not the same storage"
                )
            found[node] = replace(found[node], files=trouble)
    return found


def _connected(nodes: Mapping[str, Node], probes: Mapping[str, Any]) -> dict[str, Node]:
    found = dict(nodes)
    ports = {
        node: (nodes[node].name, ray.get(probe.port.remote(), timeout=ANSWER_SECONDS))
        for node, probe in probes.items()
    }
    asked = {
        node: probe.unreachable.remote([address for other, address in ports.items() if other != node])
        for node, probe in probes.items()
    }
    for node, answer in asked.items():
        seconds = ANSWER_SECONDS + CONNECT_SECONDS * len(ports)
        found[node] = replace(found[node], unreachable=ray.get(answer, timeout=seconds))
    return found


def _last_line(error: RayError) -> str:
    return str(error).strip().split("\n")[-1]
