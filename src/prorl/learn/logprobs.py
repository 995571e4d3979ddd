"""Log-probs and entropies of action tokens under a causal language model.

Logits exist only for the positions that predict an action token, and only one bounded chunk at a time: no tensor of
size batch · length · vocabulary is ever made. Logits are divided by the sampling temperature, so the numbers are
those of the untruncated, temperature-scaled policy, as in `prorl.types.Completion.logps`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from prorl.learn.packing import MicroBatch, prefix_mask

HEAD_TOLERANCE = 1e-3  # nats


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How to score: the temperature of the policy, elements per logits chunk, and the autocast type."""

    temperature: float
    logits_elements: int
    dtype: torch.dtype


def score(model: PreTrainedModel, batch: MicroBatch, scoring: Scoring) -> tuple[Tensor, Tensor]:
    """(logps_BT, entropy_N) of the batch's action tokens; zero where `mask_BT` is false, no gradient to entropy."""
    mask = None if batch.segments_RS is None else prefix_mask(batch.segments_RS)
    low = scoring.dtype != torch.float32
    with torch.autocast(batch.tokens_RS.device.type, dtype=scoring.dtype if low else None, enabled=low):
        hidden_RSD = model.base_model(
            input_ids=batch.tokens_RS, attention_mask=mask, position_ids=batch.positions_RS, use_cache=False
        ).last_hidden_state
        hidden_ND = hidden_RSD.flatten(0, 1).index_select(0, batch.sources_N)
        logps_N, entropy_N = token_logprobs(
            hidden_ND,
            model.get_output_embeddings(),
            batch.targets_N,
            temperature=scoring.temperature,
            logits_elements=scoring.logits_elements,
        )
    logps_BT = torch.zeros(batch.mask_BT.shape, device=logps_N.device).masked_scatter(batch.mask_BT, logps_N)
    return logps_BT, entropy_N


def token_logprobs(
    hidden_ND: Tensor, head: nn.Module, targets_N: Tensor, *, temperature: float, logits_elements: int
) -> tuple[Tensor, Tensor]:
    """(logps_N, entropy_N), float32: log softmax(head(hidden) / temperature) at the targets, and entropy in nats.

    At most `logits_elements` logits exist at a time (at least one row); with more than one chunk they are computed
    again in the backward pass instead of being kept. Entropy carries no gradient.
    """
    rows = max(1, logits_elements // head.get_parameter("weight").shape[0])
    if len(targets_N) <= rows:
        return _score_chunk(hidden_ND, head, targets_N, temperature)
    chunks = [
        checkpoint(_score_chunk, hidden_nD, head, targets_n, temperature, use_reentrant=False)
        for hidden_nD, targets_n in zip(
            torch.split(hidden_ND, rows), torch.split(targets_N, rows), strict=True
        )
    ]
    return torch.cat([logps_n for logps_n, _ in chunks]), torch.cat([entropy_n for _, entropy_n in chunks])


def check_head(model: PreTrainedModel, *, logits_elements: int) -> None:
    """Prove on a few tokens that logits are the output embedding of the last hidden state, as `score` assumes.

    Raises ValueError where the model's own forward does more (logit scaling, soft caps, extra layers).
    """
    device = model.get_input_embeddings().weight.device
    vocabulary = model.get_input_embeddings().weight.shape[0]
    tokens_1S = (torch.arange(1, 9, device=device) * 7919 % vocabulary)[None]
    with torch.no_grad():
        expected = model(input_ids=tokens_1S, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        hidden_ND = model.base_model(input_ids=tokens_1S, use_cache=False).last_hidden_state[0, :-1]
        targets_N = tokens_1S[0, 1:]
        found_N, _ = token_logprobs(
            hidden_ND,
            model.get_output_embeddings(),
            targets_N,
            temperature=1.0,
            logits_elements=logits_elements,
        )
    error = (found_N - expected.gather(1, targets_N[:, None])[:, 0]).abs().max().item()
    if not error <= HEAD_TOLERANCE:
        raise ValueError(
            f"{type(model).__name__} does not compute its logits as output embedding of the last hidden state "
            f"(log-probs differ by {error:.2g}); use a model that does, such as Qwen, Llama or GPT-2"
        )


def _score_chunk(
    hidden_nD: Tensor, head: nn.Module, targets_n: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    logits_nV = head(hidden_nD).float()
    if temperature != 1.0:  # a pass over all logits that is worth sparing
        logits_nV = logits_nV / temperature
    table_nV = logits_nV.log_softmax(-1)
    # Autocast would take this product, and so the entropy, to half precision.
    with torch.no_grad(), torch.autocast(table_nV.device.type, enabled=False):
        entropy_n = -torch.linalg.vecdot(table_nV.exp(), table_nV)
    return table_nV.gather(1, targets_n[:, None])[:, 0], entropy_n
