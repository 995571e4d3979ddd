"""Whether decoder and learner compute on a device what the module's own float32 passes compute there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.profiler import profile
from transformers import PreTrainedModel

from gpu_load import SAMPLES, Load, decode_all, make_engine, make_model, random_prompts, random_tokens
from prorl.algo.mismatch_correction import POSITIONS
from prorl.learn.loss import Scoring, score
from prorl.learn.model import choose_attention
from prorl.learn.packing import MicroBatch, Row, gather_rows, micro_batch, plan_rows
from prorl.types import Action, Completion, PromptActions, log_probs, token_ids

TOLERANCE = 1e-3  # nats, and relative gradient error: what a float32 path may differ from another one


def correctness(load: Load, device: torch.device) -> dict[str, Any]:
    """Native decoder and learner against the module's own float32 forward and backward pass."""
    model = make_model(load, device)
    completions = decode_all(make_engine(model, SAMPLES), load, SAMPLES, limit=min(load.response, 64))
    prompt = random_prompts(load, 1)[0]
    expected = [_reference(model, prompt, completion.tokens) for completion in completions]
    half = make_engine(copy.deepcopy(model).bfloat16(), SAMPLES)
    gaps = {
        "decoder float32": _gap([completion.logps for completion in completions], expected),
        "decoder bfloat16": _gap([half.score(prompt, c.tokens) for c in completions], expected),
        "learner float32": _gap(_learned(model, prompt, completions, torch.float32), expected),
        "learner bfloat16": _gap(_learned(model, prompt, completions, torch.bfloat16), expected),
    }
    gradient = _gradient_error(model, prompt, completions)
    long, kernels = _long(model, load)
    exact = (gaps["decoder float32"]["max"], gaps["learner float32"]["max"], gradient)
    return {
        "log-prob gap to the plain forward, nats": gaps,
        "relative gradient error, packed and chunked against plain": gradient,
        "long, mean exp |difference| in the learner's precision": long,
        "attention kernels": kernels,
        "gates": {
            "float32 within tolerance": all(error <= TOLERANCE for error in exact),
            "long sequences within 1.05": all(factor < 1.05 for factor in long.values()),
            "flash attention only": device.type == "cpu"
            or (bool(kernels) and all("flash" in k for k in kernels)),
        },
    }


@torch.no_grad()
def _long(model: PreTrainedModel, load: Load) -> tuple[dict[str, float], list[str]]:
    """Log-probs of one long response in the learner's precision against float32, by position; kernels it used."""
    choose_attention()
    with profile() as told:
        factors = by_position(load, model, partial(score, model))
    named = {event.key for event in told.key_averages() if "attention" in event.key and "scaled" in event.key}
    named.discard("aten::scaled_dot_product_attention")  # which chooses among the others
    return factors, sorted(named)


@torch.no_grad()
def by_position(
    load: Load,
    model: PreTrainedModel,
    scorer: Callable[[MicroBatch, Scoring], tuple[Tensor, Tensor]],
    **changes: Any,
) -> dict[str, float]:
    """Mean exp |difference| of the log-probs of one long response by a scorer from the model's in float32."""
    tokens, prompt = random_tokens(load, load.long, 1), random_prompts(load, 1)[0]
    exact = torch.tensor(_reference(model, prompt, tokens))
    action = Action(tokens=token_ids(tokens), engine_logps=log_probs(exact), advantage=1.0)
    batch = micro_batch([Row(prompt=prompt, actions=(action,))], pad_id=0, device=model.device)
    scoring = Scoring(temperature=1.0, logits_elements=2**27, dtype=getattr(torch, load.dtype), **changes)
    factors = (scorer(batch, scoring)[0][0].cpu() - exact).abs().exp()
    starts = [start for start in POSITIONS if start < load.long]
    parts = zip(starts, [*starts[1:], load.long], strict=True)
    return {str(a): factors[a:b].mean().item() for a, b in parts}


@torch.no_grad()
def _reference(model: PreTrainedModel, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
    return _plain_logps(model, prompt, tokens).tolist()


def _plain_logps(model: PreTrainedModel, prompt: Sequence[int], tokens: Sequence[int]) -> Tensor:
    device = model.get_input_embeddings().weight.device
    ids = torch.tensor([[*prompt, *tokens]], device=device)
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens, device=device)[:, None])[:, 0]


def _packed_logps(
    model: PreTrainedModel, prompt: Sequence[int], completions: Sequence[Completion], dtype: torch.dtype
) -> list[Tensor]:
    """By the learner's path on a GPU, in a row each: logits in several chunks."""
    actions = tuple(Action(tokens=c.tokens, engine_logps=c.logps, advantage=1.0) for c in completions)
    groups = [PromptActions(prompt=tuple(prompt), actions=actions)]
    rows = plan_rows(groups, budget=2**16, pair_cost=None)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    scoring = Scoring(temperature=1.0, logits_elements=32 * vocabulary, dtype=dtype)
    logps = []
    for part in gather_rows(rows, budget=2**16):
        batch = micro_batch(part, pad_id=0, device=model.device)
        logps_BT, _ = score(model, batch, scoring)
        logps += [logps_T[mask_T] for logps_T, mask_T in zip(logps_BT, batch.mask_BT, strict=True)]
    return logps


@torch.no_grad()
def _learned(
    model: PreTrainedModel, prompt: Sequence[int], completions: Sequence[Completion], dtype: torch.dtype
) -> list[list[float]]:
    return [logps.tolist() for logps in _packed_logps(model, prompt, completions, dtype)]


def _gap(found: Sequence[Sequence[float]], expected: Sequence[Sequence[float]]) -> dict[str, float]:
    gaps = [
        abs(a - b)
        for mine, theirs in zip(found, expected, strict=True)
        for a, b in zip(mine, theirs, strict=True)
    ]
    return {"mean": sum(gaps) / len(gaps), "max": max(gaps)}


def _gradient_error(
    model: PreTrainedModel, prompt: Sequence[int], completions: Sequence[Completion]
) -> float:
    """Norm of the difference of both gradients of the summed log-probs over the plain one's norm."""
    for completion in completions:
        torch.autograd.backward(_plain_logps(model, prompt, completion.tokens).sum())
    plain = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    packed = torch.cat(_packed_logps(model, prompt, completions, torch.float32))
    torch.autograd.backward(packed.sum())
    difference = [weight.grad - grad for weight, grad in zip(model.parameters(), plain, strict=True)]
    model.zero_grad()
    return float(torch.nn.utils.get_total_norm(difference) / torch.nn.utils.get_total_norm(plain))
