"""What the processes of a cluster are told."""

import pytest

from prorl.backends.ray.settings import TransferError, chosen_transfer


@pytest.mark.parametrize(
    ("asked", "device", "colocate", "chosen"),
    [
        ("auto", "cpu", False, "host"),
        ("auto", "cpu", True, "host"),
        ("auto", "cuda", False, "nccl"),
        ("auto", "cuda", True, "host"),
        ("host", "cuda", False, "host"),
        ("host", "cpu", True, "host"),
        ("nccl", "cuda", False, "nccl"),
        ("ipc", "cuda", True, "ipc"),
    ],
)
def test_weights_go_the_way_that_there_is(asked, device, colocate, chosen):
    assert chosen_transfer(asked, device, colocate=colocate) == chosen


@pytest.mark.parametrize(
    ("asked", "device", "colocate", "lacks"),
    [
        ("nccl", "cpu", False, "do not share"),
        ("nccl", "cuda", True, "do not share"),
        ("ipc", "cpu", True, "GPUs that engines and learners share"),
        ("ipc", "cuda", False, "GPUs that engines and learners share"),
    ],
)
def test_a_way_that_is_not_there_is_refused(asked, device, colocate, lacks):
    with pytest.raises(TransferError, match=f"cluster.transfer={asked} needs .*{lacks}.*auto"):
        chosen_transfer(asked, device, colocate=colocate)
