"""Where engines and ranks go, and what is said when they do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.footprint import Size
from prorl.placement import GIB, Cluster, Demand, PlacementError, describe, place, place_as_told

QWEN_1_5B = Size(
    parameters=1.54e9,
    hidden_size=1536,
    intermediate_size=8960,
    layers=28,
    heads=12,
    kv_heads=2,
    head_width=128,
)
QWEN_32B = Size(
    parameters=32.8e9,
    hidden_size=5120,
    intermediate_size=27_648,
    layers=64,
    heads=40,
    kv_heads=8,
    head_width=128,
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
    assert placed.host == pytest.approx(16 * 1.54e9)  # all eight ranks' weights, moments and reference
    # 20 bytes a parameter over 8, embedding and two layers with gradients, 17,408 tokens of 28 layer inputs and one
    # whole layer, two processes
    whole = 2 * 2 * (1.54e9 - 26 * 46_792_704)
    tokens = 17_408 * (28 * 4 * 1536 + 118_784)
    assert sum(placed.learning.values()) == pytest.approx(1.54e9 * 20 / 8 + whole + tokens + 4 * GIB)


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
    (problem,) = placed.problems
    assert "fewer than 16" in problem
    assert "--separate, cluster.colocate=false" in problem


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
    assert "host memory, GiB per node: 23 for the learner's state" in text
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
