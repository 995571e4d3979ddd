"""The formulas of memory, against what torch really keeps."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from prorl.cluster.footprint import (
    Size,
    activations,
    cast_copy,
    checkpoint_copies,
    gathered,
    kv_cache,
    learner_state,
)
from prorl.learn.base_model import ModelShape, build_model, parameter_count
from prorl.learn.learner import TorchLearner
from prorl.learn.loss import Scoring, score
from prorl.learn.packing import Row, micro_batch
from support.learners import action_of, settings_of

TOKENS, VOCABULARY = 512, 300
QWEN_1_5B = Size(
    parameters=1.54e9,
    hidden_size=1536,
    intermediate_size=8960,
    layers=28,
    heads=12,
    kv_heads=2,
    head_width=128,
    context=131_072,
)


def size(model: torch.nn.Module, shape: ModelShape) -> Size:
    return Size(
        parameters=parameter_count(model),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_width=shape.hidden_size // shape.heads,
        context=shape.context,
    )


def kept(shape: ModelShape, dtype: str, *, checkpointed: bool) -> tuple[int, Size]:
    """Bytes of distinct storages that a forward pass over TOKENS positions saves, weights and their casts aside."""
    model = build_model(shape, VOCABULARY, seed=0)
    settings = settings_of(activation_checkpointing=checkpointed)
    TorchLearner(model, settings, with_reference=False, pad_id=0)
    weights = {weight.shape for weight in model.parameters()} | {
        weight.T.shape for weight in model.parameters() if weight.dim() == 2
    }
    storages: dict[int, torch.UntypedStorage] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape not in weights:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    batch = micro_batch(
        [Row(prompt=(1, 2), actions=(action_of([1] * (TOKENS - 1)),))], pad_id=0, device=torch.device("cpu")
    )
    few_logits = Scoring(temperature=1.0, logits_elements=VOCABULARY, dtype=getattr(torch, dtype))
    with saved_tensors_hooks(note, lambda tensor: tensor):
        score(model, batch, few_logits)
    return sum(storage.nbytes() for storage in storages.values()), size(model, shape)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide feed-forward"])
def test_activations_are_what_autograd_saves(dtype, wide):
    few, many = (
        kept(
            ModelShape(
                architecture="qwen2",
                hidden_size=96,
                layers=layers,
                heads=6,
                kv_heads=1 if wide else 3,
                intermediate_size=560 if wide else 256,  # the first is the ratio of the 1.5B model
                context=1024,
            ),
            dtype,
            checkpointed=False,
        )
        for layers in (2, 5)
    )
    measured = many[0] - few[0]  # what embeddings and head keep is the same
    said = [
        activations(shape, TOKENS, half=dtype == "bfloat16", checkpointed=False) for _, shape in (few, many)
    ]
    assert measured == pytest.approx(said[1] - said[0], rel=0.03)


@pytest.mark.filterwarnings("ignore")
def test_checkpointing_keeps_the_input_of_each_layer():
    shape = {"architecture": "qwen2", "hidden_size": 96, "heads": 6, "kv_heads": 3, "intermediate_size": 256}
    few, many = (
        kept(ModelShape(**shape, layers=layers, context=1024), "bfloat16", checkpointed=True)
        for layers in (2, 5)
    )
    assert many[0] - few[0] == pytest.approx(3 * TOKENS * 96 * 4, rel=0.01)


def test_worked_numbers_of_a_1_5b_model():
    state = learner_state(QWEN_1_5B, reference=True, shards=8)
    assert state.weights == state.gradients == state.reference == 0.77e9
    assert state.moments == 1.54e9
    assert state.resident == 3.08e9
    assert state.total == 3.85e9
    # 28 layers x keys and values x 2 heads of 128 x 2 bytes = 28 KiB a token, 448 MiB for 16k of them
    assert kv_cache(QWEN_1_5B, 1, half=True) == 28_672
    assert kv_cache(QWEN_1_5B, 16_384, half=True) == 448 * 2**20
    # a layer: 30 x 1,536 + 8 x 8,960 + 4 x 256 bytes a token
    layer = 16_384 * 118_784
    assert activations(QWEN_1_5B, 16_384, half=True, checkpointed=False) == 28 * layer
    assert activations(QWEN_1_5B, 16_384, half=True, checkpointed=True) == 16_384 * 28 * 4 * 1536 + layer


def test_the_weights_as_computed_with():
    assert cast_copy(QWEN_1_5B, half=True) == 3.08e9
    assert cast_copy(QWEN_1_5B, half=False) == 0
    # 1,536 x (2 x 14 heads x 128 + 3 x 8,960); what is left is 151,936 tokens of 1,536, norms and biases
    assert QWEN_1_5B.layer_parameters == 46_792_704
    assert QWEN_1_5B.end_parameters == pytest.approx(151_936 * 1536, rel=0.02)
    assert gathered(QWEN_1_5B, half=True) == 2 * 2 * (1.54e9 - 26 * 46_792_704)
    assert gathered(QWEN_1_5B, half=False) == 2 * gathered(QWEN_1_5B, half=True)


def test_a_checkpoint_is_copied_whole_on_the_first_rank_and_in_shares_by_the_others():
    assert checkpoint_copies(QWEN_1_5B, share=1) == 12 * 1.54e9
    assert checkpoint_copies(QWEN_1_5B, share=0.25) == (4 + 2) * 1.54e9


def test_without_a_reference_nothing_is_held_for_it():
    assert learner_state(QWEN_1_5B, reference=False).reference == 0
