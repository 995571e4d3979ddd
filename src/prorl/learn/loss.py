"""Packed rows → log-probs → loss: what one update minimises, and the sums measured on the way.

Logits exist only for the positions that predict an action token, and only one bounded chunk at a time: no tensor of
size batch · length · vocabulary is ever made. Logits are divided by the sampling temperature, so log-probs are those
of the untruncated, temperature-scaled policy, as in `prorl.types.Completion.logps`. Invariant: every number is a sum
over tokens, so micro-batches, mini-batches and ranks simply add up; only `update_stats` divides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from prorl.algo.clip_higher import policy_loss
from prorl.algo.kl_to_reference import kl_penalty
from prorl.algo.mismatch_correction import POSITIONS, Mismatch, mismatch
from prorl.control.metrics import ratio
from prorl.learn.linear import linear
from prorl.learn.llama import packed_hidden_states
from prorl.learn.packing import MicroBatch, Share
from prorl.types import HParams, UpdateStats

HEAD_TOLERANCE = 1e-3  # nats
# Sums over the action tokens of a micro-batch, in this order; the last says what the two before were measured on.
# The factors and the tokens of every part of `POSITIONS` follow.
SUMS = ("loss", "kl", "entropy", "clipped", "mismatch", "mismatch_out", "mismatch_tokens")
LEAST = 32  # tokens of a part of which a mean factor is told
Chunk = Callable[[Tensor, nn.Module, Tensor, float], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How to score: the temperature of the policy, elements per logits chunk, and the autocast type."""

    temperature: float
    logits_elements: int
    dtype: torch.dtype = torch.float32
    compile: bool = False  # what is computed of a chunk of logits
    fused_head: bool = False  # by torch's fused kernel, with an estimate of entropy
    fused_layers: bool = False  # by `prorl.learn.llama`


def score(model: PreTrainedModel, batch: MicroBatch, scoring: Scoring) -> tuple[Tensor, Tensor]:
    """(logps_BT, entropy_N) of the batch's action tokens; zero where `mask_BT` is false, no gradient to entropy."""
    low = scoring.dtype != torch.float32
    with torch.autocast(batch.tokens_RS.device.type, dtype=scoring.dtype if low else None, enabled=low):
        if scoring.fused_layers:
            hidden_RSD = packed_hidden_states(model, batch.tokens_RS, tiles=batch.tiles)
        elif batch.tiles is not None:
            raise ValueError("only `prorl.learn.llama` computes rows that share a prompt")
        else:
            hidden_RSD = model.base_model(input_ids=batch.tokens_RS, use_cache=False).last_hidden_state
        hidden_ND = hidden_RSD.flatten(0, 1).index_select(0, batch.sources_N)
        head = model.get_output_embeddings()
        logps_N, entropy_N = token_logprobs(hidden_ND, head, batch.targets_N, scoring)
    logps_BT = torch.zeros(batch.mask_BT.shape, device=logps_N.device).masked_scatter(batch.mask_BT, logps_N)
    return logps_BT, entropy_N


