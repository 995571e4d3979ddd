import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.mismatch_correction import MOST, POSITIONS, mismatch

KINDS = ["none", "tis", "icepop", "sequence_mask"]
# Eighths are exact, and no mean of eighths is the logarithm of a bound below: rounding cannot decide a test.
token = st.tuples(st.integers(-16, 16).map(lambda eighths: eighths / 8), st.booleans())  # log w, mask
lows, highs = st.sampled_from([0.0, 0.3, 0.77, 0.999]), st.sampled_from([1.002, 1.3, 2.0, 5.0, math.inf])


@st.composite
def rollouts_BT(draw):
    width = draw(st.integers(1, 5))
    return draw(st.lists(st.lists(token, min_size=width, max_size=width), min_size=1, max_size=4))


def tensors(rows):
    log_w = torch.tensor([[w for w, _ in row] for row in rows], dtype=torch.float64)
    engine = torch.full_like(log_w, -1.5)
    return engine + log_w, engine, torch.tensor([[m for _, m in row] for row in rows])


def slow_weights(rows, kind, low, high):
    """Weights and the tokens out of bounds, by the definition."""
    weights, outside = [], 0
    for row in rows:
        logs = [log_w for log_w, mask in row if mask]
        mean_w = math.exp(sum(logs) / max(len(logs), 1))
        for log_w, mask in row:
            w = math.exp(log_w)
            judged = mean_w if kind == "sequence_mask" else w
            out = judged > high if kind == "tis" else not low <= judged <= high
            value = {"none": 1.0, "tis": min(w, high)}.get(kind, 0.0 if out else w)
            weights.append(value if mask else 0.0)
            outside += out and mask
    return weights, outside


@given(rollouts_BT(), st.sampled_from(KINDS), lows, highs)
def test_equals_the_slow_formula(rows, kind, low, high):
    got = mismatch(*tensors(rows), kind=kind, low=low, high=high)
    weights, outside = slow_weights(rows, kind, low, high)
    masked = [log_w for row in rows for log_w, mask in row if mask]
    assert got.weights.flatten().tolist() == pytest.approx(weights)
    assert (got.out_of_bounds.item(), got.tokens.item()) == (outside, len(masked))
    assert got.abs_log_w.item() == pytest.approx(sum(map(abs, masked)))


def test_an_engine_that_errs_at_long_positions_only_is_told_where():
    log_w = torch.zeros(2, POSITIONS[2] + 8)
    log_w[:, POSITIONS[2] :] = math.log(1.5)
    log_w[1, POSITIONS[2] :] *= -1
    log_w[0, 0] = 1000.0
    mask = torch.ones_like(log_w, dtype=torch.bool)
    mask[1, 10:] = False
    found = mismatch(log_w, torch.zeros_like(log_w), mask, kind="none", low=0.5, high=2.0)
    assert found.counts.tolist() == [1024 + 10, 1024, 8, 0, 0]
    assert found.factors.tolist() == pytest.approx([1033 + math.exp(MOST), 1024, 8 * 1.5, 0, 0])


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        ("tis", 0.5, 2.0, [0.25, 1, 2, 1, 1.5, 0]),
        ("icepop", 0.5, 5.0, [0, 1, 4, 1, 1.5, 0]),
        # Geometric means 1 and sqrt(1.5) = 1.22: the first rollout stays whole, extreme tokens included.
        ("sequence_mask", 0.9, 1.1, [0.25, 1, 4, 0, 0, 0]),
    ],
)
def test_worked_numbers(kind, low, high, expected):
    w = torch.tensor([[0.25, 1.0, 4.0], [1.0, 1.5, 8.0]], dtype=torch.float64)
    engine, mask = torch.full_like(w, -2.0), torch.tensor([[True] * 3, [True, True, False]])
    got = mismatch(engine + w.log(), engine, mask, kind=kind, low=low, high=high)
    assert got.weights.flatten().tolist() == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_values_outside_the_mask_are_ignored_even_if_not_finite(kind):
    learner = torch.tensor([[-1.0, -math.inf, math.nan]], requires_grad=True)
    engine = torch.tensor([[-1.0, -math.inf, 0.0]])
    mask = torch.tensor([[True, False, False]])
    got = mismatch(learner, engine, mask, kind=kind, low=0.5, high=2.0)
    assert got.weights.tolist() == [[1, 0, 0]]
    assert (got.tokens.item(), got.abs_log_w.item(), got.out_of_bounds.item()) == (1, 0, 0)
    assert not got.weights.requires_grad
