"""The learner's weights in host memory."""

import dataclasses

import pytest
import torch

from prorl.cluster.weights import collect, unpack
from prorl.local.backend import SyncError
from support.learners import learner, qwen2
from support.ranks import ranks
from support.sharded import collected

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_arrive_under_every_name_in_the_dtype_of_the_engines(dtype):
    model = qwen2()
    arrived = dict(unpack(collect(model, 3, dtype)))
    assert arrived.keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert arrived[name].dtype == dtype
        assert torch.equal(arrived[name], weight.to(dtype))


@pytest.mark.parametrize("tied", [True, False])
def test_tied_weights_travel_once_under_both_names(tied):
    weights = collect(qwen2(tie_word_embeddings=tied), 0, torch.bfloat16)
    assert (weights.arrays[HEAD] is weights.arrays[EMBEDDING]) == tied


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_single_bit_of_damage_is_seen(dtype):
    weights = collect(qwen2(), 0, dtype)
    arrays = {name: array.copy() for name, array in weights.arrays.items()}
    arrays["model.norm.weight"].view("uint8")[5] ^= 1
    with pytest.raises(SyncError, match="version 0 were damaged"):
        dict(unpack(dataclasses.replace(weights, arrays=arrays)))


def test_a_weight_that_lost_its_name_is_seen():
    weights = collect(qwen2(), 0, torch.float32)
    arrays = {name: array for name, array in weights.arrays.items() if name != HEAD}
    with pytest.raises(SyncError):
        dict(unpack(dataclasses.replace(weights, arrays=arrays)))


def test_shards_of_two_ranks_are_collected_as_the_whole(tmp_path):
    expected = collect(learner().policy, 0, torch.bfloat16)
    with ranks(2, tmp_path) as everywhere:
        assert everywhere(collected, torch.bfloat16) == [expected.checksum] * 2
