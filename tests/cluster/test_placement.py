"""Where engines and ranks go, and what is said when they do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.cluster.footprint import Demand, Size
from prorl.cluster.placement import (
    ALONE,
    GIB,
    SHARED,
    Cluster,
    PlacementError,
    describe,
    place,
    place_as_told,
)

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
QWEN_32B = Size(
    parameters=32.8e9,
    hidden_size=5120,
    intermediate_size=27_648,
    layers=64,
    heads=40,
    kv_heads=8,
    head_width=128,
    context=40_960,
)
LLAMA_8B = Size(
    parameters=8.03e9,
    hidden_size=4096,
    intermediate_size=14_336,
    layers=32,
    heads=32,
    kv_heads=8,
    head_width=128,
    context=131_072,
)
LONG = Demand(
    response_limit=16_384, micro_batch_tokens=16_384, activation_checkpointing=True, half=True, reference=True
)


def test_16k_of_a_1_5b_model_fit_on_80_gb_gpus():
    for gpus in (1, 2, 8, 32):
        assert place(QWEN_1_5B, LONG, Cluster(gpus=gpus)).problems == ()


def test_worked_numbers_of_8_gpus():
    placed = place(QWEN_1_5B, LONG, Cluster(gpus=8))
    assert (placed.engines, placed.tensor_parallel, placed.learner_ranks) == (8, 1, 8)
    # 85 % of 80 GiB, beside the rank's process - 3.08e9 of engine weights - the engine's process of 2 GiB
    cache = 68 * GIB - 3.08e9 - 2 * GIB
    assert placed.cache == pytest.approx(cache)
    assert placed.cache_tokens == int(cache / 28_672)
    assert placed.rows == 135  # of 17,408 tokens
    # 20 bytes a parameter over 8, embedding and two layers with gradients, 17,408 tokens of 28 layer inputs and one
    # whole layer, two processes
    whole = 2 * 2 * (1.54e9 - 26 * 46_792_704)
    tokens = 17_408 * (28 * 4 * 1536 + 118_784)
    assert sum(placed.learning.values()) == pytest.approx(1.54e9 * 20 / 8 + whole + tokens + 4 * GIB)


def test_worked_numbers_of_host_memory():
    """Bytes per parameter: weights, reference and gradients 4 each, moments 8, an engine's weights 2."""
    parameters = 1.54e9
    one_node = place(QWEN_1_5B, LONG, Cluster(gpus=8))
    assert sum(one_node.starting.values()) == pytest.approx(4 * parameters)  # whatever the number of ranks
    # all ranks' weights, moments and reference; of a checkpoint the weights and moments; engines' weights
    assert sum(one_node.training.values()) == pytest.approx((16 + 12 + 2) * parameters)
    assert one_node.host == pytest.approx(30 * parameters)
    four = place(QWEN_1_5B, LONG, Cluster(gpus=32, nodes=4))  # a quarter of all but what is whole
    assert four.host == pytest.approx((16 / 4 + 4 + 8 / 4 + 2) * parameters)
    apart = place(QWEN_1_5B, LONG, Cluster(gpus=32, nodes=4), separate=True)  # its 8 ranks fit into one node
    assert apart.host == pytest.approx((12 + 2) * parameters)
    precise = place(QWEN_1_5B, replace(LONG, half=False, reference=False), Cluster(gpus=8))
    assert precise.host == pytest.approx((12 + 12 + 4) * parameters)


def test_host_memory_of_a_start_counts_where_it_is_the_most():
    """Ranks that keep their state in host memory have their shards there while the last model is loaded."""
    offloading = replace(LONG, offload=True)
    placed = place(QWEN_1_5B, offloading, Cluster(gpus=8))
    assert sum(placed.starting.values()) == pytest.approx((4 + 8) * 1.54e9)
    assert sum(placed.training.values()) == pytest.approx((20 + 12 + 2) * 1.54e9)
    assert placed.host == max(sum(placed.starting.values()), sum(placed.training.values()))
    gpu = sum(place(QWEN_1_5B, LONG, Cluster(gpus=8)).learning.values()) - sum(placed.learning.values())
    assert gpu == pytest.approx(20 / 8 * 1.54e9)  # which is not on the GPUs
    alone = place_as_told(QWEN_1_5B, offloading, Cluster(gpus=2), learners=1)
    assert alone.learning["moments"] == 8 * 1.54e9


