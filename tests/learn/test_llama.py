import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from prorl.learn.llama import packed_hidden_states
from prorl.learn.packing import Row, Tiles
from support.learners import action_of, seen_in
from support.tiny import FOUR_HEADS

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**FOUR_HEADS, num_key_value_heads=4)),
    "llama with biases": lambda: LlamaForCausalLM(
        LlamaConfig(**FOUR_HEADS, num_key_value_heads=2, attention_bias=True, mlp_bias=True)
    ),
    "llama, yarn": lambda: LlamaForCausalLM(
        LlamaConfig(**FOUR_HEADS, num_key_value_heads=1, rope_parameters=YARN)
    ),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**FOUR_HEADS, num_key_value_heads=2)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**FOUR_HEADS, num_key_value_heads=2, head_dim=16)),
}


def made(name):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for weight in model.parameters():  # norms and biases that are no ones and zeros
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def by_module(model, tokens, positions, mask):
    body = model.base_model(input_ids=tokens, position_ids=positions, attention_mask=mask, use_cache=False)
    return body.last_hidden_state


def shared_prompts():
    """A prompt of 4 and two actions of 3 and 4 that are fed; one of 6 and three actions of 2, 0 and 3."""
    rows = [(range(4), (4, 5)), (range(6), (3, 1, 4))]
    return Tiles.of(
        [Row(prompt=tuple(p), actions=tuple(action_of(range(n)) for n in fed)) for p, fed in rows]
    )


LAYOUTS = {
    "causal": (None, None),
    "jumps": (torch.tensor([[0, 1, 2, 7, 8, 9, 10, 20, 21, 22, 23], list(range(11))]), None),
    "shared prompts": (None, shared_prompts()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_hidden_states_and_gradients_are_those_of_the_module(name, layout):
    model = made(name)
    positions, tiles = LAYOUTS[layout]
    tokens = torch.arange(22).view(-1, 22 if tiles else 11) * 7 % 40
    # What the module is given where positions jump: without a mask it would take a jump for another text.
    jumps = torch.ones_like(tokens) if layout == "jumps" else None
    mask = seen_in(tiles)[None, None] if tiles else jumps
    weights = torch.randn(*tokens.shape, 32, generator=torch.Generator().manual_seed(1))

    def computed(states):
        model.zero_grad()
        (states * weights).sum().backward()
        return [states, *(one.grad for one in model.base_model.parameters())]

    theirs = computed(by_module(model, tokens, tiles.texts_N[None] if tiles else positions, mask))
    ours = computed(packed_hidden_states(model, tokens, positions, tiles))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-4)


def test_without_gradients_the_bits_are_the_same():
    model = made("qwen3")
    tokens = torch.arange(22).view(2, 11) % 40
    with torch.no_grad():
        alone = packed_hidden_states(model, tokens, None, None)
    assert torch.equal(packed_hidden_states(model, tokens, None, None), alone)
