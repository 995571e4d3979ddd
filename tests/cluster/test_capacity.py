"""The formulas of memory against what torch keeps; where engines and ranks go, and what does not fit."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks

from prorl.cluster.capacity import (
    GIB,
    LOGITS,
    PLANNED,
    Demand,
    Hardware,
    Size,
    activations,
    arrange,
    checkpoint_copies,
    computed_weights,
    kv_cache,
    learner_state,
    pinned,
    place,
)
from prorl.cluster.estimate import model_size, plan_gpus
from prorl.config.recipe import load_recipe
from prorl.config.schema import ShapeConfig
from prorl.envs.errors import ProrlError
from prorl.learn.base_model import build_model
from prorl.learn.learner import TorchLearner
from prorl.learn.loss import Scoring, score
from prorl.learn.packing import Row, micro_batch
from support.learners import action_of, settings_of
from support.recipes import recipe
from support.sizes import LLAMA_8B, QWEN_1_5B, QWEN_32B

TOKENS, VOCABULARY = 512, 300
LONG = Demand(
    response_limit=16_384,
    micro_batch_tokens=16_384,
    activation_checkpointing=True,
    half=True,
    reference=True,
    offload=False,
    cache_gib=None,
    sampled_tokens=0,
    trained_tokens=0,
)
SHORT = replace(LONG, response_limit=512, micro_batch_tokens=1536)
EIGHT, FOUR_NODES = Hardware(), Hardware(gpus=32)


def total(held) -> float:
    return sum(held.values())


# -- formulas


def kept(shape: ShapeConfig, dtype: str, *, checkpointed: bool) -> tuple[int, Size | None]:
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
    known = {"path": "m", "shape": shape.model_dump(), "parameters": model.num_parameters()}
    size = model_size(recipe(model=known, sampling={"response_limit": 64}))
    return sum(storage.nbytes() for storage in storages.values()), size


def of_layers(**shape) -> list[ShapeConfig]:
    """Two depths, of whose difference embeddings and head are no part."""
    usual = {"architecture": "qwen2", "hidden_size": 96, "heads": 6, "kv_heads": 3, "intermediate_size": 256}
    return [ShapeConfig(**usual | shape, layers=layers, context=1024) for layers in (2, 5)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("wide", [{}, {"kv_heads": 1, "intermediate_size": 560}], ids=["narrow", "as 1.5B"])
def test_activations_are_what_autograd_saves(dtype, wide):
    few, many = (kept(shape, dtype, checkpointed=False) for shape in of_layers(**wide))
    said = [
        activations(shape, TOKENS, half=dtype == "bfloat16", checkpointed=False) for _, shape in (few, many)
    ]
    assert many[0] - few[0] == pytest.approx(said[1] - said[0], rel=0.03)


@pytest.mark.filterwarnings("ignore")
def test_checkpointing_keeps_the_input_of_each_layer():
    few, many = (kept(shape, "bfloat16", checkpointed=True) for shape in of_layers())
    assert many[0] - few[0] == pytest.approx(3 * TOKENS * 96 * 4, rel=0.01)


def test_worked_numbers_of_a_1_5b_model():
    state = learner_state(QWEN_1_5B, reference=True, shards=8)
    assert state == {"weights": 0.77e9, "gradients": 0.77e9, "moments": 1.54e9, "reference": 0.77e9}
    assert learner_state(QWEN_1_5B, reference=False)["reference"] == 0
    # 28 layers x keys and values x 2 heads of 128 x 2 bytes = 28 KiB a token, 448 MiB for 16k of them
    assert kv_cache(QWEN_1_5B, 1, half=True) == 28_672
    assert kv_cache(QWEN_1_5B, 16_384, half=True) == 448 * 2**20
    # a layer: 30 x 1,536 + 8 x 8,960 + 4 x 256 bytes a token
    layer = 16_384 * 118_784
    assert activations(QWEN_1_5B, 16_384, half=True, checkpointed=False) == 28 * layer
    assert activations(QWEN_1_5B, 16_384, half=True, checkpointed=True) == 16_384 * 28 * 4 * 1536 + layer
    # a checkpoint is copied whole on the first rank and in shares by the others
    assert checkpoint_copies(QWEN_1_5B, share=1) == 12 * 1.54e9
    assert checkpoint_copies(QWEN_1_5B, share=0.25) == (4 + 2) * 1.54e9


def test_the_weights_as_computed_with():
    assert computed_weights(QWEN_1_5B, half=True, sharded=False) == 3.08e9
    assert computed_weights(QWEN_1_5B, half=False, sharded=False) == 0
    # 1,536 x (2 x 14 heads x 128 + 3 x 8,960); what is left is 151,936 tokens of 1,536, norms and biases
    assert QWEN_1_5B.layer_parameters == 46_792_704
    assert QWEN_1_5B.end_parameters == pytest.approx(151_936 * 1536, rel=0.02)
    half, whole = (computed_weights(QWEN_1_5B, half=half, sharded=True) for half in (True, False))
    assert whole == 2 * half == 2 * 2 * 2 * (1.54e9 - 26 * 46_792_704)


# -- placement


def test_worked_numbers_of_8_gpus():
    placed = place(QWEN_1_5B, LONG, EIGHT)
    assert (placed.engines, placed.tensor_parallel, placed.learner_ranks) == (8, 1, 8)
    # 85 % of 80 GiB, beside the rank's process - 3.08e9 of engine weights - the engine's process of 2 GiB
    cache = 68 * GIB - 3.08e9 - 2 * GIB
    assert placed.cache == pytest.approx(cache)
    assert placed.rows == 135  # of 17,408 tokens
    # 20 bytes a parameter over 8, embedding and two layers with gradients, 17,408 tokens of 28 layer inputs and one
    # whole layer, two processes
    whole = 2 * 2 * (1.54e9 - 26 * 46_792_704)
    tokens = 17_408 * (28 * 4 * 1536 + 118_784)
    assert total(placed.learning) == pytest.approx(1.54e9 * 20 / 8 + whole + tokens + 4 * GIB + LOGITS)


def test_worked_numbers_of_host_memory():
    """Bytes per parameter: weights, reference and gradients 4 each, moments 8, an engine's weights 2, twice."""

    def node(demand=LONG, hardware=EIGHT, **how):
        return total(place(QWEN_1_5B, demand, hardware, **how).node) / 1.54e9

    # all ranks' weights, moments and reference; of a checkpoint the weights and moments; engines' weights
    grown = pinned(QWEN_1_5B, shards=8)
    assert node() == pytest.approx((16 + 12) * grown + 4)
    # a quarter of all but what is whole
    assert node(hardware=FOUR_NODES) == pytest.approx((16 / 4 + 4 + 8 / 4) * pinned(QWEN_1_5B, shards=32) + 4)
    # Its 8 ranks fit into one node.
    assert node(hardware=FOUR_NODES, separate=True) == pytest.approx(12 * grown + 4)
    assert node(replace(LONG, half=False, reference=False)) == pytest.approx((12 + 12) * grown + 8)
    assert node(replace(LONG, offload=True)) == pytest.approx((20 + 12) * grown + 4)


