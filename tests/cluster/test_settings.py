"""Settings of a cluster's processes, and how they share GPUs."""

import os
from contextlib import nullcontext

import pytest

from prorl.cluster.settings import ClusterError, GpuSharing, chosen_transfer, use_interface_of

NO_SHARE, SHARE = (f"needs GPUs that engines and learners {how}: .*auto" for how in ("do not share", "share"))
OLDER = r"needs vLLM 0\.32 or newer, and this is 0\.25\.1: set"


@pytest.mark.parametrize(
    ("asked", "device", "colocate", "vllm", "chosen", "refused"),
    [
        ("auto", "cpu", False, "0.32.0", "host", ""),
        ("auto", "cpu", True, "0.32.0", "host", ""),
        ("auto", "cuda", False, "0.32.0", "nccl", ""),
        ("auto", "cuda", True, "0.32.0", "host", ""),
        ("auto", "cuda", False, "0.25.1", "host", ""),
        ("host", "cuda", False, "0.32.0", "host", ""),
        ("host", "cpu", True, "0.32.0", "host", ""),
        ("nccl", "cuda", False, "0.32.0", "nccl", ""),
        ("nccl", "cpu", False, "0.32.0", "", NO_SHARE),
        ("nccl", "cuda", True, "0.32.0", "", NO_SHARE),
        ("nccl", "cuda", False, "0.25.1", "", OLDER),
        ("ipc", "cuda", True, "0.32.0", "ipc", ""),
        ("ipc", "cpu", True, "0.32.0", "", SHARE),
        ("ipc", "cuda", False, "0.32.0", "", SHARE),
        ("ipc", "cuda", True, "0.25.1", "", OLDER),
    ],
)
def test_weights_go_the_way_that_there_is(asked, device, colocate, vllm, chosen, refused):
    told = pytest.raises(ClusterError, match=f"transfer={asked} {refused}") if refused else nullcontext()
    with told:
        assert chosen_transfer(asked, device, colocate=colocate, vllm=vllm) == chosen


class Named:
    """Writes down when it leaves, or refuses to."""

    def __init__(self, name, left):
        self.name, self.left, self.busy = name, left, False

    def leave(self):
        if self.busy:
            raise RuntimeError(f"{self.name} is at work")
        self.left.append(self.name)


@pytest.fixture
def users():
    left = []
    return GpuSharing(), Named("learner", left), Named("engines", left), left


def test_one_leaves_before_the_other_computes_and_none_leaves_for_itself(users):
    sharing, learner, engines, left = users
    for party in (learner, learner, engines, engines, engines, learner):
        sharing.acquire(party)
    assert left == ["learner", "engines"]


def test_a_user_at_work_keeps_the_gpus(users):
    sharing, learner, engines, left = users
    sharing.acquire(engines)
    engines.busy = True
    with pytest.raises(RuntimeError, match="at work"):
        sharing.acquire(learner)
    sharing.acquire(engines)
    assert left == []
    engines.busy = False
    sharing.acquire(learner)
    assert left == ["engines"]


def test_processes_talk_over_the_interface_of_the_node_s_address(monkeypatch):
    psutil = pytest.importorskip("psutil")
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    with monkeypatch.context() as patch:
        for name in names:
            patch.delenv(name, raising=False)
        use_interface_of("203.0.113.1")  # of nobody
        assert not any(name in os.environ for name in names)
    for interface, addresses in psutil.net_if_addrs().items():
        with monkeypatch.context() as patch:
            patch.setenv(names[0], "chosen")
            patch.delenv(names[1], raising=False)
            use_interface_of(addresses[0].address)
            assert [os.environ[name] for name in names] == ["chosen", f"={interface}"]
