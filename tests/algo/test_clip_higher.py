import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.clip_higher import policy_loss

DAPO = {"clip_low": 0.2, "clip_high": 0.28}
UNCLIPPED = {"clip_low": 1.0, "clip_high": math.inf}

token = st.tuples(
    st.floats(-3, 0), st.floats(-3, 0), st.floats(-2, 2), st.booleans(), st.floats(0, 2)
)  # logp, old_logp, advantage, mask, weight
tokens = st.lists(token, min_size=1, max_size=12)


def tensors(rows):
    logp, old, advantage, mask, weight = zip(*rows, strict=True)
    double = torch.float64
    return (
        torch.tensor(logp, dtype=double, requires_grad=True),
        torch.tensor(old, dtype=double),
        torch.tensor(advantage, dtype=double),
        torch.tensor(mask),
        torch.tensor(weight, dtype=double),
    )


def one(log_ratio, advantage, **bounds):
    """Loss, gradient and stats of a single token."""
    logp = torch.tensor([log_ratio], dtype=torch.float64, requires_grad=True)
    loss, stats = policy_loss(
        logp,
        torch.zeros(1, dtype=torch.float64),
        torch.tensor([advantage], dtype=torch.float64),
        torch.tensor([True]),
        **bounds,
    )
    loss.backward()
    return loss.item(), logp.grad.item(), stats


def slow_loss(rows, *, clip_low, clip_high, dual_clip=None):
    total, count = 0.0, 0
    for logp, old, advantage, mask, weight in rows:
        if not mask:
            continue
        ratio = math.exp(logp - old)
        value = min(ratio * advantage, min(max(ratio, 1 - clip_low), 1 + clip_high) * advantage)
        if dual_clip is not None and advantage < 0:
            value = max(value, dual_clip * advantage)
        total -= value * weight
        count += 1
    return total / max(count, 1)


@given(tokens, st.floats(0, 1), st.floats(0, 1), st.none() | st.floats(1.1, 4))
def test_equals_the_slow_formula(rows, low, high, dual_clip):
    bounds = {"clip_low": low, "clip_high": high, "dual_clip": dual_clip}
    *args, weights = tensors(rows)
    loss, _ = policy_loss(*args, weights=weights, **bounds)
    assert loss.item() == pytest.approx(slow_loss(rows, **bounds), abs=1e-12)


@given(tokens, st.data())
def test_any_cut_into_micro_batches_gives_the_same_loss_gradient_and_stats(rows, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    logp, old, advantages, mask, weights = tensors(rows)
    denominator = max(int(mask.sum()), 1)
    whole, stats = policy_loss(
        logp, old, advantages, mask, weights=weights, denominator=denominator, dual_clip=3.0, **DAPO
    )
    (gradient,) = torch.autograd.grad(whole, logp)

    parts = []
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        piece = slice(start, stop)
        args = (logp[piece], old[piece], advantages[piece], mask[piece])
        parts.append(
            policy_loss(*args, weights=weights[piece], denominator=denominator, dual_clip=3.0, **DAPO)
        )
    total = sum(loss for loss, _ in parts)
    (summed,) = torch.autograd.grad(total, logp)
    torch.testing.assert_close(total, whole)
    torch.testing.assert_close(summed, gradient)
    assert sum(part.tokens.item() for _, part in parts) == stats.tokens.item()
    assert sum(part.clipped.item() for _, part in parts) == stats.clipped.item()
    assert sum(part.ratio.item() for _, part in parts) == pytest.approx(stats.ratio.item())


@given(tokens)
def test_shape_does_not_matter(rows):
    flat = tensors(rows)[:4]
    square = [values.reshape(1, -1, 1) for values in flat]
    torch.testing.assert_close(policy_loss(*square, **DAPO)[0], policy_loss(*flat, **DAPO)[0])


@given(tokens)
def test_off_value_without_bounds_it_is_plain_importance_sampling(rows):
    logp, old, advantages, mask, _ = tensors(rows)
    loss, stats = policy_loss(logp, old, advantages, mask, **UNCLIPPED)
    plain = -((logp - old).exp() * advantages)[mask].sum() / max(int(mask.sum()), 1)
    torch.testing.assert_close(loss, plain)
    assert stats.clipped.item() == 0


@given(tokens)
def test_on_policy_the_gradient_is_reinforce_whatever_the_bounds(rows):
    logp, _, advantages, mask, weights = tensors(rows)
    loss, stats = policy_loss(logp, logp, advantages, mask, weights=weights, dual_clip=3.0, **DAPO)
    (gradient,) = torch.autograd.grad(loss, logp)
    torch.testing.assert_close(gradient, -advantages * weights * mask / max(int(mask.sum()), 1))
    assert stats.ratio.item() == stats.tokens.item() == int(mask.sum())


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.28, 1.0, -1.28, 0),
        (1.3, 1.0, -1.28, 1),  # raised far enough
        (0.5, 1.0, -0.5, 0),  # may rise without bound from below
        (1.3, -1.0, 1.3, 0),  # may fall
        (0.8, -1.0, 0.8, 0),
        (0.7, -1.0, 0.8, 1),  # lowered far enough
        (9.0, 0.0, 0.0, 0),
    ],
)
def test_worked_numbers(ratio, advantage, loss, clipped):
    # A hair inside the bound, so that exp(log(x)) does not land beyond it.
    got, gradient, stats = one(math.log(ratio) - math.copysign(1e-12, math.log(ratio)), advantage, **DAPO)
    assert got == pytest.approx(loss)
    assert stats.clipped.item() == clipped
    assert (gradient == 0) == (clipped == 1 or advantage == 0)


