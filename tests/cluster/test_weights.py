"""The learner's weights on their way: in host memory, and the sums that prove a transfer between GPUs."""

import dataclasses

import pytest
import torch

from prorl.cluster import weights
from prorl.cluster.weights import collect, differing, same_stream, unpack, word_sum
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
    arrays = collect(qwen2(tie_word_embeddings=tied), 0, torch.bfloat16).arrays
    assert (arrays[HEAD] is arrays[EMBEDDING]) == tied


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_single_bit_of_damage_is_seen(dtype):
    sent = collect(qwen2(), 0, dtype)
    arrays = {name: array.copy() for name, array in sent.arrays.items()}
    arrays["model.norm.weight"].view("uint8")[5] ^= 1
    with pytest.raises(SyncError, match="version 0 were damaged"):
        dict(unpack(dataclasses.replace(sent, arrays=arrays)))


def test_a_weight_that_lost_its_name_is_seen():
    sent = collect(qwen2(), 0, torch.float32)
    arrays = {name: array for name, array in sent.arrays.items() if name != HEAD}
    with pytest.raises(SyncError):
        dict(unpack(dataclasses.replace(sent, arrays=arrays)))


def test_shards_of_two_ranks_are_collected_as_the_whole(tmp_path):
    expected = collect(learner().policy, 0, torch.bfloat16)
    with ranks(2, tmp_path) as everywhere:
        assert everywhere(collected, torch.bfloat16) == [expected.checksum] * 2


def test_each_word_counts_as_often_as_its_place():
    words = torch.tensor([3, -1, 5], dtype=torch.int16)
    assert int(word_sum(words)) == 3 * 1 - 1 * 2 + 5 * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_flipped_bit_and_two_exchanged_rows_show(dtype):
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    flipped = weight.clone()
    flipped.view(torch.uint8)[5, 0] ^= 1
    assert len({int(word_sum(each)) for each in (weight, flipped, weight[[1, 0, 2, 3, 4, 5]])}) == 3


def test_memory_layout_and_pieces_make_no_difference(monkeypatch):
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    whole = int(word_sum(weight))
    assert int(word_sum(weight.t().contiguous().t())) == whole
    monkeypatch.setattr(weights, "PIECE", 7)
    assert int(word_sum(weight)) == whole


def test_every_gpu_of_an_engine_must_have_received_every_weight():
    sent = {"head": 3, "norm": 4}
    assert differing(sent, [sent, sent]) == []
    assert differing(sent, [sent, {"head": 3, "norm": 5}]) == ["norm"]
    assert differing(sent, [sent, {"norm": 4}]) == ["head"]
    assert differing(sent, [sent, {}]) == ["head", "norm"]


def test_a_thread_has_its_stream_again_whatever_a_transfer_did(monkeypatch):
    stream = ["mine"]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream[0])
    monkeypatch.setattr(torch.cuda, "set_stream", lambda given: stream.__setitem__(0, given))
    with same_stream("cuda"):
        torch.cuda.set_stream("another")
    assert stream == ["mine"]
