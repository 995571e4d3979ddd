import pytest
import torch

from prorl.learn.llama import packed_hidden_states
from prorl.learn.packing import Row, Tiles
from support.learners import action_of, seen_in
from support.tiny import NATIVE


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
@pytest.mark.parametrize("name", NATIVE)
def test_hidden_states_and_gradients_are_those_of_the_module(name, layout):
    model = NATIVE[name]()
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
    model = NATIVE["qwen3"]()
    tokens = torch.arange(22).view(2, 11) % 40
    with torch.no_grad():
        alone = packed_hidden_states(model, tokens, None, None)
    assert torch.equal(packed_hidden_states(model, tokens, None, None), alone)