def test_clip_higher_leaves_more_room_upwards_than_the_symmetric_clip():
    log_ratio = math.log(1.25)
    assert one(log_ratio, 1.0, clip_low=0.2, clip_high=0.2)[1] == 0
    assert one(log_ratio, 1.0, clip_low=0.2, clip_high=0.28)[1] == pytest.approx(-1.25)


def test_dual_clip_bounds_only_negative_advantages():
    far = math.log(8.0)
    assert one(far, -1.0, dual_clip=3.0, **DAPO)[:2] == (3.0, 0.0)
    assert one(far, -1.0, dual_clip=3.0, **DAPO)[2].clipped.item() == 1
    assert one(far, -1.0, **DAPO)[0] == pytest.approx(8.0)
    assert one(far, 1.0, dual_clip=3.0, **DAPO)[0] == pytest.approx(-1.28)
    assert one(math.log(2.0), -1.0, dual_clip=3.0, **DAPO)[0] == pytest.approx(2.0)


def test_values_outside_the_mask_are_ignored_even_if_not_finite():
    bad = [-math.inf, math.nan, math.inf]
    logp = torch.tensor([-1.0, *bad], requires_grad=True)
    junk = torch.tensor([1.0, *bad])
    mask = torch.tensor([True, False, False, False])
    loss, stats = policy_loss(logp, torch.tensor([-1.0, *bad]), junk, mask, weights=junk, **DAPO)
    loss.backward()
    assert loss.item() == -1.0
    assert logp.grad.tolist() == [-1.0, 0.0, 0.0, 0.0]
    assert (stats.tokens.item(), stats.clipped.item(), stats.ratio.item()) == (1, 0, 1.0)


def test_gradients_flow_into_logp_alone_and_stats_are_detached():
    leaves = [torch.zeros(2, requires_grad=True) for _ in range(3)]
    weights = torch.ones(2, requires_grad=True)
    loss, stats = policy_loss(*leaves, torch.tensor([True, True]), weights=weights, **DAPO)
    loss.backward()
    assert [leaf.grad is None for leaf in [*leaves, weights]] == [False, True, True, True]
    assert not stats.ratio.requires_grad


def test_no_action_tokens_is_a_loss_of_zero_with_a_zero_gradient():
    logp = torch.zeros(2, requires_grad=True)
    loss, _ = policy_loss(logp, torch.zeros(2), torch.ones(2), torch.tensor([False, False]), **DAPO)
    loss.backward()
    assert loss.item() == 0
    assert logp.grad.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_low": -0.1}, "clip_low"),
        ({"clip_low": 1.1}, "clip_low"),
        ({"clip_high": -0.1}, "clip_high"),
        ({"clip_high": math.nan}, "clip_high"),
        ({"dual_clip": 1.0}, "dual_clip"),
        ({"denominator": 0}, "denominator"),
    ],
)
def test_senseless_settings_are_refused(change, message):
    zeros = torch.zeros(2)
    with pytest.raises(ValueError, match=message):
        policy_loss(zeros, zeros, zeros, torch.tensor([True, True]), **(DAPO | change))


def test_nothing_is_broadcast_and_the_mask_is_bool():
    zeros, mask = torch.zeros(2), torch.tensor([True, True])
    with pytest.raises(ValueError, match="share one shape"):
        policy_loss(zeros, zeros, torch.zeros(1), mask, **DAPO)
    with pytest.raises(ValueError, match="share one shape"):
        policy_loss(zeros, zeros, zeros, mask, weights=torch.zeros(1), **DAPO)
    with pytest.raises(ValueError, match="bool"):
        policy_loss(zeros, zeros, zeros, torch.ones(2), **DAPO)
