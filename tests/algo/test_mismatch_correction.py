import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.mismatch_correction import importance_weights, mismatch_stats

KINDS = ["none", "tis", "icepop", "sequence_mask"]
# Eighths are exact, and no mean of eighths is the logarithm of a bound below: rounding cannot decide a test.
token = st.tuples(st.integers(-16, 16).map(lambda eighths: eighths / 8), st.booleans())  # log w, mask
lows, highs = st.sampled_from([0.0, 0.3, 0.77, 0.999]), st.sampled_from([1.002, 1.3, 2.0, 5.0])


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
    got = importance_weights(*tensors(rows), kind=kind, low=low, high=high)
    stats = mismatch_stats(*tensors(rows), kind=kind, low=low, high=high)
    weights, outside = slow_weights(rows, kind, low, high)
    masked = [log_w for row in rows for log_w, mask in row if mask]
    assert got.flatten().tolist() == pytest.approx(weights)
    assert stats.out_of_bounds.item() == outside
    assert stats.tokens.item() == len(masked)
    assert stats.abs_log_w.item() == pytest.approx(sum(map(abs, masked)))


@given(rollouts_BT())
def test_off_value_none_weighs_every_action_token_alike(rows):
    learner, engine, mask = tensors(rows)
    got = importance_weights(learner, engine, mask, kind="none", low=0.5, high=2.0)
    assert torch.equal(got, mask.to(learner.dtype))


@given(rollouts_BT(), st.sampled_from(KINDS))
def test_engine_and_learner_that_agree_need_no_correction(rows, kind):
    learner, _, mask = tensors(rows)
    got = importance_weights(learner, learner, mask, kind=kind, low=0.5, high=2.0)
    assert torch.equal(got, mask.to(learner.dtype))
    assert mismatch_stats(learner, learner, mask, kind=kind, low=0.5, high=2.0).out_of_bounds.item() == 0


@given(rollouts_BT(), st.sampled_from(["tis", "icepop", "sequence_mask"]))
def test_bounds_that_hold_everything_leave_plain_importance_sampling(rows, kind):
    learner, engine, mask = tensors(rows)
    got = importance_weights(learner, engine, mask, kind=kind, low=0.0, high=math.inf)
    torch.testing.assert_close(got, (learner - engine).exp() * mask)


def test_worked_numbers():
    w = torch.tensor([[0.25, 1.0, 4.0], [1.0, 1.5, 8.0]], dtype=torch.float64)
    engine, mask = torch.full_like(w, -2.0), torch.tensor([[True] * 3, [True, True, False]])
    learner = engine + w.log()

    def weights(kind, low, high):
        return importance_weights(learner, engine, mask, kind=kind, low=low, high=high).flatten().tolist()

    assert weights("tis", 0.5, 2.0) == pytest.approx([0.25, 1, 2, 1, 1.5, 0])
    assert weights("icepop", 0.5, 5.0) == pytest.approx([0, 1, 4, 1, 1.5, 0])
    # Geometric means 1 and sqrt(1.5) = 1.22: the first rollout stays whole, extreme tokens included.
    assert weights("sequence_mask", 0.9, 1.1) == pytest.approx([0.25, 1, 4, 0, 0, 0])


@pytest.mark.parametrize("kind", ["none", "tis", "icepop"])
def test_tokens_may_come_flat(kind):
    learner, engine, mask = tensors([[(0.9, True), (-0.2, True)], [(-1.5, True), (0.4, False)]])
    square = importance_weights(learner, engine, mask, kind=kind, low=0.5, high=2.0)
    flat = importance_weights(
        learner.flatten(), engine.flatten(), mask.flatten(), kind=kind, low=0.5, high=2.0
    )
    assert torch.equal(flat, square.flatten())


@pytest.mark.parametrize("kind", KINDS)
def test_values_outside_the_mask_are_ignored_even_if_not_finite(kind):
    learner = torch.tensor([[-1.0, -math.inf, math.nan]])
    engine = torch.tensor([[-1.0, -math.inf, 0.0]])
    mask = torch.tensor([[True, False, False]])
    assert importance_weights(learner, engine, mask, kind=kind, low=0.5, high=2.0).tolist() == [[1, 0, 0]]
    stats = mismatch_stats(learner, engine, mask, kind=kind, low=0.5, high=2.0)
    assert (stats.tokens.item(), stats.abs_log_w.item(), stats.out_of_bounds.item()) == (1, 0, 0)


def test_weights_are_constants():
    learner = torch.zeros(1, 2, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    got = importance_weights(learner, torch.ones(1, 2), mask, kind="tis", low=0.0, high=2.0)
    assert not got.requires_grad


@pytest.mark.parametrize("call", [importance_weights, mismatch_stats])
def test_bad_input_is_refused(call):
    row, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    bounds = {"low": 0.5, "high": 2.0}
    with pytest.raises(ValueError, match="share one shape"):
        call(row, torch.zeros(2), mask, kind="tis", **bounds)
    with pytest.raises(ValueError, match="bool"):
        call(row, row, torch.ones(1, 2), kind="tis", **bounds)
    with pytest.raises(ValueError, match="unknown mismatch correction 'clip'"):
        call(row, row, mask, kind="clip", **bounds)
    with pytest.raises(ValueError, match="0 <= low <= high"):
        call(row, row, mask, kind="icepop", low=2.0, high=0.5)
    with pytest.raises(ValueError, match=r"\[B, T\]"):
        call(row[0], row[0], mask[0], kind="sequence_mask", **bounds)
