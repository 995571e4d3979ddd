"""Where Ray puts the processes of a run: two nodes that say they have GPUs, and a head without."""

import pytest

from prorl.cluster.settings import ClusterSettings

pytest.importorskip("vllm")
ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def nodes():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 16, "num_gpus": 0})
    for _ in range(2):
        cluster.add_node(num_cpus=6, num_gpus=2)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


def settings(nodes, **changes):
    wanted = {"learners": 1, "engines": 3, "threads": 1, "judges": 4, "judge_workers": 2} | changes
    return ClusterSettings(address=nodes.address, device="cuda", room_deadline=5.0, **wanted)


def test_judges_lie_beside_the_engines_and_leave_them_their_gpus(nodes):
    from prorl.cluster.cluster import Cluster

    cluster = Cluster(settings(nodes))
    try:
        (group,) = ray.util.placement_group_table().values()
        placed = [group["bundles_to_node_id"][place] for place in range(8)]
        gpus = {node["NodeID"]: node["Resources"].get("GPU", 0) for node in ray.nodes()}
        assert all(gpus[node] == 2 for node in placed)
        assert all(placed[4:].count(node) == 2 for node in set(placed))
    finally:
        cluster.close()


def test_judges_without_room_are_named(nodes):
    from prorl.cluster.cluster import Cluster, ClusterError

    with pytest.raises(ClusterError, match=r"and 2 places of 17 CPU for 5 s: .*cluster.judges"):
        Cluster(settings(nodes, judges=2, judge_workers=17))
