import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.learn import linear as fast
from prorl.learn.linear import FEW_ROWS, FEWEST_ROWS, LARGE, ROWS, filled, linear, padded, prepared


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_values_and_gradients_are_those_of_torch(rows, inner, outer, biased):
    def computed(function):
        given = [random(rows, inner), random(outer, inner, seed=1), random(outer, seed=2)][: 2 + biased]
        given = [one.requires_grad_() for one in given]
        result = function(*given)
        return [result, *torch.autograd.grad((result * random(*result.shape, seed=3)).sum(), given)]

    for ours, theirs in zip(computed(linear), computed(F.linear), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_prepared_weights_give_a_row_the_bits_that_it_has_alone(wide, biased, monkeypatch):
    monkeypatch.setattr(fast, "_wide", lambda: wide)  # with AVX2 by oneDNN where the matrix is large
    for inner, outer in [(16, 24), (256, LARGE // 256)]:
        weight, bias = random(outer, inner), random(outer, seed=1) if biased else None
        multiply, x = prepared(weight, bias), random(5 * ROWS, inner, seed=2)
        whole = multiply(x)
        torch.testing.assert_close(whole, F.linear(x, weight, bias), rtol=1e-4, atol=1e-4)
        for rows in range(FEWEST_ROWS, FEW_ROWS + 1, FEWEST_ROWS):
            assert torch.equal(multiply(x[:rows]), whole[:rows])


@pytest.mark.skipif(not (fast._onednn() and fast._wide()), reason="another processor")
def test_prepared_weights_give_the_bits_of_linear():
    for inner, outer in [(128, 465), (128, 128), (384, 128)]:
        weight, bias = random(outer, inner), random(outer, seed=1)
        for rows in (4, 16, 48, 640):  # of few rows by the one whose calls take less time
            x = random(rows, inner, seed=2)
            assert torch.equal(prepared(weight, None)(x), linear(x, weight))
            assert torch.equal(prepared(weight, bias)(x), linear(x, weight, bias))


@pytest.mark.skipif(fast._onednn() is None, reason="another processor")
def test_a_row_has_the_same_bits_whatever_the_rows_beside_it():
    for inner, outer in [(128, 465), (384, 128), (1024, 96)]:
        x, weight = random(200, inner), random(outer, inner, seed=1)
        whole = linear(x, weight)
        fewest = 1 if fast._wide() else FEWEST_ROWS  # of torch's own product
        for rows in range(fewest, 200, 7):
            assert torch.equal(linear(x[:rows], weight), whole[:rows])


def test_a_frozen_weight_gets_no_gradient_and_an_input_may_need_none():
    weight = random(3, 5)
    x = random(4, 5, seed=1).requires_grad_()
    linear(x, weight).sum().backward()
    assert weight.grad is None
    torch.testing.assert_close(x.grad, weight.sum(0).expand(4, 5))
    weight.requires_grad_()
    linear(x.detach(), weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.detach().sum(0).expand(3, 5))


def test_without_onednn_torch_itself_multiplies(monkeypatch):
    monkeypatch.setattr(fast, "_onednn", lambda: None)
    x, weight = random(7, 5), random(3, 5, seed=1)
    assert torch.equal(linear(x, weight), F.linear(x, weight))


def test_autocast_and_other_types_are_left_to_torch():
    x, weight = random(7, 5), random(3, 5, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    assert torch.equal(linear(x.double(), weight.double()), F.linear(x.double(), weight.double()))


def test_rows_are_filled_up_with_zeros():
    assert [filled(rows) for rows in (1, 4, 5, 64, 65, 80, 81)] == [4, 4, 8, 64, 80, 80, 96]
    for shape in [(ROWS,), (ROWS + 1,), (3, 2), (FEW_ROWS + 1, 2, 4)]:
        x = random(*shape)
        whole = padded(x)
        assert len(whole) == filled(len(x))
        assert torch.equal(whole[: len(x)], x)
        assert not whole[len(x) :].any()


WITH_AVX2 = """
import torch
from prorl.learn import linear

for inner, outer in [(128, 465), (384, 128), (1024, 256)]:
    x, weight = torch.randn(200, inner), torch.randn(outer, inner)
    whole = torch.nn.functional.linear(x, weight)
    for rows in range(linear.FEWEST_ROWS, 200, linear.FEWEST_ROWS):
        assert torch.equal(torch.nn.functional.linear(x[:rows], weight), whole[:rows]), rows
"""


def test_so_has_one_by_torch_on_a_processor_of_intel_without_avx512():
    """As every other processor of theirs computes; MKL looks at this variable there only."""
    here = {"PYTHONPATH": ":".join(sys.path), "MKL_ENABLE_INSTRUCTIONS": "AVX2", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", WITH_AVX2], env=here, check=True)