def test_an_engine_needs_a_cache_for_one_sequence_of_the_models_context():
    placed = place(QWEN_1_5B, LONG, Cluster(gpus=8))
    # 28 layers x keys and values x 2 heads of 128 x 2 bytes, for 8,192 blocks of 16 tokens and the one kept back
    assert placed.cache_needed == 28_672 * (131_072 + 16) == 3.5 * GIB + 458_752
    assert place(LLAMA_8B, LONG, Cluster(gpus=8)).cache_needed == 16 * GIB + 2 * 2**20
    over_four = place_as_told(LLAMA_8B, LONG, Cluster(gpus=8), learners=4, tensor_parallel=4)
    assert over_four.cache_needed == 4 * GIB + 2**19  # 2 of 8 key heads on each
    odd = place(replace(QWEN_1_5B, context=100), LONG, Cluster(gpus=8))
    assert odd.cache_needed == 28_672 * (112 + 16)


def test_engines_in_float32_need_twice_as_much():
    half, whole = (place(QWEN_1_5B, replace(LONG, half=half), Cluster(gpus=8)) for half in (True, False))
    assert whole.sampling["engine weights"] == 2 * half.sampling["engine weights"] == 4 * 1.54e9
    assert whole.cached_token == 2 * half.cached_token == 2 * 28_672
    assert whole.cache_needed == 2 * half.cache_needed


def test_processes_fill_a_node_before_the_next():
    """12 ranks on two boxes of 8 GPUs: 8 beside each other, and not 6."""
    asked = {"learners": None, "tensor_parallel": 1}
    even = place_as_told(QWEN_1_5B, LONG, Cluster(gpus=12, nodes=2), **asked)
    packed = place_as_told(QWEN_1_5B, LONG, Cluster(gpus=12, nodes=2, node_gpus=8), **asked)
    state = "learner's state"
    assert packed.training[state] == pytest.approx(even.training[state] * 8 / 6)


def test_a_cache_that_is_told_too_small_for_the_context():
    told = replace(LONG, response_limit=1024, cache_gib=1.0)
    (problem,) = place(QWEN_1_5B, told, Cluster(gpus=8)).problems
    assert (
        "one sequence of the model's context, 131,072 tokens: 3.50 GiB on each GPU, and it has 1.00"
        in problem
    )
    assert problem.endswith("set cluster.cache_gib=3.6 or more")
    assert place(QWEN_1_5B, replace(told, cache_gib=3.5), Cluster(gpus=8)).problems  # one block short
    assert place(QWEN_1_5B, replace(told, cache_gib=3.6), Cluster(gpus=8)).problems == ()


def test_a_cache_that_is_left_too_small_for_the_context():
    """24 GiB: 0.9 of them less 14.96 of weights and 2 of the process leave 4.64; with two GPUs 12.1 of 8 needed."""
    short = replace(LONG, response_limit=512, micro_batch_tokens=1536)
    narrow = place_as_told(LLAMA_8B, short, Cluster(gpus=64, gpu_memory=24), learners=32)
    assert narrow.rows > 16
    assert "16.00 GiB on each GPU, and it has 4.64: take" in narrow.problems[0]
    assert "set cluster.tensor_parallel=2" in narrow.problems[0]
    wide = place_as_told(LLAMA_8B, short, Cluster(gpus=64, gpu_memory=24), learners=32, tensor_parallel=2)
    assert wide.problems == ()
    (shared, *_) = place_as_told(LLAMA_8B, short, Cluster(gpus=64, gpu_memory=24), learners=None).problems
    assert "--separate" in shared


