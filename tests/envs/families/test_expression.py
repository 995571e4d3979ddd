"""Expressions: hand-worked values, the exact grammar, and agreement with an independent printer of trees."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families.expression import MAX_EXPRESSION_CHARS, evaluate, tokenise


def value(text):
    tokens = tokenise(text)
    return None if tokens is None else evaluate(tokens)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("2+3*4", 14),
        ("(2+3)*4", 20),
        ("10-4-3", 3),
        ("24/4/3", 2),
        ("24/(4/3)", 18),
        ("1/3*3", 1),
        ("8/(3-8/3)", 24),
        ("((5))", 5),
        (" 2 * ( 3 + 4 ) ", 14),
        ("2-5", -3),
        ("7/2", Fraction(7, 2)),
    ],
)
def test_values_by_hand(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "+", "1+", "+1", "-1", "1+-2", "2 3", "(1", "1)", "()", "(1+)2", "2(3)", "(2)(3)", "(2)3"),
        *("1//2", "2**3", "04+1", "0", "1.5", "1e3", "x", "1=1", "5/(3-3)", "5/(3-3)*2", "٣+1", "1_0"),
        "12345",
    ],
)
def test_what_is_no_expression_has_no_value(text):
    assert value(text) is None


def test_long_answers_are_refused_before_any_work():
    assert tokenise("1" + "+1" * 49) is not None
    assert tokenise("(" * 10_000) is None
    assert tokenise(" " * (MAX_EXPRESSION_CHARS + 1)) is None


@given(st.one_of(st.text(), st.text(alphabet="0123456789+-*/() ", max_size=30)))
def test_never_raises(text):
    assert value(text) is None or isinstance(value(text), Fraction)


def grow(trees):
    return st.tuples(trees, st.sampled_from("+-*/"), trees)


def show(tree):
    return str(tree) if isinstance(tree, int) else f"({show(tree[0])}{tree[1]}{show(tree[2])})"


def compute(tree):
    if isinstance(tree, int):
        return Fraction(tree)
    left, right = compute(tree[0]), compute(tree[2])
    if left is None or right is None:
        return None
    if tree[1] == "/":
        return left / right if right else None
    return {"+": left + right, "-": left - right, "*": left * right}[tree[1]]


@given(st.recursive(st.integers(1, 30), grow, max_leaves=8))
def test_agrees_with_the_tree_that_was_printed(tree):
    assert value(show(tree)) == compute(tree)
