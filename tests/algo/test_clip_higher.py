import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from prorl.algo.clip_higher import policy_loss

DAPO = {"clip_low": 0.2, "clip_high": 0.28}

# logp, old_logp, advantage, mask, weight
token = st.tuples(st.floats(-3, 0), st.floats(-3, 0), st.floats(-2, 2), st.booleans(), st.floats(0, 2))
tokens = st.lists(token, min_size=1, max_size=12)


def tensors(rows):
    logp, old, advantage, mask, weight = zip(*rows, strict=True)
    double = torch.float64
    logp = torch.tensor(logp, dtype=double, requires_grad=True)
    rest = [torch.tensor(values, dtype=double) for values in (old, advantage, weight)]
    return logp, rest[0], rest[1], torch.tensor(mask), rest[2]


def lose(logp, old, advantages, mask, weights=None, *, dual_clip=None, denominator=None, **bounds):
    """Loss and clipped tokens, by default without weights and over these tokens alone."""
    weights = torch.ones_like(logp) if weights is None else weights
    denominator = denominator or max(int(mask.sum()), 1)
    options = {"dual_clip": dual_clip, "weights": weights, "denominator": denominator, **bounds}
    return policy_loss(logp, old, advantages, mask, **options)


def one(ratio, advantage, **bounds):
    """Loss, gradient and clip of a single token. A hair inside the bound, so that exp(log(x)) is not beyond it."""
    log_ratio = math.log(ratio) - math.copysign(1e-12, math.log(ratio))
    logp, old, advantages, mask, _ = tensors([(log_ratio, 0.0, advantage, True, 1.0)])
    loss, clipped = lose(logp, old, advantages, mask, **bounds)
    loss.backward()
    return loss.item(), logp.grad.item(), clipped.item()


def slow_loss(rows, *, clip_low, clip_high, dual_clip):
    total, count, clipped = 0.0, 0, 0
    for logp, old, advantage, mask, weight in rows:
        if not mask:
            continue
        ratio = math.exp(logp - old)
        value = plain = ratio * advantage
        value = min(value, min(max(ratio, 1 - clip_low), 1 + clip_high) * advantage)
        if dual_clip is not None and advantage < 0:
            value = max(value, dual_clip * advantage)
        total -= value * weight
        count += 1
        clipped += value != plain
    return total / max(count, 1), clipped


@given(tokens, st.floats(0, 1), st.floats(0, 1) | st.just(math.inf), st.none() | st.floats(1.1, 4))
@example([(-0.5, -3.0, 1.0, True, 1.0), (-3.0, -0.5, -1.0, True, 1.0)], 1.0, math.inf, None)  # the off values
def test_equals_the_slow_formula_in_any_shape(rows, low, high, dual_clip):
    bounds = {"clip_low": low, "clip_high": high, "dual_clip": dual_clip}
    loss, clipped = lose(*tensors(rows), **bounds)
    assert (loss.item(), clipped.item()) == pytest.approx(slow_loss(rows, **bounds), abs=1e-12)
    square = [values.reshape(1, -1, 1) for values in tensors(rows)]
    torch.testing.assert_close(lose(*square, **bounds)[0], loss)


@given(tokens, st.data())
def test_any_cut_into_micro_batches_gives_the_same_loss_gradient_and_clips(rows, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    args = tensors(rows)
    shared = {"denominator": max(int(args[3].sum()), 1), "dual_clip": 3.0, **DAPO}
    whole, clipped = lose(*args, **shared)
    parts = [
        lose(*(values[start:stop] for values in args), **shared)
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True)
    ]
    total = sum(loss for loss, _ in parts)
    torch.testing.assert_close(total, whole)
    torch.testing.assert_close(torch.autograd.grad(total, args[0]), torch.autograd.grad(whole, args[0]))
    assert sum(part.item() for _, part in parts) == clipped.item()


@given(tokens)
def test_on_policy_the_gradient_is_reinforce_whatever_the_bounds(rows):
    logp, _, advantages, mask, weights = tensors(rows)
    loss, _ = lose(logp, logp, advantages, mask, weights, dual_clip=3.0, **DAPO)
    (gradient,) = torch.autograd.grad(loss, logp)
    torch.testing.assert_close(gradient, -advantages * weights * mask / max(int(mask.sum()), 1))


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
    got, gradient, count = one(ratio, advantage, **DAPO)
    assert (got, count) == (pytest.approx(loss), clipped)
    assert (gradient == 0) == (clipped == 1 or advantage == 0)


def test_values_outside_the_mask_are_ignored_even_if_not_finite():
    bad = [-math.inf, math.nan, math.inf]
    logp = torch.tensor([-1.0, *bad], requires_grad=True)
    junk = torch.tensor([1.0, *bad])
    mask = torch.tensor([True, False, False, False])
    loss, clipped = lose(logp, torch.tensor([-1.0, *bad]), junk, mask, junk, **DAPO)
    loss.backward()
    assert (loss.item(), clipped.item()) == (-1.0, 0)
    assert logp.grad.tolist() == [-1.0, 0.0, 0.0, 0.0]


def test_gradients_flow_into_logp_alone():
    leaves = [torch.zeros(2, requires_grad=True) for _ in range(4)]
    loss, clipped = lose(*leaves[:3], torch.tensor([True, True]), leaves[3], **DAPO)
    loss.backward()
    assert [leaf.grad is None for leaf in leaves] == [False, True, True, True]
    assert not clipped.requires_grad


@pytest.mark.parametrize("at", range(1, 5))
def test_nothing_is_broadcast(at):
    args = [torch.zeros(2), torch.zeros(2), torch.zeros(2), torch.tensor([True, True]), torch.zeros(2)]
    args[at] = args[at][:1]
    with pytest.raises(ValueError, match="share one shape"):
        lose(*args, **DAPO)
