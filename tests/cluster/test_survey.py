"""`prorl doctor --backend ray` on real Ray: two nodes on this machine."""

import os

import pytest
from typer.testing import CliRunner

from prorl.cli.main import app
from prorl.cluster.survey import findings, installed
from prorl.envs.sandbox.sandbox import probe
from support.cluster import ray_nodes, write_nvidia_smi
from support.tiny import write_recipe

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def address():
    with ray_nodes({"num_cpus": 1}, {"num_cpus": 2}) as nodes:
        yield nodes.address


def test_every_node_is_looked_at_and_nothing_stays_behind(address, tmp_path):
    from prorl.cluster.survey import survey

    nodes = survey(address, tmp_path / "runs" / "big")
    assert sorted(node.cpus for node in nodes) == [1, 2]
    assert all(node.memory > 1 and node.versions == installed() for node in nodes)
    assert {node.sandbox for node in nodes} == {probe()[1] or ""}
    assert all(finding.works for finding in findings(nodes, installed()))
    assert os.listdir(tmp_path) == []
    assert not ray.is_initialized()


def doctor(*arguments):
    return CliRunner().invoke(app, ["doctor", "--backend", "ray", *arguments])


def test_the_doctor_answers_with_its_status(address, tmp_path):
    asked = ["--address", address, "--run", str(tmp_path), "--recipe", "nano", "device=cpu"]
    good = doctor(*asked, "cluster.learners=2", "cluster.engines=1")
    assert good.exit_code == 0, good.output
    assert "ok: room: 2 learner ranks and 1 engines, 1 CPUs for each" in good.output
    assert "ok: network: every node" in good.output
    judged = doctor(*asked, "cluster.judges=2", "judge.workers=1")
    assert judged.exit_code == 1
    assert "and 2 judges on 1 CPUs each: there are CPUs for 1" in judged.output
    full = doctor(*asked, "cluster.learners=2", "cluster.engines=2")
    assert full.exit_code == 1
    assert "does not fit: room: 2 learner ranks and 2 engines, 1 CPUs for each: there are places for 3" in (
        full.output
    )

    there = ["--address", address, "--run", str(tmp_path), "--recipe"]
    leave_out = ["tasks.ifeval=null", "tasks.ifbench=null"]  # their checkers are no part of this environment
    unprepared = doctor(*there, "prorl_v2", "device=cpu", f"data={tmp_path}", *leave_out)
    assert unprepared.exit_code == 1
    assert "does not fit: data: deepscaler, " in unprepared.output


@pytest.fixture
def eight_gpus(tmp_path, monkeypatch):
    """A node that says it has them, to Ray and by `nvidia-smi`."""
    write_nvidia_smi(tmp_path, *["81559, 580.65.06"] * 8)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with ray_nodes({"num_cpus": 64, "num_gpus": 8}) as nodes:
        yield nodes.address


def test_memory_is_planned_where_there_are_gpus(eight_gpus, model, tmp_path):
    recipe = write_recipe(tmp_path, model)
    asked = ["--address", eight_gpus, "--run", str(tmp_path), "--recipe", str(recipe), "device=cuda"]
    placed = ["cluster.learners=8", "cluster.engines=8", "cluster.colocate=true", "threads=8"]
    said = doctor(*asked, *placed)
    assert ": 8 GPUs of 80 GiB, 64 CPUs, " in said.output
    assert "ok: room: 8 learner ranks and 8 engines, two in turn on a GPU, 8 CPUs" in said.output
    assert "ok: host memory: a node holds up to 0.0 GiB" in said.output
    assert "everything fits by this estimate" in said.output
    assert said.exit_code == 0, said.output


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1"])
def test_a_cluster_that_is_not_there_is_told_in_a_sentence(tmp_path, address):
    said = doctor("--address", address, "--run", str(tmp_path))
    assert said.exit_code == 1
    assert f"no Ray cluster answers at {address} (" in said.output
