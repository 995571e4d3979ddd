"""Where the processes of a run go on real Ray, whose nodes are said to have GPUs; nothing here uses one."""

import pytest

from prorl.build import settled
from prorl.cluster.settings import ClusterSettings, EngineSettings
from prorl.config.recipe import load_recipe

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

ENGINE = EngineSettings(config="", eos_ids=(0,), context=8)


def somewhere():
    """A class of actors in the place of ranks and engines; made in here, as that spares them all our imports."""

    class Somewhere:
        def __init__(self, *_):
            pass

        def where(self):
            return ray.get_runtime_context().get_node_id(), sorted(ray.get_gpu_ids())

    return Somewhere


@pytest.fixture(scope="module")
def address():
    """A head without GPUs and two nodes with four each."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    for _ in range(2):
        nodes.add_node(num_cpus=4, num_gpus=4)
    nodes.wait_for_nodes()
    yield nodes.address
    nodes.shutdown()


def placed(address, monkeypatch, *, room_deadline=20.0, **settings):
    """Node and GPUs of every rank, then of every engine."""
    from prorl.cluster import cluster

    for kind in ("EngineActor", "LearnerRank"):
        monkeypatch.setattr(cluster, kind, somewhere())
    told = ClusterSettings(address=address, device="cuda", threads=1, room_deadline=room_deadline, **settings)
    places = cluster.Cluster(told)
    try:
        ranks = [places.start_rank(index) for index in range(told.learners)]
        engines = [places.start_engine(index, ENGINE) for index in range(told.engines)]
        found = ray.get([one.where.remote() for one in (*ranks, *engines)], timeout=120)
        return found[: told.learners], found[told.learners :]
    finally:
        places.close()


def test_apart_everybody_has_gpus_of_his_own_and_an_engine_all_in_one_node(address, monkeypatch):
    ranks, engines = placed(address, monkeypatch, learners=2, engines=3, tensor_parallel=2)
    assert [len(gpus) for _, gpus in (*ranks, *engines)] == [1, 1, 2, 2, 2]
    held = [(node, gpu) for node, gpus in (*ranks, *engines) for gpu in gpus]
    assert len(set(held)) == 8


def test_colocated_engine_and_rank_are_on_the_same_gpu(address, monkeypatch):
    ranks, engines = placed(address, monkeypatch, learners=5, engines=5, colocate=True)
    assert ranks == engines
    assert len({(node, *gpus) for node, gpus in ranks}) == 5


def test_no_room_is_said_with_what_was_asked_for(address, monkeypatch):
    from prorl.cluster.cluster import ClusterError

    with pytest.raises(ClusterError, match=r"1 places of 1 CPU and 1 GPU and 2 places of 4 CPU and 4 GPU"):
        placed(address, monkeypatch, learners=1, engines=2, tensor_parallel=4, room_deadline=2.0)


def test_the_device_of_a_run_is_what_the_cluster_has(address):
    asked = load_recipe("nano", ["backend=ray", f"cluster.address={address}"])
    assert settled(asked).device == "cuda"
    assert not ray.is_initialized()
    assert settled(load_recipe("nano", ["backend=ray"])).device == "cpu"  # of this machine