def _score_chunk(
    hidden_nD: Tensor, head: nn.Module, targets_n: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    logits_nV = linear(hidden_nD, head.weight, head.bias) if type(head) is nn.Linear else head(hidden_nD)
    logits_nV = logits_nV.float()
    if temperature != 1.0:  # a pass over all logits that is worth sparing
        logits_nV = logits_nV / temperature
    table_nV = logits_nV.log_softmax(-1)
    logps_n = table_nV.gather(1, targets_n[:, None])[:, 0]
    if not torch.is_grad_enabled():
        return logps_n, torch.zeros_like(logps_n)
    # Autocast would take this product, and so the entropy, to half precision.
    with torch.no_grad(), torch.autocast(table_nV.device.type, enabled=False):
        entropy_n = -torch.linalg.vecdot(table_nV.exp(), table_nV)
    return logps_n, entropy_n


def _fused(
    hidden_ND: Tensor, head: nn.Module, targets_N: Tensor, scoring: Scoring, rows: int
) -> tuple[Tensor, Tensor]:
    """As chunks of so many rows, by torch; log-probs have the precision of the products.

    Entropy is -log p of the token that was sampled, which is its mean over what a policy samples.
    """
    if not hasattr(F, "linear_cross_entropy"):
        raise ValueError(
            f"learner.fused_head needs torch 2.13 or newer, and this is {torch.__version__}: leave it out"
        )
    low = {name: weight.to(scoring.dtype) for name, weight in head.named_parameters()}
    loss_N = F.linear_cross_entropy(
        hidden_ND.to(scoring.dtype) / scoring.temperature,
        low["weight"],
        targets_N,
        linear_bias=low["bias"] / scoring.temperature if "bias" in low else None,
        reduction="none",
        # Chunks of its own choice are so small that it takes several times as long.
        options=nn.LinearCrossEntropyOptions(batch_chunk_size=rows, chunking_method=None),
    )
    logps_N = -loss_N.float()
    return logps_N, -logps_N.detach() if torch.is_grad_enabled() else torch.zeros_like(logps_N)


@cache
def _compiled_chunk() -> Chunk:
    return torch.compile(_score_chunk, dynamic=True)


def token_logprobs(
    hidden_ND: Tensor, head: nn.Module, targets_N: Tensor, scoring: Scoring
) -> tuple[Tensor, Tensor]:
    """(logps_N, entropy_N), float32: log softmax(head(hidden) / temperature) at the targets, and entropy in nats.

    At most `scoring.logits_elements` logits exist at a time (at least one row); with more than one chunk they are
    computed again in the backward pass instead of being kept. Entropy carries no gradient. Where none is wanted at
    all, as of a reference, it is not computed and is zero. Raises ValueError: this torch has no fused head.
    """
    rows = max(1, scoring.logits_elements // head.get_parameter("weight").shape[0])
    if scoring.fused_head:
        return _fused(hidden_ND, head, targets_N, scoring, rows)
    chunk = _compiled_chunk() if scoring.compile else _score_chunk
    if len(targets_N) <= rows:
        return chunk(hidden_ND, head, targets_N, scoring.temperature)
    chunks = [
        checkpoint(chunk, hidden_nD, head, targets_n, scoring.temperature, use_reentrant=False)
        for hidden_nD, targets_n in zip(hidden_ND.split(rows), targets_N.split(rows), strict=True)
    ]
    logps, entropies = zip(*chunks, strict=True)
    return torch.cat(logps), torch.cat(entropies)


def check_head(model: PreTrainedModel, scoring: Scoring) -> None:
    """Prove on a few tokens that logits are the output embedding of the last hidden state, as `score` assumes.

    Raises ValueError where the model's own forward does more (logit scaling, soft caps, extra layers), and as
    `token_logprobs`.
    """
    if any(getattr(module, "rope_type", None) == "longrope" for module in model.modules()):
        raise ValueError(
            f"{type(model).__name__} rotates by other frequencies where a longer sequence is computed beside it "
            "(longrope), so its log-probs depend on the batch: use a model that does not"
        )
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    tokens_1S = (torch.arange(1, 9, device=embedding.device) * 7919 % len(embedding))[None]
    targets_N = tokens_1S[0, 1:]
    with torch.no_grad():
        expected = model(input_ids=tokens_1S, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        hidden_ND = model.base_model(input_ids=tokens_1S, use_cache=False).last_hidden_state[0, :-1]
        found_N, _ = token_logprobs(hidden_ND, head, targets_N, scoring)
    error = (found_N - expected.gather(1, targets_N[:, None])[:, 0]).abs().max().item()
    if not error <= HEAD_TOLERANCE:
        raise ValueError(
            f"{type(model).__name__} does not compute its logits as output embedding of the last hidden state "
            f"(log-probs differ by {error:.2g}); use a model that does, such as Qwen, Llama or GPT-2"
        )


def objective(
    micro: MicroBatch,
    hparams: HParams,
    *,
    logps_BT: Tensor,  # of the policy now, with gradient
    old_BT: Tensor,  # at the start of the step, ...
    start_BT: Tensor | None,  # ... and the learner's own then, where it knows them, for the mismatch
    reference_BT: Tensor | None,  # None: no KL term
    entropy_N: Tensor,
    denominator: int,
) -> tuple[Tensor, Tensor]:
    """This micro-batch's share of the loss, the token sum over `denominator`, and its `SUMS`, detached."""
    mask_BT, zero = micro.mask_BT, entropy_N.new_zeros(())

    def compare(learner_BT: Tensor) -> Mismatch:
        bounds = {"low": hparams.mismatch_low, "high": hparams.mismatch_high}
        return mismatch(learner_BT, micro.engine_logps_BT, mask_BT, kind=hparams.mismatch, **bounds)

    loss, clipped = policy_loss(
        logps_BT,
        old_BT,
        micro.advantages_BT,
        mask_BT,
        clip_low=hparams.clip_low,
        clip_high=hparams.clip_high,
        dual_clip=hparams.dual_clip,
        weights=compare(old_BT).weights,
        denominator=denominator,
    )
    kl, disagreement = zero, [zero] * (3 + 2 * len(POSITIONS))
    if reference_BT is not None:
        penalty_BT = kl_penalty(logps_BT, reference_BT, estimator=hparams.kl_estimator)
        loss = loss + hparams.kl_coef * penalty_BT[mask_BT].sum() / denominator
        # One measure for all estimators, as ceilings and detectors read it: the one without heavy tails.
        kl = kl_penalty(logps_BT.detach(), reference_BT, estimator="k2")[mask_BT].sum()
    if start_BT is not None:
        found = compare(start_BT)
        disagreement = [found.abs_log_w, found.out_of_bounds, found.tokens, *found.factors, *found.counts]
    sums = [loss.detach() * denominator, kl, entropy_N.sum(), clipped, *disagreement]
    return loss, torch.stack([value.float() for value in sums])


def update_stats(
    shares: Sequence[Share], totals: Sequence[Tensor], norms: Sequence[float | None], *, with_kl: bool
) -> UpdateStats:
    """Means over the action tokens of the applied updates; None where there is nothing to average.

    Of each mini-batch: its `SUMS` over all ranks, and its gradient norm, None where the optimizer refused the step.
    """
    applied = [norm is not None for norm in norms]
    none = torch.zeros(len(SUMS) + 2 * len(POSITIONS))
    sums = sum((total.double().cpu() for total in compress(totals, applied)), none).tolist()
    loss, kl, entropy, clipped, mismatch_, out, measured = sums[: len(SUMS)]
    factors, counts = sums[len(SUMS) : -len(POSITIONS)], sums[-len(POSITIONS) :]
    tokens = sum(share.action_tokens for share in compress(shares, applied))
    return UpdateStats(
        updates=sum(applied),
        skipped=norms.count(None),
        loss=ratio(loss, tokens),
        kl=ratio(kl, tokens) if with_kl else None,
        entropy=ratio(entropy, tokens),
        grad_norm=ratio(sum(norm or 0.0 for norm in norms), sum(applied)),
        clip_share=ratio(clipped, tokens),
        mismatch=ratio(mismatch_, measured),
        mismatch_out_share=ratio(out, measured),
        mismatch_factors={
            str(first): factor / count
            for first, factor, count in zip(POSITIONS, factors, counts, strict=True)
            if count >= LEAST
        },
        tokens=sum(share.positions for share in shares),
        action_tokens=sum(share.action_tokens for share in shares),
        skipped_last=[*reversed(applied), True].index(True),
    )
