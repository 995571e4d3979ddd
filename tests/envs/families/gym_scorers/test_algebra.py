"""Polynomials are equal when their coefficients are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families.gym_scorers.algebra import coefficients, polynomial

X, ONE = (("x", 1),), ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2*x - 3 + x", {X: 3, ONE: -3}),
        ("-x**2*y*3", {(("x", 2), ("y", 1)): -3}),
        ("x*x", {(("x", 2),): 1}),
        ("x - x", {}),
        ("0", {}),
        ("x**0", {ONE: 1}),
    ],
)
def test_coefficients_are_collected(text, expected):
    assert coefficients(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x^2",
        "2x",
        "x+",
        "(x+1)*(x-1)",
        "x**-1",
        "x/2",
        "1.5*x",
        "x**1000",
        "--x",
        "x y",
        "9" * 31,
        "exit()",
    ],
)
def test_what_is_no_expanded_polynomial_is_refused(text):
    assert coefficients(text) is None


def test_the_product_must_be_multiplied_out():
    entry = {"answer": "x**2 - 1"}
    assert polynomial(entry, "-1 + x*x") == 1.0
    assert polynomial(entry, "(x + 1)*(x - 1)") == 0.0
    assert polynomial(entry, "x**2 + 1") == 0.0


@given(st.dictionaries(st.integers(0, 9), st.integers(-99, 99).filter(bool), min_size=1))
def test_a_written_polynomial_is_read_back(terms):
    text = " + ".join(f"{value}*x**{power}" for power, value in terms.items()).replace("+ -", "- ")
    assert coefficients(text) == {((("x", power),) if power else ()): value for power, value in terms.items()}


@given(st.text("xy0123456789*+- ()", max_size=60))
def test_no_text_breaks_the_reader(text):
    assert polynomial({"answer": "x"}, text) in (0.0, 1.0)
