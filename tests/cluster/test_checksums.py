import pytest
import torch

from prorl.cluster import checksums
from prorl.cluster.checksums import differing, word_sum


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
    monkeypatch.setattr(checksums, "PIECE", 7)
    assert int(word_sum(weight)) == whole


def test_every_gpu_of_an_engine_must_have_received_every_weight():
    sent = {"head": 3, "norm": 4}
    assert differing(sent, [sent, sent], 2) == []
    assert differing(sent, [sent, {"head": 3, "norm": 5}], 2) == ["norm"]
    assert differing(sent, [sent, {"norm": 4}], 2) == ["head"]
    assert differing(sent, [sent], 2) == ["head", "norm"]
