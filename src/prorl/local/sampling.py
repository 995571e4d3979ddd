"""Sampling of one token per row, with random numbers that belong to (seed, sample, position) alone.

Random numbers come from a counter-based hash (splitmix64: Steele, Lea and Flood, OOPSLA 2014), so what a row
samples depends, float rounding aside, neither on the rows beside it nor on any generator state.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from prorl.types import Sampling


def _signed(value: int) -> int:
    """The 64-bit pattern of `value` as torch's signed integer."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)), (31, 1))


def _shift_right(bits: Tensor, by: int) -> Tensor:
    # torch shifts signed integers arithmetically; the mask clears the copies of the sign
    return (bits >> by) & ((1 << (64 - by)) - 1)


def absorb(key: Tensor, value: Tensor | int) -> Tensor:
    """Hash a number into each 64-bit key (int64): one splitmix64 step at counter `value` + 1."""
    bits = key + (value + 1) * _GAMMA if isinstance(value, Tensor) else key + _signed((value + 1) * _GAMMA)
    for shift, factor in _MIX:
        bits = (bits ^ _shift_right(bits, shift)) * factor
    return bits


def row_keys(seeds: Sequence[int], samples: Sequence[int], device: torch.device) -> Tensor:
    """One key per row from its request's seed and its sample number."""
    seeds_R = torch.tensor([_signed(seed) for seed in seeds], device=device)
    return absorb(absorb(seeds_R, 0), torch.tensor(samples, device=device))


def uniform(bits: Tensor) -> Tensor:
    """Float64 in [0, 1) from the upper 53 bits of each hash."""
    return _shift_right(bits, 11).double() * 2.0**-53


def draw(logits_RV: Tensor, keys_R: Tensor, position: int, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Sample one token per row; tokens and their log-probs, both of shape R.

    The log-prob is that of the untruncated temperature-scaled distribution, `log_softmax(logits / T)`, also
    with `top_p` below 1: the learner recomputes it without knowing the nucleus. Temperature 0 takes the most
    probable token and reports its log-prob at temperature 1. Non-finite logits give non-finite log-probs.
    """
    if sampling.temperature == 0.0:
        tokens = logits_RV.argmax(-1)
        return tokens, token_logps(logits_RV, tokens)
    logits = logits_RV.float()
    probs = torch.softmax(logits if sampling.temperature == 1.0 else logits / sampling.temperature, -1)
    bits = absorb(keys_R, position)
    tokens = _inverse_cdf(probs, bits)
    if sampling.top_p < 1.0:
        _redraw_outside_nucleus(tokens, probs, bits, sampling.top_p)
    return tokens, probs.gather(-1, tokens[:, None]).squeeze(-1).log()


def token_logps(logits_RV: Tensor, tokens_R: Tensor) -> Tensor:
    """Log-probs of given tokens at temperature 1, shape R."""
    return torch.log_softmax(logits_RV.float(), -1).gather(-1, tokens_R[:, None]).squeeze(-1)


def _inverse_cdf(weights_RV: Tensor, bits_R: Tensor) -> Tensor:
    """The token at which the cumulated weights first exceed u times their sum, u from the bits."""
    # float64: single precision would blur the cumulated tail of a large vocabulary
    cumulated = weights_RV.cumsum(-1, dtype=torch.float64)
    target = uniform(bits_R)[:, None] * cumulated[:, -1:]
    tokens = torch.searchsorted(cumulated, target, right=True).squeeze(-1)
    return tokens.clamp_(max=weights_RV.shape[-1] - 1)  # non-finite weights only


def _redraw_outside_nucleus(tokens_R: Tensor, probs_RV: Tensor, bits_R: Tensor, top_p: float) -> None:
    """Replace, in place, tokens outside the nucleus by draws from it.

    The nucleus holds every token whose strictly more probable tokens sum to less than `top_p`; ties share a
    fate. Rejection needs no sort over the vocabulary (as in FlashInfer): whatever is not more probable than
    a rejected token is outside too, so each redraw is from fewer tokens and the result is exact.
    """
    rows = torch.arange(len(tokens_R), device=tokens_R.device)
    probs, bits, tokens = probs_RV, bits_R, tokens_R
    attempt = 0
    while True:
        above = torch.where(probs > probs.gather(-1, tokens[:, None]), probs, 0.0)
        outside = above.sum(-1, dtype=torch.float64) >= top_p
        if not outside.any():
            return
        attempt += 1
        rows, probs, bits = rows[outside], above[outside], bits[outside]
        tokens = _inverse_cdf(probs, absorb(bits, attempt))
        tokens_R[rows] = tokens
