import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.pass_at_k import pass_at_k


@st.composite
def problems(draw):
    n = draw(st.integers(1, 600))
    return n, draw(st.integers(0, n)), draw(st.integers(1, n))


@given(problems())
def test_equals_the_product_form(problem):
    n, c, k = problem
    product = math.prod(Fraction(i - k, i) for i in range(n - c + 1, n + 1)) if n - c >= k else Fraction(0)
    assert pass_at_k(n, c, k) == float(1 - product)


def test_large_numbers_lose_nothing():
    assert pass_at_k(100_000, 1, 1) == 1e-5
    assert pass_at_k(100_000, 1, 50_000) == 0.5
    assert pass_at_k(512, 256, 256) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5), (0, 0, 1)])
def test_nonsense_is_refused(n, c, k):
    with pytest.raises(ValueError, match=r"passes must|needs k"):
        pass_at_k(n, c, k)