def test_worked_numbers_of_pinned_memory():
    """MiB of a layer: 9 -> 16 twice, 1.5 -> 2 twice, 52.5 -> 64 three times; of the embedding 877 -> 1,024."""
    assert pinned(QWEN_1_5B, shards=1) == pytest.approx((28 * 228 + 1024) * 2**20 / (4 * 1.54e9))
    assert all(1 <= pinned(each, shards=8) < 2 for each in (QWEN_1_5B, LLAMA_8B, QWEN_32B))


def test_what_is_offloaded_is_not_on_the_gpus():
    offloading = replace(LONG, offload=True)
    kept, moved = (total(place(QWEN_1_5B, demand, EIGHT).learning) for demand in (LONG, offloading))
    assert kept - moved == pytest.approx(20 / 8 * 1.54e9)
    alone = arrange(QWEN_1_5B, offloading, Hardware(gpus=2), learners=1)
    assert alone.learning["moments"] == 8 * 1.54e9


def test_processes_fill_a_node_before_the_next():
    """12 ranks on two boxes of 8 GPUs: 8 beside each other, and not 6."""
    even = arrange(QWEN_1_5B, LONG, Hardware(gpus=12, nodes=2))
    packed = arrange(QWEN_1_5B, LONG, Hardware(gpus=12, nodes=2, node_gpus=8))
    state = "learner's state"
    assert packed.node[state] == pytest.approx(even.node[state] * 8 / 6)


def test_an_engine_needs_a_cache_for_one_sequence_of_the_models_context():
    placed = place(QWEN_1_5B, LONG, EIGHT)
    # 28 layers x keys and values x 2 heads of 128 x 2 bytes, for 8,192 blocks of 16 tokens and the one kept back
    assert placed.cache_needed == 28_672 * (131_072 + 16) == 3.5 * GIB + 458_752
    assert place(LLAMA_8B, LONG, EIGHT).cache_needed == 16 * GIB + 2 * 2**20
    over_four = arrange(LLAMA_8B, LONG, EIGHT, learners=4, tensor_parallel=4)
    assert over_four.cache_needed == 4 * GIB + 2**19  # 2 of 8 key heads on each
    odd = place(replace(QWEN_1_5B, context=100), LONG, EIGHT)
    assert odd.cache_needed == 28_672 * (112 + 16)


