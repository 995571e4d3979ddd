import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.kl_to_reference import kl_penalty

logits = st.lists(st.floats(-2, 2), min_size=6, max_size=6)
log_ratios = st.floats(-9, 9)


def vocabulary(policy_logits, ref_logits):
    """A whole small vocabulary: every token once, so that averages over the policy are exact sums."""
    theta = torch.tensor(policy_logits, dtype=torch.float64, requires_grad=True)
    return theta, theta.log_softmax(0), torch.tensor(ref_logits, dtype=torch.float64).log_softmax(0)


def expected_gradient(theta, logp, per_token):
    """Gradient of the penalty averaged over samples of the policy, which are not differentiated."""
    (gradient,) = torch.autograd.grad((logp.exp().detach() * per_token).sum(), theta, retain_graph=True)
    return gradient


def divergence_gradient(theta, value):
    (gradient,) = torch.autograd.grad(value, theta, retain_graph=True)
    return gradient


def reverse_kl(logp, ref):
    return (logp.exp() * (logp - ref)).sum()


def forward_kl(logp, ref):
    return (ref.exp() * (ref - logp)).sum()


@pytest.mark.parametrize(("estimator", "divergence"), [("k2", reverse_kl), ("k3", forward_kl)])
@given(policy_logits=logits, ref_logits=logits)
def test_as_a_loss_k2_follows_the_reverse_kl_and_k3_the_forward(
    estimator, divergence, policy_logits, ref_logits
):
    theta, logp, ref = vocabulary(policy_logits, ref_logits)
    got = expected_gradient(theta, logp, kl_penalty(logp, ref, estimator=estimator))
    torch.testing.assert_close(got, divergence_gradient(theta, divergence(logp, ref)), atol=1e-12, rtol=1e-9)


@given(st.lists(log_ratios, min_size=1))
def test_equals_the_slow_formula(ratios):
    d = torch.tensor(ratios, dtype=torch.float64)
    ref = torch.full_like(d, -3.0)
    assert kl_penalty(d + ref, ref, estimator="k2").tolist() == pytest.approx([x * x / 2 for x in ratios])
    assert kl_penalty(d + ref, ref, estimator="k3").tolist() == pytest.approx(
        [math.exp(-x) - 1 + x for x in ratios], abs=1e-9
    )


@pytest.mark.parametrize(("estimator", "value"), [("k2", 50.0), ("k3", math.exp(-10) + 9)])
def test_the_log_ratio_is_clamped_and_its_gradient_ends_there(estimator, value):
    logp = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-500.0, -2.0], dtype=torch.float64, requires_grad=True)
    penalty = kl_penalty(logp, ref, estimator=estimator)
    penalty.sum().backward()
    assert penalty[0].item() == pytest.approx(value)
    assert logp.grad[0].item() == 0
    assert logp.grad[1].item() != 0
    assert ref.grad is None
