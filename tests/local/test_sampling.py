"""Random numbers are those of (seed, sample, position); sampled tokens follow the promised distribution."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prorl.local.engine import absorb, draw, row_keys, token_logps, uniform
from prorl.types import Sampling

CPU = torch.device("cpu")
DRAWS = 20_000


def splitmix64(state: int) -> int:
    """The published reference, in Python integers."""
    mask = (1 << 64) - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def sample(
    logits: torch.Tensor, *, temperature: float = 1.0, top_p: float = 1.0, seed: int = 0
) -> torch.Tensor:
    keys = row_keys([seed] * DRAWS, range(DRAWS), CPU)
    sampling = Sampling(temperature=temperature, top_p=top_p, limit=1)
    return draw(logits.expand(DRAWS, -1), keys, 0, sampling)[0]


def chi_square(tokens: torch.Tensor, probs: torch.Tensor) -> float:
    expected = probs.double() * len(tokens)
    counts = torch.bincount(tokens, minlength=len(probs))
    return float(((counts - expected) ** 2 / expected)[probs > 0].sum())


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**20))
def test_absorb_is_splitmix64_at_a_counter(key: int, counter: int) -> None:
    expected = splitmix64(key + counter * 0x9E3779B97F4A7C15)
    keys = torch.tensor([key])
    assert absorb(keys, counter).item() % 2**64 == expected
    assert absorb(keys, torch.tensor([counter])).item() % 2**64 == expected


def test_uniform_covers_the_half_open_unit_interval() -> None:
    extremes = uniform(torch.tensor([0, -1]))
    assert extremes[0] == 0.0
    assert 1.0 - 2.0**-52 < extremes[1] < 1.0
    values = uniform(absorb(row_keys(range(10_000), [0] * 10_000, CPU), 3))
    assert values.mean().item() == pytest.approx(0.5, abs=0.01)
    assert values.var().item() == pytest.approx(1 / 12, abs=0.003)


def test_keys_differ_between_seeds_and_samples_and_accept_any_64_bits() -> None:
    keys = row_keys([0, 0, 1, 1, 2**63, 2**64 - 1], [0, 1, 0, 1, 0, 0], CPU)
    assert len(set(keys.tolist())) == 6


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_follow_the_tempered_softmax(temperature: float) -> None:
    logits = torch.tensor([1.0, -0.5, 0.3, 2.0, -2.0, 0.0])
    tokens = sample(logits, temperature=temperature)
    # 5 degrees of freedom: 25 is exceeded by chance once in seven thousand
    assert chi_square(tokens, torch.softmax(logits / temperature, -1)) < 25.0


def test_neighbouring_samples_are_independent() -> None:
    tokens = sample(torch.zeros(4))
    pairs = tokens[:-1] * 4 + tokens[1:]
    assert chi_square(pairs, torch.full((16,), 1 / 16)) < 45.0


def test_top_p_draws_from_the_renormalised_nucleus_only() -> None:
    probs = torch.tensor([0.05, 0.4, 0.1, 0.3, 0.15])
    tokens = sample(probs.log(), top_p=0.8)
    nucleus = torch.tensor([0.0, 0.4, 0.0, 0.3, 0.15]) / 0.85
    assert set(tokens.tolist()) == {1, 3, 4}
    assert chi_square(tokens, nucleus) < 20.0


def test_a_small_top_p_leaves_the_most_probable_tokens_ties_included() -> None:
    assert set(sample(torch.tensor([0.0, 3.0, 1.0]), top_p=0.01).tolist()) == {1}
    assert set(sample(torch.tensor([2.0, 0.0, 2.0]), top_p=0.1).tolist()) == {0, 2}


def test_log_probs_are_of_the_untruncated_tempered_distribution() -> None:
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(0))
    keys = row_keys(range(50), [0] * 50, CPU)
    tokens, logps = draw(logits, keys, 5, Sampling(temperature=0.7, top_p=0.5, limit=1))
    torch.testing.assert_close(logps, token_logps(logits / 0.7, tokens), atol=1e-6, rtol=1e-6)


def test_temperature_zero_takes_the_most_probable_token() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0], [1.0, 3.0, 3.0]])  # the first of equals
    tokens, logps = draw(
        logits, row_keys([0, 0, 0], [0, 1, 2], CPU), 0, Sampling(temperature=0.0, top_p=0.5, limit=1)
    )
    assert tokens.tolist() == [1, 0, 1]
    torch.testing.assert_close(logps, torch.log_softmax(logits, -1).amax(-1))


def test_an_impossible_token_is_never_drawn() -> None:
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf])
    assert set(sample(logits).tolist()) == {1, 3}
