"""Numerals: what is one, its exact value, and when a decimal may stand for another number."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.verifiers.numbers import agree, leading_numeral, read_numeral


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-0.5", Fraction(-1, 2)), ("1,234.5", Fraction(2469, 2)), (".25", Fraction(1, 4)), ("7.", 7),
        ("3/4", Fraction(3, 4)), (r"-\frac{3}{4}", Fraction(-3, 4)), ("0.5/2", Fraction(1, 4)),
        ("2 1/3", Fraction(7, 3)), (r"-2\frac{1}{3}", Fraction(-7, 3)), ("6.02e23", 602 * 10**21),
        ("2*10^{-3}", Fraction(1, 500)),
        ("2 * 10^3", 2000), ("1,000,000", 10**6), (r"0.1\overline{6}", Fraction(1, 6)),
        (r".\overline{27}", Fraction(3, 11)),
    ],
)  # fmt: skip
def test_values_by_hand(text, value):
    assert read_numeral(text).value == value


@pytest.mark.parametrize(
    "text",
    ["", "-", "x", "2x", "1/0", r"\frac{1}{0}", "2+3", "1,23,456", "12 34", r"2\frac{3}{2}", "2 3/2", "5!", "0x10",
     "١٢", "1e9999", "9" * 400, "1_000", "inf", "nan", "--3"],
)  # fmt: skip
def test_what_is_no_numeral(text):
    assert read_numeral(text) is None


def test_what_follows_a_numeral_is_given_back():
    numeral, rest = leading_numeral("12.5 km")
    assert (numeral.value, rest) == (Fraction(25, 2), " km")


@given(st.fractions(), st.integers(1, 12))
def test_a_rounded_decimal_agrees_from_six_significant_digits_on(value, places):
    scaled = round(value * 10**places)
    text = f"{'-' if scaled < 0 else ''}{abs(scaled) // 10**places}.{abs(scaled) % 10**places:0{places}d}"
    decimal, exact = read_numeral(text), read_numeral(f"{value.numerator}/{value.denominator}")
    exact_decimal = decimal.value == value
    assert agree(decimal, exact) == (exact_decimal or len(str(abs(scaled))) >= 6)
    assert agree(decimal, exact) == agree(exact, decimal)