def test_engines_are_made_wide_enough_for_the_context():
    short = replace(LONG, response_limit=512, micro_batch_tokens=1536)
    assert place(LLAMA_8B, short, Cluster(gpus=64, gpu_memory=24), separate=True).tensor_parallel == 2


def test_a_cache_that_is_told_is_planned_with_and_must_fit():
    told = place(QWEN_1_5B, replace(LONG, cache_gib=20.0), Cluster(gpus=8))
    assert told.cache == 20 * GIB
    assert told.rows == 43
    assert told.problems == ()
    (problem,) = place(QWEN_1_5B, replace(LONG, cache_gib=64.0), Cluster(gpus=8)).problems
    assert "cluster.cache_gib (64) is more than the 63.1 GiB that are left on a GPU: lower it" in problem
    (few,) = place(QWEN_1_5B, replace(LONG, cache_gib=4.0), Cluster(gpus=8)).problems
    # 16 x 17,408 tokens of 28 KiB are 7.4375 GiB
    assert "fewer than 16: lower sampling.response_limit (now 16,384) or set cluster.cache_gib=7.5" in few


def test_an_engines_share_of_a_gpu_is_that_of_the_plan():
    for separate, share in ((True, ALONE), (False, SHARED)):
        placed = place(QWEN_1_5B, LONG, Cluster(gpus=8), separate=separate)
        assert placed.engine_share == share * 80 * GIB
        assert placed.engine_share <= placed.planned


@given(st.sampled_from([1, 2, 4, 8, 16, 64]), st.sampled_from([24.0, 40.0, 80.0, 141.0]), st.booleans())
def test_a_placement_without_problems_stays_below_what_is_planned(gpus, memory, checkpointing):
    demand = replace(LONG, activation_checkpointing=checkpointing)
    placed = place(QWEN_1_5B, demand, Cluster(gpus=gpus, gpu_memory=memory))
    fits = sum(placed.learning.values()) <= placed.planned and placed.rows >= 16
    assert fits == (placed.problems == ())
    assert placed.engines * placed.tensor_parallel == gpus


def test_more_gpus_never_need_more_memory_each():
    needs = [sum(place(QWEN_1_5B, LONG, Cluster(gpus=gpus)).learning.values()) for gpus in (2, 4, 8, 16)]
    assert needs == sorted(needs, reverse=True)


def test_an_engine_takes_as_many_gpus_as_its_weights_and_a_group_of_responses_need():
    placed = place(QWEN_32B, LONG, Cluster(gpus=128, nodes=16), separate=True)
    assert placed.tensor_parallel == 2  # on 1 only 2 responses would find room
    assert (placed.engines, placed.learner_ranks) == (48, 32)
    assert placed.problems == ()
    assert placed.settings == "cluster.learners=32 cluster.engines=48 cluster.tensor_parallel=2"


def test_a_shared_gpu_is_an_engine_of_its_own():
    placed = place(QWEN_32B, LONG, Cluster(gpus=128, nodes=16))
    assert placed.tensor_parallel == 1
    start, few = placed.problems
    assert "40,960 tokens: 10.00 GiB on each GPU, and it has 4.9" in start
    assert "fewer than 16" in few
    assert all("--separate, cluster.colocate=false" in problem for problem in placed.problems)


def test_an_engine_divides_the_gpus_of_a_node():
    apart = Cluster(gpus=24, nodes=4)  # 6 sample, 2 learn on each; 4 of 6 would leave 2 over on every node
    assert place(QWEN_32B, LONG, apart, separate=True).tensor_parallel == 2


def test_an_engine_does_not_reach_over_nodes():
    placed = place(QWEN_32B, LONG, Cluster(gpus=64, nodes=64))
    assert placed.tensor_parallel == 1
    assert placed.problems


def test_apart_a_quarter_learns_and_engines_have_their_gpus_alone():
    placed = place(QWEN_1_5B, LONG, Cluster(gpus=32, nodes=4), separate=True)
    assert (placed.engines, placed.learner_ranks) == (24, 8)
    assert placed.cache == pytest.approx(72 * GIB - 3.08e9 - 2 * GIB)
    assert place(QWEN_1_5B, LONG, Cluster(gpus=2), separate=True).learner_ranks == 1


