"""Conclusions are judged by truth tables over the question's own variables."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families.gym_scorers.formula import conclusion, consistent, parse

VARIABLES = ["P", "Q", "R"]


def given_that(*premises):
    return {"answer": None, "metadata": {"premises": list(premises), "variables": VARIABLES}}


def truths(formula):
    return [formula(dict(zip(VARIABLES, row, strict=True))) for row in product((False, True), repeat=3)]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("P ∧ Q ∨ R", lambda p, q, r: (p and q) or r),
        ("P → Q → R", lambda p, q, r: not (not p or q) or r),
        ("P ↔ Q ∧ R", lambda p, q, r: p == (q and r)),
        ("¬P ∨ ¬(Q ∧ R)", lambda p, q, r: not p or not (q and r)),
        ("¬¬P", lambda p, q, r: p),
        ("((P))", lambda p, q, r: p),
    ],
)
def test_operators_bind_as_in_the_library(text, meaning):
    assert truths(parse(text, VARIABLES)) == [meaning(*row) for row in product((False, True), repeat=3)]


@pytest.mark.parametrize(
    "text",
    ["", "P Q", "(P", "P)", "P ∧", "∧ P", "S", "p", "P & Q", "()", "¬", "P" * 201, "(" * 150, "¬" * 190],
)
def test_what_is_no_formula_is_refused(text):
    assert parse(text, VARIABLES) is None


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("P → R", 1.0),
        ("¬R → ¬P", 1.0),
        ("R → P", 0.0),
        ("P ∨ ¬P", 0.0),  # true, and says nothing
        ("x1 ∨ x2", 0.0),
        ("", 0.0),
    ],
)
def test_a_conclusion_follows_and_says_something(answer, score):
    assert conclusion(given_that("(P → Q)", "(Q → R)"), answer) == score


def test_a_bare_variable_is_no_conclusion():
    assert conclusion(given_that("P"), "(P)") == 0.0
    assert conclusion(given_that("P"), "P ∨ Q") == 1.0


def test_contradictory_premises_are_known():
    assert consistent(given_that("P", "Q"))
    assert not consistent(given_that("P", "¬P"))


@given(st.text("PQR()¬∧∨→↔ ", max_size=40))
def test_no_text_breaks_the_parser(text):
    assert conclusion(given_that("(P → Q)"), text) in (0.0, 1.0)