def test_a_recipe_may_give_its_engines_less_context():
    said = [f"cluster.context={tokens}" for tokens in (12_288, 2**20)]
    short, whole = (plan_gpus(load_recipe("prorl_v2", ["backend=ray", one])) for one in said)
    assert short.cache_needed == 28_672 * (12_288 + 16)
    assert whole.cache_needed == 28_672 * (131_072 + 16)


def test_engines_in_float32_need_twice_as_much():
    half, whole = (place(QWEN_1_5B, replace(LONG, half=half), EIGHT) for half in (True, False))
    assert whole.sampling["engine weights"] == 2 * half.sampling["engine weights"] == 4 * 1.54e9
    assert whole.cached_token == 2 * half.cached_token == 2 * 28_672
    assert whole.cache_needed == 2 * half.cache_needed


def test_a_cache_of_a_given_size_is_planned_with_and_must_fit():
    told = place(QWEN_1_5B, replace(LONG, cache_gib=20.0), EIGHT)
    assert (told.cache, told.rows, told.problems) == (20 * GIB, 43, ())
    (large,) = place(QWEN_1_5B, replace(LONG, cache_gib=64.0), EIGHT).problems
    assert "cluster.cache_gib needs 64.00 GiB on each GPU and has 63.13, 0.87 too few: lower it" in large
    (few,) = place(QWEN_1_5B, replace(LONG, cache_gib=4.0), EIGHT).problems
    assert "a cache for 16 responses at full length needs 7.44 GiB on each GPU and has 4.00" in few
    assert "lower sampling.response_limit (16,384), or set cluster.cache_gib higher" in few
    assert place(QWEN_1_5B, replace(LONG, cache_gib=7.5), EIGHT).problems == ()
    (short,) = place(QWEN_1_5B, replace(LONG, response_limit=1024, cache_gib=1.0), EIGHT).problems
    assert "context, 131,072 tokens, needs 3.50 GiB on each GPU and has 1.00" in short
    assert place(QWEN_1_5B, replace(SHORT, cache_gib=3.5), EIGHT).problems  # one block short
    assert place(QWEN_1_5B, replace(SHORT, cache_gib=3.6), EIGHT).problems == ()


def test_a_cache_that_is_left_too_small_for_the_context():
    """24 GiB: 0.9 of them less 14.96 of weights and 2 of the process leave 4.64; with two GPUs 12.1 of 8 needed."""
    small = Hardware(gpus=64, gpu_memory=24)
    narrow = arrange(LLAMA_8B, SHORT, small, learners=32)
    assert narrow.rows > 16
    assert "needs 16.00 GiB on each GPU and has 4.64, 11.36 too few" in narrow.problems[0]
    assert narrow.problems[0].endswith("or set cluster.tensor_parallel higher")
    assert arrange(LLAMA_8B, SHORT, small, learners=32, tensor_parallel=2).problems == ()
    assert "cluster.colocate=false (--separate)" in arrange(LLAMA_8B, SHORT, small).problems[0]
    assert place(LLAMA_8B, SHORT, small, separate=True).tensor_parallel == 2


@given(st.sampled_from([1, 2, 4, 8, 16, 64]), st.sampled_from([24.0, 40.0, 80.0, 141.0]), st.booleans())
def test_a_placement_without_problems_stays_below_what_is_planned(gpus, memory, checkpointing):
    demand = replace(LONG, activation_checkpointing=checkpointing)
    placed = place(QWEN_1_5B, demand, Hardware(gpus=gpus, gpu_memory=memory))
    fits = total(placed.learning) <= PLANNED * memory * GIB and placed.rows >= 16
    assert fits == (placed.problems == ())
    assert placed.engines * placed.tensor_parallel == gpus


def test_more_gpus_never_need_more_memory_each():
    needs = [total(place(QWEN_1_5B, LONG, Hardware(gpus=gpus)).learning) for gpus in (2, 4, 8, 16)]
    assert needs == sorted(needs, reverse=True)


def test_an_engine_takes_as_many_gpus_as_its_weights_and_a_group_of_responses_need():
    placed = place(QWEN_32B, LONG, Hardware(gpus=128), separate=True)
    assert placed.tensor_parallel == 2  # on 1 only 2 responses would find room
    assert (placed.engines, placed.learner_ranks) == (48, 32)
    assert placed.problems == ()
    assert placed.settings.split() == [
        "cluster.learners=32",
        "cluster.engines=48",
        "cluster.colocate=false",
        "cluster.tensor_parallel=2",
    ]


def test_a_shared_gpu_is_an_engine_of_its_own():
    placed = place(QWEN_32B, LONG, Hardware(gpus=128))
    assert placed.tensor_parallel == 1
    start, few = placed.problems
    assert "40,960 tokens, needs 10.00 GiB on each GPU and has 4.9" in start
    assert "16 responses at full length" in few


