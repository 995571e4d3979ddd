"""An antiderivative is whatever has the integrand as its derivative."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.families.gym_scorers.integral import antiderivative


def entry(integrand, variable="x"):
    return {"answer": "", "metadata": {"integrand": integrand, "variable": variable}}


@pytest.mark.parametrize(
    ("integrand", "answer"),
    [
        ("2*x", "x**2 + C"),
        ("2*x", "(x + 1)**2 - 2*x"),
        ("2*x", "x**2 + 7"),
        ("-12*sin(4*x + 2)*cos(4*x + 2)", "-3*sin(4*x + 2)**2/2 + C"),
        ("-12*sin(4*x + 2)*cos(4*x + 2)", "3*cos(4*x + 2)**2/2 + C"),
        ("exp(x)*sin(x)", "exp(x)*sin(x)/2 - exp(x)*cos(x)/2 + C"),
        ("exp(x)*sin(x)", "E**x*(sin(x) - cos(x))/2"),
        ("log(x)", "x*ln(x) - x + C"),
        ("-2*asin(3*x)", "-2*x*asin(3*x) - 2*sqrt(1 - 9*x**2)/3 + C"),
        ("-2*atan(2*x)", "-2*x*atan(2*x) + log(4*x**2 + 1)/2 + C"),
        ("6*sqrt(10 - 4*x)", "-(10 - 4*x)**(3/2) + C"),
        ("-3*x**-4", "x**(-3)"),
        ("2**x", "2**x/log(2)"),
        ("cosh(x)", "sinh(x) + C"),
    ],
)
def test_right_whatever_the_form(integrand, answer):
    assert antiderivative(entry(integrand), answer) == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        "x**2 + x",
        "x**2 + \ud800",
        "2*x",
        "x**2 + C*x",
        "Integral(2*x, x)",
        "x^2",
        "X**2",
        "x**2 + C)",
        "(x**2",
        "x**2 +",
        "",
        "C",
        "nan",
        "1/0",
        "log(0)*x",
        "9**9**9**9",
        "x" + "**x" * 300,
        "(" * 900,
        "-" * 900,
        "x**2" * 400,
        "__import__('os')",
        "f(x)",
    ],
)
def test_wrong_or_malformed(answer):
    assert antiderivative(entry("2*x"), answer) == 0.0


def test_the_variable_is_the_questions():
    assert antiderivative(entry("2*X", "X"), "X**2 + C") == 1.0


def test_the_longest_answer_takes_milliseconds():
    begin = time.perf_counter()
    antiderivative(entry("2*x"), "+".join(["sin(x)"] * 140))
    assert time.perf_counter() - begin < 0.5


@settings(deadline=None)
@given(st.text("xCE0123456789*+-/(). sincoexplg", max_size=60))
def test_no_text_breaks_it(text):
    assert antiderivative(entry("exp(x)"), text) in (0.0, 1.0)
