"""Decoding agrees with the module's plain teacher-forced forward, for each supported architecture."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Lfm2Config, Lfm2ForCausalLM

from prorl.learn.llama import unsupported_reason
from prorl.local.decoder import Decoder, FallbackDecoder, LlamaDecoder, best_width, pack
from prorl.local.engine import LocalEngine
from prorl.types import Request, Sampling
from support.tiny import FOUR_HEADS, MODELS, NATIVE, gpt2, qwen2

PROMPTS = ((5, 6, 7), (8, 9, 1, 2, 3, 4, 11), (7,), (12, 30, 31, 2))


def reference_logps(model, prompt, tokens, temperature):
    with torch.no_grad():
        logits = model.eval()(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    logps = torch.log_softmax(logits / temperature, -1)
    return logps.gather(-1, torch.tensor(tokens)[:, None])[:, 0]


@pytest.mark.parametrize("name", MODELS)
def test_log_probs_sampled_and_scored_are_those_of_the_plain_forward(name):
    model = MODELS[name]()
    engine = LocalEngine(model, eos_ids=(3, 4), pad_id=0)
    sampling = Sampling(temperature=1.3, top_p=1.0, limit=40)
    for draw, prompt in enumerate(PROMPTS):
        engine.submit(Request(draw=draw, prompt=prompt, samples=3 + draw, seed=draw, sampling=sampling))
    checked = 0
    while completions := engine.poll():
        for completion in completions:
            expected = reference_logps(model, PROMPTS[completion.draw], completion.tokens, 1.3)
            torch.testing.assert_close(torch.tensor(completion.logps), expected, atol=1e-5, rtol=0)
            checked += 1
    assert checked == 3 + 4 + 5 + 6
    prompt, tokens = (5, 6, 7), tuple(range(8, 38))
    scored, expected = engine.score(prompt, tokens), reference_logps(model, prompt, tokens, 1.0)
    torch.testing.assert_close(torch.tensor(scored), expected, atol=1e-5, rtol=0)


def test_the_native_decoder_serves_every_supported_architecture():
    natively = {name for name, build in MODELS.items() if unsupported_reason(build()) is None}
    assert natively == set(NATIVE)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "whole context"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynamic"),
    ],
)
def test_unknown_variants_are_refused_and_served_by_the_fallback(options, reason):
    model = qwen2(**options)
    assert reason in str(unsupported_reason(model))
    tokens = tuple(range(8, 28))
    scored = LocalEngine(model, eos_ids=(), pad_id=0).score((5, 6, 7), tokens)
    expected = reference_logps(model, (5, 6, 7), tokens, 1.0)
    torch.testing.assert_close(torch.tensor(scored), expected, atol=1e-5, rtol=0)


def test_layers_that_are_no_attention_are_refused():
    model = Lfm2ForCausalLM(
        Lfm2Config(**FOUR_HEADS, num_key_value_heads=2, layer_types=["conv", "full_attention"])
    )
    with pytest.raises(ValueError, match=r"Lfm2ForCausalLM .* layers that are no softmax attention"):
        FallbackDecoder(model, pad_id=0)


def test_replaced_projections_and_mixed_dtypes_are_refused():
    adapted = qwen2()
    adapted.model.layers[1].mlp.up_proj = torch.nn.Sequential(adapted.model.layers[1].mlp.up_proj)
    assert "plain linear" in str(unsupported_reason(adapted))
    mixed = qwen2()
    mixed.model.norm.half()
    assert "float32" in str(unsupported_reason(mixed))


@pytest.mark.parametrize("kind", [LlamaDecoder, FallbackDecoder])
def test_rearranged_slots_go_on_where_they_were(kind):
    model = qwen2()
    decoder: Decoder = kind(model, pad_id=0)
    decoding, _ = decoder.start(PROMPTS)
    row_prompts = [0, 0, 0, 1, 1, 1, 2, 3]
    layout = decoding.arrange(row_prompts, None)
    written: list[list[int]] = [[] for _ in row_prompts]

    def step(tokens_of_row, rows):
        for row, token in zip(rows, tokens_of_row, strict=True):
            written[row].append(token)
        return decoding.step(torch.tensor([tokens_of_row[row] for row in layout.rows]))

    for position in range(20):
        step([(3 * row + position) % FOUR_HEADS["vocab_size"] for row in range(8)], list(range(8)))
    kept = [1, 4, 5, 7]
    slot_of = {row: layout.rows.index(row) for row in kept}
    layout = decoding.arrange([row_prompts[row] for row in kept], [slot_of[row] for row in kept])
    logits = step([row + 10 for row in kept], kept)
    for slot, index in enumerate(layout.rows):
        row = kept[index]
        with torch.no_grad():
            whole = torch.tensor([[*PROMPTS[row_prompts[row]], *written[row]]])
            expected = model.eval()(whole).logits[0, -1]
        torch.testing.assert_close(logits[slot], expected, atol=2e-5, rtol=1e-5)


def test_refresh_takes_over_weights_changed_in_place():
    model = qwen2()
    engine = LocalEngine(model, eos_ids=(), pad_id=0)
    before = engine.score((5, 6), (7, 8, 9))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.2)
    engine.publish(1)
    after = torch.tensor(engine.score((5, 6), (7, 8, 9)))
    torch.testing.assert_close(after, reference_logps(model, (5, 6), (7, 8, 9), 1.0), atol=1e-5, rtol=0)
    assert not torch.allclose(after, torch.tensor(before), atol=1e-3)


def test_bfloat16_stays_close_to_the_module():
    model = qwen2().bfloat16()
    scored = LocalEngine(model, eos_ids=(), pad_id=0).score((5, 6, 7), (8, 9, 10, 11))
    expected = reference_logps(model.float(), (5, 6, 7), (8, 9, 10, 11), 1.0)
    torch.testing.assert_close(torch.tensor(scored), expected, atol=0.15, rtol=0)


def test_a_model_in_training_mode_decodes_without_dropout_and_stays_in_it():
    model = gpt2().train()
    engine = LocalEngine(model, eos_ids=(), pad_id=0)
    assert engine.score((5, 6), (7, 8, 9)) == engine.score((5, 6), (7, 8, 9))
    assert model.training


def test_a_layer_that_checkpoints_its_activations_goes_on_doing_so_after_decoding():
    """The learner leaves that layer alone in training mode."""
    model = gpt2()
    model.transformer.h[0].training = True
    LocalEngine(model, eos_ids=(), pad_id=0).score((5, 6), (7, 8, 9))
    assert [name for name, module in model.named_modules() if module.training] == ["transformer.h.0"]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 9))
def test_every_row_lives_in_exactly_one_slot_of_a_block_of_its_prompt(prompts, width):
    layout = pack(prompts, width)
    living = [row for row, live in zip(layout.rows, layout.live, strict=True) if live]
    assert sorted(living) == list(range(len(prompts)))
    assert len(layout.rows) == width * len(layout.block_prompts)
    for slot, row in enumerate(layout.rows):
        assert prompts[row] == layout.block_prompts[slot // width]


def test_equal_groups_share_their_prompt_and_ragged_groups_avoid_fillers():
    assert best_width([0] * 8 + [1] * 8, block_cost=0.1) == 8
    assert best_width([0] * 8 + [1], block_cost=0.1) == 1
    assert best_width([0] * 8 + [1], block_cost=100.0) == 8