ODD, TWICE = replace(QWEN_32B, heads=39, kv_heads=13), replace(QWEN_32B, heads=42, kv_heads=6)
SMALL = Hardware(gpus=128, gpu_memory=40)


@pytest.mark.parametrize(
    ("size", "hardware", "wide"),
    [
        (QWEN_32B, SMALL, 4),
        # no more than can share the model
        (ODD, SMALL, 1),
        (TWICE, SMALL, 2),
        # those of one node: of 48 on 8, 6 on each, 4 GPUs an engine would leave 2 over on every node
        (QWEN_32B, Hardware(gpus=48, nodes=8, gpu_memory=40), 2),
        (QWEN_32B, Hardware(gpus=64, nodes=64), 1),
        (QWEN_32B, Hardware(gpus=8, gpu_memory=40), 2),  # of six that sample, none is left over
    ],
)
def test_an_engine_divides_the_gpus_of_one_node_that_can_share_the_model(size, hardware, wide):
    assert place(size, LONG, hardware, separate=True).tensor_parallel == wide


def test_apart_a_quarter_learns_and_engines_have_their_gpus_alone():
    placed = place(QWEN_1_5B, LONG, FOUR_NODES, separate=True)
    assert (placed.engines, placed.learner_ranks) == (24, 8)
    assert placed.cache == pytest.approx(72 * GIB - 3.08e9 - 2 * GIB)
    assert place(QWEN_1_5B, LONG, Hardware(gpus=2), separate=True).learner_ranks == 1


def test_learning_that_does_not_fit_says_by_how_much_and_which_fields_to_change():
    greedy = replace(LONG, activation_checkpointing=False, micro_batch_tokens=65_536)
    (problem,) = place(QWEN_1_5B, greedy, EIGHT).problems
    assert "learning needs " in problem
    assert " and has 72.00, " in problem
    assert (
        "set learner.activation_checkpointing=true, or a lower learner.micro_batch_tokens (65,536)" in problem
    )
    assert "dtype" not in problem  # it is bfloat16 already
    saved = replace(greedy, activation_checkpointing=True)
    assert place(QWEN_1_5B, saved, EIGHT).problems == ()
    (more,) = place(QWEN_1_5B, LONG, Hardware(gpus=1, gpu_memory=40)).problems
    assert more.endswith("or more cluster.learners (1) on more GPUs")
    nothing, *_ = place(QWEN_32B, LONG, Hardware(gpus=1, gpu_memory=24)).problems
    assert "weights and process needs" in nothing


@pytest.mark.parametrize(
    ("hardware", "separate"),
    [(Hardware(gpus=7, nodes=2), False), (Hardware(gpus=0), False), (Hardware(gpus=1), True)],
)
def test_gpus_that_cannot_be_divided(hardware, separate):
    with pytest.raises(ProrlError):
        place(QWEN_1_5B, LONG, hardware, separate=separate)


def test_the_description_says_all_of_it():
    text = "\n".join(place(QWEN_1_5B, LONG, EIGHT).describe())
    assert "8 engines of 1 GPU, 8 learner ranks, on the same GPUs in turn" in text
    assert "135 responses of 16,384 tokens at full length" in text
    assert (
        "host memory beside the processes' own, GiB per node: at most 56.4 = learner's state 28.9, a" in text
    )
    assert "as settings: cluster.learners=8 cluster.engines=8 cluster.colocate=true" in text
    assert "everything fits" in text
    few = place(QWEN_1_5B, replace(LONG, activation_checkpointing=False), Hardware(gpu_memory=40))
    assert "does not fit: learning" in "\n".join(few.describe())


def test_with_a_number_of_learners_all_other_gpus_sample():
    told = arrange(QWEN_1_5B, LONG, EIGHT, learners=2)
    assert (told.engines, told.tensor_parallel, told.learner_ranks, told.colocated) == (6, 1, 2, False)
    assert told == place(QWEN_1_5B, LONG, EIGHT, separate=True)  # a quarter of them
    wide = arrange(QWEN_1_5B, LONG, EIGHT, learners=4, tensor_parallel=2)
    assert (wide.engines, wide.tensor_parallel) == (2, 2)
    assert wide.sampling["engine weights"] == pytest.approx(1.54e9)
    assert arrange(QWEN_1_5B, LONG, EIGHT) == place(QWEN_1_5B, LONG, EIGHT)
    crowded, roomy = (arrange(QWEN_1_5B, LONG, Hardware(gpu_memory=24), learners=ranks) for ranks in (1, 7))
    assert "learning needs" in " ".join(crowded.problems)
    assert total(roomy.learning) < total(crowded.learning)
