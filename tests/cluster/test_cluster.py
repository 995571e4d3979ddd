"""Where the processes of a run go on real Ray, whose nodes are said to have GPUs; nothing here uses one."""

import json
import platform
from contextlib import closing

import pytest

from prorl.build import settled
from prorl.cluster.settings import ClusterError
from prorl.config.recipe import load_recipe
from support.cluster import cluster_recipe, ray_nodes

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]


def somewhere():
    """A class of actors instead of ranks and engines; made in here, so that they import nothing of ours."""

    class Somewhere:
        def __init__(self, *_):
            pass

        def where(self):
            return ray.get_runtime_context().get_node_id(), sorted(ray.get_gpu_ids())

    return Somewhere


@pytest.fixture(scope="module")
def address():
    """A head without GPUs and two nodes with four each."""
    four = {"num_cpus": 4, "num_gpus": 4}
    with ray_nodes({"num_cpus": 1, "num_gpus": 0}, four, four) as nodes:
        yield nodes.address


def placed(address, *, room_deadline=20.0, **settings):
    """Node and GPUs of every rank, then of every engine."""
    from prorl.cluster.cluster import Cluster

    told = cluster_recipe(address=address, device="cuda", room_deadline=room_deadline, **settings)
    places = Cluster(told)
    try:
        ranks = [places.start("rank", index, somewhere()) for index in range(told.cluster.learners)]
        engines = [places.start("engine", index, somewhere()) for index in range(told.cluster.engines)]
        found = ray.get([one.where.remote() for one in (*ranks, *engines)], timeout=120)
        return found[: len(ranks)], found[len(ranks) :]
    finally:
        places.close()


def test_apart_each_has_gpus_of_its_own_and_an_engine_all_in_one_node(address):
    ranks, engines = placed(address, learners=2, engines=3, tensor_parallel=2)
    assert [len(gpus) for _, gpus in (*ranks, *engines)] == [1, 1, 2, 2, 2]
    held = [(node, gpu) for node, gpus in (*ranks, *engines) for gpu in gpus]
    assert len(set(held)) == 8


def test_colocated_engine_and_rank_are_on_the_same_gpu(address):
    ranks, engines = placed(address, learners=5, engines=5, colocate=True)
    assert ranks == engines
    assert len({(node, *gpus) for node, gpus in ranks}) == 5


def test_no_room_is_said_with_what_was_asked_for(address):
    with pytest.raises(ClusterError, match=r"1 places of 1 CPU and 1 GPU and 2 places of 4 CPU and 4 GPU"):
        placed(address, learners=1, engines=2, tensor_parallel=4, room_deadline=2.0)


@pytest.mark.parametrize("package", ["ray", "python"])
def test_a_cluster_of_another_version_is_told_with_both_versions(address, package):
    """What the cluster says of itself in Ray's own store is changed."""
    from ray._raylet import GcsClient

    from prorl.cluster.cluster import join

    store, key, space = GcsClient(address=address), b"CLUSTER_METADATA", b"cluster"
    before = store.internal_kv_get(key, namespace=space)
    told = json.dumps(json.loads(before) | {f"{package}_version": "9.8.7"}).encode()
    store.internal_kv_put(key, told, overwrite=True, namespace=space)
    here = {"ray": ray.__version__, "python": platform.python_version()}
    sides = [f"Ray {each['ray']} and Python {each['python']}" for each in (here | {package: "9.8.7"}, here)]
    try:
        with pytest.raises(ClusterError) as caught:
            join(address)
    finally:
        store.internal_kv_put(key, before, overwrite=True, namespace=space)
    assert f"at {address} is of {sides[0]}, and here is {sides[1]}: " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not ray.is_initialized()


def test_the_device_of_a_run_is_what_the_cluster_has(address):
    asked = load_recipe("nano", ["backend=ray", f"cluster.address={address}"])
    told = settled(asked.model_copy(update={"threads": 0}))  # unsaid, as nodes have CPUs for each GPU
    assert (told.device, told.threads) == ("cuda", 1)
    assert not ray.is_initialized()
    assert settled(load_recipe("nano", ["backend=ray"])).device == "cpu"  # of this machine


@pytest.fixture(scope="module")
def judging():
    """A head without GPUs and two nodes that have CPUs left beside theirs."""
    two = {"num_cpus": 6, "num_gpus": 2}
    with ray_nodes({"num_cpus": 16, "num_gpus": 0}, two, two) as nodes:
        yield {"address": nodes.address, "engines": 3, "device": "cuda", "room_deadline": 5.0}


def test_judges_lie_beside_the_engines_and_leave_them_their_gpus(judging):
    from prorl.cluster.cluster import Cluster

    with closing(Cluster(cluster_recipe(**judging, judges=4, judge_workers=2))):
        (group,) = ray.util.placement_group_table().values()
        placed = [group["bundles_to_node_id"][place] for place in range(8)]
        gpus = {node["NodeID"]: node["Resources"].get("GPU", 0) for node in ray.nodes()}
        assert all(gpus[node] == 2 for node in placed)
        assert all(placed[4:].count(node) == 2 for node in set(placed))


def test_judges_without_room_are_named(judging):
    from prorl.cluster.cluster import Cluster

    with pytest.raises(ClusterError, match=r"and 2 places of 17 CPU for 5 s: .*cluster.judges"):
        Cluster(cluster_recipe(**judging, judges=2, judge_workers=17))


@pytest.mark.parametrize(
    ("nodes", "waves"),
    [("a", [[0]]), ("aaa", [[0], [1], [2]]), ("abc", [[0, 1, 2]]), ("aabba", [[0, 2], [1, 3], [4]])],
)
def test_ranks_of_a_node_come_one_after_the_other(nodes, waves):
    from prorl.cluster.learner import one_per_node

    assert one_per_node(list(nodes)) == waves
