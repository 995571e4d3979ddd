"""What the processes of a cluster are told."""

import pytest

from prorl.cluster.settings import TransferError, chosen_transfer


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
    ],
)
def test_weights_go_the_way_that_there_is(asked, device, colocate, chosen):
    assert chosen_transfer(asked, device, colocate=colocate) == chosen


@pytest.mark.parametrize(("device", "colocate"), [("cpu", False), ("cpu", True), ("cuda", True)])
def test_a_way_that_is_not_there_is_refused(device, colocate):
    with pytest.raises(TransferError, match=r"transfer=nccl needs GPUs .* do not share.*auto"):
        chosen_transfer("nccl", device, colocate=colocate)
