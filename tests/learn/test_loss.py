"""Log-probs and entropies of packed rows."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import Gemma2Config, Gemma2ForCausalLM, Phi3Config, Phi3ForCausalLM

from prorl.learn.loss import Scoring, check_head, score, token_logprobs
from prorl.learn.packing import micro_batch, plan_rows
from prorl.types import PromptActions
from support.learners import FUSED, action_of
from support.tiny import MODELS, NARROW, NATIVE

SCORING = Scoring(temperature=0.7, logits_elements=2**20)
TILED = replace(SCORING, fused_layers=True)
PLAIN = Scoring(temperature=1.0, logits_elements=2**20)


def ragged_groups():
    generator = torch.Generator().manual_seed(1)

    def draw(length):
        return tuple(torch.randint(0, 40, (length,), generator=generator).tolist())

    return [
        PromptActions(prompt=draw(prompt), actions=tuple(action_of(draw(n)) for n in lengths))
        for prompt, lengths in [(5, (4, 1, 7)), (9, (3, 3)), (1, (2, 6, 5, 1))]
    ]


def reference_scores(model, groups, temperature):
    """Log-probs and entropies, one rollout at a time, by log_softmax in double precision."""
    logps, entropies = [], []
    for group in groups:
        for action in group.actions:
            tokens = torch.tensor([[*group.prompt, *action.tokens]])
            logits = model(input_ids=tokens, use_cache=False).logits[0].double() / temperature
            table = logits[len(group.prompt) - 1 : -1].log_softmax(-1)
            logps.append(table.gather(1, torch.tensor(action.tokens)[:, None])[:, 0])
            entropies.append(-(table.exp() * table).sum(-1))
    return torch.cat(logps), torch.cat(entropies)


def test_half_precision_products_leave_log_probs_and_entropy_float32():
    torch.manual_seed(0)
    hidden_ND, head, targets_N = torch.randn(6, 16), nn.Linear(16, 1000), torch.arange(6)

    def scores():
        return token_logprobs(hidden_ND, head, targets_N, Scoring(temperature=1.0, logits_elements=2**20))

    with torch.autocast("cpu", dtype=torch.bfloat16):
        logps_N, entropy_N = scores()
        table_NV = head(hidden_ND).double().log_softmax(-1)
    assert logps_N.dtype == entropy_N.dtype == torch.float32
    torch.testing.assert_close(entropy_N.double(), -(table_NV.exp() * table_NV).sum(-1), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize(
    ("name", "pair_cost"), [(name, None) for name in MODELS] + [(name, 0.0) for name in NATIVE]
)
def test_scores_agree_with_one_rollout_at_a_time(name, pair_cost):
    model, groups = MODELS[name](), ragged_groups()
    batch = micro_batch(
        plan_rows(groups, budget=500, pair_cost=pair_cost), pad_id=3, device=torch.device("cpu")
    )
    scoring = SCORING if pair_cost is None else TILED
    logps_BT, entropy_N = (each.detach() for each in score(model, batch, scoring))
    with torch.no_grad():
        alone_BT, nothing_N = score(model, batch, scoring)
        assert torch.equal(alone_BT, logps_BT)
        assert not nothing_N.any()  # of a reference nobody wants it
        expected_N, expected_entropy_N = reference_scores(model, groups, temperature=0.7)
    torch.testing.assert_close(logps_BT[batch.mask_BT].double(), expected_N, atol=1e-5, rtol=0)
    torch.testing.assert_close(entropy_N.double(), expected_entropy_N, atol=1e-5, rtol=0)
    assert not logps_BT[~batch.mask_BT].any()


@pytest.mark.parametrize("name", NATIVE)
def test_sharing_the_prompt_leaves_gradients_as_they_are(name):
    model, groups = MODELS[name](), ragged_groups()

    def gradients(pair_cost):
        model.zero_grad()
        rows = plan_rows(groups, budget=500, pair_cost=pair_cost)
        logps_BT, _ = score(model, micro_batch(rows, pad_id=3, device=torch.device("cpu")), TILED)
        logps_BT.square().sum().backward()
        return [weight.grad.clone() for weight in model.parameters()]

    for alone, shared in zip(gradients(None), gradients(0.0), strict=True):
        torch.testing.assert_close(shared, alone, rtol=1e-4, atol=1e-4 * alone.abs().max().item())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("logits_elements", [1, 70, 30 * 7, 30 * 1000])
def test_chunks_change_neither_values_nor_gradients(logits_elements, bias):
    torch.manual_seed(0)
    head, targets_N = nn.Linear(8, 30, bias=bias), torch.randint(0, 30, (20,))
    hidden_ND = torch.randn(20, 8, requires_grad=True)

    def run(elements):
        logps_N, entropy_N = token_logprobs(
            hidden_ND, head, targets_N, Scoring(temperature=0.9, logits_elements=elements)
        )
        grads = torch.autograd.grad((logps_N * torch.arange(20.0)).sum(), [hidden_ND, *head.parameters()])
        assert not entropy_N.requires_grad
        return [logps_N, entropy_N, *grads]

    for chunked, whole in zip(run(logits_elements), run(2**20), strict=True):
        torch.testing.assert_close(chunked, whole)


@FUSED
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("logits_elements", [70, 30 * 1000])
def test_the_fused_head_computes_the_same_and_estimates_entropy(logits_elements, bias):
    torch.manual_seed(0)
    head, targets_N = nn.Linear(8, 30, bias=bias), torch.randint(0, 30, (20,))
    hidden_ND = torch.randn(20, 8, requires_grad=True)
    plain = Scoring(temperature=0.9, logits_elements=logits_elements)

    def run(scoring):
        logps_N, entropy_N = token_logprobs(hidden_ND, head, targets_N, scoring)
        grads = torch.autograd.grad((logps_N * torch.arange(20.0)).sum(), [hidden_ND, *head.parameters()])
        return entropy_N, [logps_N, *grads]

    estimate_N, found = run(replace(plain, fused_head=True))
    for mine, theirs in zip(run(plain)[1], found, strict=True):
        torch.testing.assert_close(theirs, mine)
    assert torch.equal(estimate_N, -found[0])
    assert not estimate_N.requires_grad
    with torch.no_grad():
        _, nothing_N = token_logprobs(hidden_ND, head, targets_N, replace(plain, fused_head=True))
    assert not nothing_N.any()


@FUSED
def test_the_fused_head_multiplies_in_half_precision():
    torch.manual_seed(0)
    hidden_ND, head, targets_N = torch.randn(6, 16), nn.Linear(16, 1000), torch.arange(6)
    scoring = Scoring(temperature=1.0, logits_elements=3000, dtype=torch.bfloat16, fused_head=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logps_N, _ = token_logprobs(hidden_ND, head, targets_N, scoring)
    expected_N = head(hidden_ND).log_softmax(-1)[torch.arange(6), targets_N]
    assert logps_N.dtype == torch.float32
    torch.testing.assert_close(logps_N, expected_N, rtol=2**-7, atol=0)
    assert not torch.equal(logps_N, expected_N)


def test_a_torch_without_the_fused_head_says_so(monkeypatch):
    monkeypatch.delattr(F, "linear_cross_entropy", raising=False)
    with pytest.raises(ValueError, match=r"learner.fused_head needs torch 2.13 or newer, and this is"):
        check_head(MODELS["qwen2-tied"](), replace(PLAIN, fused_head=True))


def test_a_chunk_of_logits_never_exceeds_its_bound():
    class Watched(nn.Linear):
        largest = 0

        def forward(self, hidden):
            logits = super().forward(hidden)
            self.largest = max(self.largest, logits.numel())
            return logits

    head = Watched(8, 30)
    scoring = Scoring(temperature=1.0, logits_elements=100)
    logps_N, _ = token_logprobs(torch.randn(50, 8), head, torch.zeros(50, dtype=torch.long), scoring)
    logps_N.sum().backward()
    assert head.largest == 90


@pytest.mark.parametrize("fused_head", [False, pytest.param(True, marks=FUSED)])
@pytest.mark.parametrize("name", MODELS)
def test_plain_heads_are_accepted(name, fused_head):
    check_head(MODELS[name](), replace(PLAIN, fused_head=fused_head))


def test_a_model_whose_rotation_depends_on_the_batch_is_refused():
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 32}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 1.0, **factors}
    shape = NARROW | {"max_position_embeddings": 256, "pad_token_id": 0, "rope_parameters": rope}
    with pytest.raises(ValueError, match="Phi3ForCausalLM rotates by other frequencies"):
        check_head(Phi3ForCausalLM(Phi3Config(**shape, original_max_position_embeddings=32)), PLAIN)


def test_a_model_that_caps_its_logits_is_refused():
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(**NARROW, head_dim=8, final_logit_softcapping=0.5)).eval()
    with pytest.raises(ValueError, match="Gemma2ForCausalLM does not compute its logits"):
        check_head(model, PLAIN)
