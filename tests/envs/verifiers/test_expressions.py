"""Expressions: hand-worked values and the exact grammars; `test_fuzz.py` tries texts of any kind."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.verifiers.expressions import coefficients, is_antiderivative, reaches, truth
from support.timing import cpu_seconds

GAME = [73, 85, 1, 42, 14, 49]


@pytest.mark.parametrize(("text", "numbers", "value"), [
    ("7", [7], 7), ("2+3*4", [2, 3, 4], 14), ("(2+3)*4", [2, 3, 4], 20), ("10-4-3", [3, 4, 10], 3),
    ("24/4/3", [3, 4, 24], 2), ("24/(4/3)", [3, 4, 24], 18), ("1/3*3", [3, 1, 3], 1), ("8/(3-8/3)", [3, 3, 8, 8], 24),
    ("((5))", [5], 5), (" 2 * ( 3 + 4 ) ", [2, 3, 4], 14), ("2-5", [2, 5], -3), ("7/2", [2, 7], Fraction(7, 2)),
    ("1" + "+1" * 49, [1] * 50, 50), ("(" * 49 + "1" + ")" * 49, [1], 1), ("49*(85 - 1)/14 - 42 - 73", GAME, 179),
])  # fmt: skip
def test_a_number_game_is_won_by_exact_value_with_each_number_once(text, numbers, value):
    for signed in (False, True):
        assert reaches(text, numbers, value, signed=signed)
        assert not reaches(text, numbers, value + 1, signed=signed)
        assert not reaches(text, [*numbers, 1], value, signed=signed)
        assert not reaches(text, numbers[1:], value, signed=signed)


@pytest.mark.parametrize(
    "text", ["-42 - 73 + 49*(85 - 1)/14", "-(42 + 73) + (49*(85 - 1)/14)", "49*(-1 + 85)/14 + (-42 - 73)"]
)
def test_a_minus_with_nothing_on_its_left_counts_where_signs_do(text):
    assert reaches(text, GAME, 179, signed=True)
    assert not reaches(text, GAME, 179)


@pytest.mark.parametrize("text", [
    "", " ", "+", "-", "1+", "+1", "1+-2", "--1", "2 3", "(1", "1)", "()", "(1+)2", "2(3)", "(2)(3)", "(2)3", "1//2",
    "2**3", "04+1", "0", "1.5", "1e3", "x", "1=1", "5/(3-3)", "5/(3-3)*2", "٣+1", "1_0", "12345", "9**9**9**9",
    "__import__('os').system('true')", "(" * 10_000, " " * 101, "1" + "+1" * 50,
])  # fmt: skip
def test_what_is_no_expression_wins_nothing(text):
    digits = [int(digit) for digit in text if digit in "0123456789"]
    assert not any(reaches(text, digits, value, signed=True) for value in range(-1, 9))


def show(tree):
    return str(tree) if isinstance(tree, int) else f"({show(tree[0])}{tree[1]}{show(tree[2])})"


def leaves(tree):
    return [tree] if isinstance(tree, int) else leaves(tree[0]) + leaves(tree[2])


def compute(tree):
    if isinstance(tree, int):
        return Fraction(tree)
    left, right = compute(tree[0]), compute(tree[2])
    if left is None or right is None or (tree[1] == "/" and right == 0):
        return None
    return {"+": left + right, "-": left - right, "*": left * right, "/": right and left / right}[tree[1]]


@given(
    st.recursive(
        st.integers(1, 30), lambda trees: st.tuples(trees, st.sampled_from("+-*/"), trees), max_leaves=8
    )
)
def test_agrees_with_the_tree_that_was_printed(tree):
    value = compute(tree)
    assert reaches(show(tree), leaves(tree), 0 if value is None else value) == (value is not None)


X, ONE = (("x", 1),), ()


@pytest.mark.parametrize(("text", "expected"), [
    ("2*x - 3 + x", {X: 3, ONE: -3}), ("-x**2*y*3", {(("x", 2), ("y", 1)): -3}), ("x*x", {(("x", 2),): 1}),
    ("x - x", {}), ("0", {}), ("x**0", {ONE: 1}),
])  # fmt: skip
def test_coefficients_are_collected(text, expected):
    assert coefficients(text) == expected


@pytest.mark.parametrize("text", [
    "", "x^2", "2x", "x+", "(x+1)*(x-1)", "x**-1", "x/2", "1.5*x", "x**1000", "--x", "x y", "9" * 31, "exit()",
])  # fmt: skip
def test_what_is_no_expanded_polynomial_is_refused(text):
    assert coefficients(text) is None


@given(st.dictionaries(st.integers(0, 9), st.integers(-99, 99).filter(bool), min_size=1))
def test_a_written_polynomial_is_read_back(terms):
    text = " + ".join(f"{value}*x**{power}" for power, value in terms.items()).replace("+ -", "- ")
    assert coefficients(text) == {((("x", power),) if power else ()): value for power, value in terms.items()}


@pytest.mark.parametrize(("integrand", "text"), [
    ("2*x", "x**2 + C"), ("2*x", "(x + 1)**2 - 2*x"), ("2*x", "x**2 + 7"),
    ("-12*sin(4*x + 2)*cos(4*x + 2)", "-3*sin(4*x + 2)**2/2 + C"),
    ("-12*sin(4*x + 2)*cos(4*x + 2)", "3*cos(4*x + 2)**2/2 + C"),
    ("exp(x)*sin(x)", "exp(x)*sin(x)/2 - exp(x)*cos(x)/2 + C"), ("exp(x)*sin(x)", "E**x*(sin(x) - cos(x))/2"),
    ("log(x)", "x*ln(x) - x + C"), ("-2*asin(3*x)", "-2*x*asin(3*x) - 2*sqrt(1 - 9*x**2)/3 + C"),
    ("-2*atan(2*x)", "-2*x*atan(2*x) + log(4*x**2 + 1)/2 + C"), ("6*sqrt(10 - 4*x)", "-(10 - 4*x)**(3/2) + C"),
    ("-3*x**-4", "x**(-3)"), ("2**x", "2**x/log(2)"), ("cosh(x)", "sinh(x) + C"),
])  # fmt: skip
def test_an_antiderivative_is_right_whatever_its_form(integrand, text):
    assert is_antiderivative(text, integrand, "x")


@pytest.mark.parametrize("text", [
    "x**2 + x", "x**2 + \ud800", "2*x", "x**2 + C*x", "Integral(2*x, x)", "x^2", "X**2", "x**2 + C)", "(x**2",
    "x**2 +", "", "C", "nan", "1/0", "log(0)*x", "9**9**9**9", "x" + "**x" * 300, "(" * 900, "-" * 900, "x**2" * 400,
    "__import__('os')", "f(x)",
])  # fmt: skip
def test_what_is_no_antiderivative(text):
    assert not is_antiderivative(text, "2*x", "x")


def test_the_variable_of_an_integral_is_the_questions():
    assert is_antiderivative("X**2 + C", "2*X", "X")


def test_the_longest_antiderivative_takes_milliseconds():
    longest = "+".join(["sin(x)"] * 140)
    assert cpu_seconds(lambda: is_antiderivative(longest, "2*x", "x"), enough=0.5) < 0.5


WORLDS = [dict(zip("PQR", row, strict=True)) for row in product((False, True), repeat=3)]


@pytest.mark.parametrize(("text", "meaning"), [
    ("P ∧ Q ∨ R", lambda P, Q, R: (P and Q) or R), ("P → Q → R", lambda P, Q, R: not (not P or Q) or R),
    ("P ↔ Q ∧ R", lambda P, Q, R: (Q and R) == P), ("¬P ∨ ¬(Q ∧ R)", lambda P, Q, R: not P or not (Q and R)),
    ("¬¬P", lambda P, Q, R: P), ("((P))", lambda P, Q, R: P), ("¬" * 199 + "P", lambda P, Q, R: not P),
    ("(" * 99 + "P" + ")" * 99, lambda P, Q, R: P),
])  # fmt: skip
def test_operators_of_logic_bind_as_in_the_library(text, meaning):
    assert [truth(text, world) for world in WORLDS] == [meaning(**world) for world in WORLDS]


@pytest.mark.parametrize("text", [
    "", "P Q", "(P", "P)", "P ∧", "∧ P", "S", "p", "P & Q", "()", "¬", "P" * 201, "(" * 200, "¬" * 200,
])  # fmt: skip
def test_what_is_no_formula_of_logic_is_refused(text):
    assert all(truth(text, world) is None for world in WORLDS)
