"""Numbers are read by one strict grammar and compared within what the question asks for."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families.gym_scorers import numbers


def entry(answer, **metadata):
    return {"answer": answer, "metadata": metadata}


@pytest.mark.parametrize(
    ("scorer", "gold", "right", "wrong"),
    [
        (
            numbers.number,
            "1000",
            ["1000", "1,000", "+1000.0", "1e3"],
            ["999", "1000 apples", "1000 or 999", "nan", "٣"],
        ),
        (numbers.number, "-3", ["-3", "-3.00"], ["3", "−3", "--3", ""]),
        (numbers.within(1e-2), "2.5", ["2.5", "2.509"], ["2.52", "inf", "1e99", "9" * 500]),
        (numbers.within_share(5e-3), "-0.0014", ["-0.001398", "-1.4e-3"], ["0", "0.0014", "-0.0015"]),
        (numbers.within_share(5e-3), "0.0", ["0"], ["0.001"]),
        (numbers.to_the_last_place, "63.43°", ["63.43°", "63.435", " 63.44 °"], ["63.45", "63.43, 1", ""]),
        (
            numbers.to_the_last_place,
            "(1.333, -2.000)",
            ["(1.333, -2)", "1.3333,-2.0"],
            ["(-2, 1.333)", "1.333"],
        ),
        (
            numbers.number_list,
            "['-3.5', '1']",
            ["['-3.5', '1']", "[-3.5, 1.0]", "-3.5, 1"],
            ["[1, -3.5]", "[-3, 1]", "[]"],
        ),
        (
            numbers.roots,
            "-1.5, 0.0",
            ["-1.5, 0", "0, -1.4999"],
            ["0", "-1.5", "0, 0", "-1.5, 0, 1", "none", "x"],
        ),
        (
            numbers.matrix,
            "3.0 5.22\n4.67 1",
            ["3 5.22\n4.67 1", "3 5.23\n4.667 1.0"],
            ["3 5.22 4.67 1", "3 5.3\n4.67 1", "nan"],
        ),
        (
            numbers.factors,
            "2 × 2 × 3",
            ["2 × 2 × 3", "3*2*2", "2x3x2"],
            ["12", "4 × 3", "2 × 3", "xyzzy", ""],
        ),
        (numbers.hexadecimal, "-0xff", ["-0xff", "-0xFF", "-255"], ["0xff", "ff", "-0x", "1" * 3000]),
    ],
)
def test_worked_numbers(scorer, gold, right, wrong):
    assert {answer: scorer(entry(gold), answer) for answer in right} == dict.fromkeys(right, 1.0)
    assert {answer: scorer(entry(gold), answer) for answer in wrong} == dict.fromkeys(wrong, 0.0)


@pytest.mark.parametrize(
    ("gold", "answer", "score"),
    [
        ("0.375", "3/8", 1.0),
        ("0.375", "0.375", 1.0),
        ("0.375", "0.3751", 1.0),
        ("0.375", "0", 0.0),  # the library pays for the common prefix
        ("0.375", "0.3", 0.0),
        ("0.375", "3/0", 0.0),
        ("3.051757812e-05", "0", 0.0),  # within the library's absolute tolerance
        ("3.051757812e-05", "1/32768", 1.0),
    ],
)
def test_a_probability_is_a_decimal_or_a_fraction(gold, answer, score):
    assert numbers.probability(entry(gold), answer) == score


@pytest.mark.parametrize(
    ("result", "answer", "score"),
    [
        ((3, -2), "3.0 - 2.0i", 1.0),
        ((3, -2), "(3-2j)", 1.0),
        ((3, 0), "3", 1.0),
        ((0, -1), "-i", 1.0),
        ((0, 3), "3i", 1.0),
        ((0, 1), "0 + i", 1.0),
        ((3, -2), "3 + 2i", 0.0),
        ((3, -2), "nan", 0.0),  # which the library pays in full
        ((3, -2), "-2i + 3", 0.0),
        ((3, -2), "((((3-2i", 0.0),
    ],
)
def test_complex_numbers(result, answer, score):
    assert numbers.complex_number(entry("", result=result), answer) == score


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_a_number_is_read_as_it_is_written(digits, places):
    text = f"{digits / 10**places:.{places}f}"
    assert numbers.parse_number(text) == Fraction(text)


@given(st.text(max_size=80))
def test_what_is_no_number_is_none(text):
    value = numbers.parse_number(text)
    assert value is None or any(mark.isdigit() for mark in text)