def test_what_would_make_learning_fit_is_said_and_does():
    greedy = replace(LONG, activation_checkpointing=False, micro_batch_tokens=65_536)
    (problem,) = place(QWEN_1_5B, greedy, Cluster(gpus=8)).problems
    assert "learning needs" in problem
    assert "learner.activation_checkpointing=true" in problem
    saved = replace(greedy, activation_checkpointing=True)
    assert place(QWEN_1_5B, saved, Cluster(gpus=8)).problems == ()
    assert "dtype" not in problem  # it is bfloat16 already


def test_more_gpus_are_advised_where_they_help():
    problems = place(QWEN_1_5B, LONG, Cluster(gpus=1, gpu_memory=40)).problems
    assert any("take 2 GPUs" in problem for problem in problems)
    assert place(QWEN_1_5B, LONG, Cluster(gpus=2, gpu_memory=40)).problems == ()


def test_where_nothing_helps_it_is_said():
    problems = place(QWEN_32B, LONG, Cluster(gpus=1, gpu_memory=24)).problems
    assert any("before the first key" in problem for problem in problems)
    assert any("no single change is enough" in problem for problem in problems)


@pytest.mark.parametrize(
    ("cluster", "separate"),
    [(Cluster(gpus=7, nodes=2), False), (Cluster(gpus=0), False), (Cluster(gpus=1), True)],
)
def test_gpus_that_cannot_be_shared_out(cluster, separate):
    with pytest.raises(PlacementError):
        place(QWEN_1_5B, LONG, cluster, separate=separate)


def test_the_description_says_all_of_it():
    text = "\n".join(describe(place(QWEN_1_5B, LONG, Cluster(gpus=8))))
    assert "8 engines of 1 GPU, 8 learner ranks, on the same GPUs in turn" in text
    assert "135 responses of 16,384 tokens at full length" in text
    assert "host memory beside the processes' own, GiB per node: at most 43; at start 5.7 = a model" in text
    assert (
        "while training 43.0 = learner's state 22.9, a checkpoint being written 17.2, the engines' weights"
        in text
    )
    assert "as settings: cluster.learners=8 cluster.engines=8 cluster.colocate=true" in text
    assert "everything fits" in text
    assert "does not fit: learning" in "\n".join(
        describe(place(QWEN_1_5B, replace(LONG, activation_checkpointing=False), Cluster(gpu_memory=40)))
    )


def test_told_how_many_learn_all_others_sample_one_each():
    told = place_as_told(QWEN_1_5B, LONG, Cluster(gpus=8), learners=2)
    assert (told.engines, told.tensor_parallel, told.learner_ranks, told.colocated) == (6, 1, 2, False)
    assert told == place(QWEN_1_5B, LONG, Cluster(gpus=8), separate=True)  # a quarter of them
    crowded = place_as_told(QWEN_1_5B, LONG, Cluster(gpus=8, gpu_memory=24), learners=1)
    assert "learning needs" in " ".join(crowded.problems)
    wide = place_as_told(QWEN_1_5B, LONG, Cluster(gpus=8), learners=4, tensor_parallel=2)
    assert (wide.engines, wide.tensor_parallel) == (2, 2)
    assert wide.sampling["engine weights"] == pytest.approx(1.54e9)
    shared = place_as_told(QWEN_1_5B, LONG, Cluster(gpus=8), learners=None)
    assert shared == place(QWEN_1_5B, LONG, Cluster(gpus=8))
    narrow = place_as_told(QWEN_32B, LONG, Cluster(gpus=128, nodes=16), learners=32)
    assert "set cluster.tensor_parallel=2" in narrow.problems[0]
    roomy = place_as_told(QWEN_1_5B, LONG, Cluster(gpus=8, gpu_memory=24), learners=7)
    assert sum(roomy.learning.values()) < sum(crowded.learning.values())
