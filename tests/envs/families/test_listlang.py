"""The list language: each operator by hand, and programs and lists from anywhere end in a result or its own error."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families.listlang import (
    MAX_LENGTH,
    MAX_OPS,
    MAX_VALUE,
    OPS,
    ListLangError,
    parse_program,
    parse_values,
    run,
    show,
    trace,
)

values = st.lists(st.integers(-MAX_VALUE, MAX_VALUE), max_size=MAX_LENGTH).map(tuple)
programs = st.lists(st.sampled_from(list(OPS)), min_size=1, max_size=MAX_OPS).map(tuple)


@pytest.mark.parametrize(
    ("program", "given_values", "expected"),
    [
        ("neg", (2, 7, 5, 9), (-2, -7, -5, -9)),
        ("inc", (2, -1), (3, 0)),
        ("dbl", (2, -1), (4, -2)),
        ("rev", (2, 7, 5), (5, 7, 2)),
        ("sort", (2, 7, 5, -1), (-1, 2, 5, 7)),
        ("uniq", (2, 7, 2, 5, 7), (2, 7, 5)),
        ("tail", (2, 7, 5), (7, 5)),
        ("init", (2, 7, 5), (2, 7)),
        ("even", (2, 7, -4), (2, -4)),
        ("odd", (2, 7, -5), (7, -5)),
        ("head", (2, 7, 5), (2,)),
        ("max", (2, 7, 5), (7,)),
        ("min", (2, 7, 5), (2,)),
        ("sum", (2, 7, 5), (14,)),
        ("neg max", (2, 7, 5, 9), (-2,)),
        ("max neg", (2, 7, 5, 9), (-9,)),
        ("tail head", (), ()),
        ("max", (), ()),
        ("sum", (), (0,)),
    ],
)
def test_operators_by_hand(program, given_values, expected):
    assert run(parse_program(program), given_values) == expected


@given(programs, values)
def test_every_run_ends_within_the_bounds_or_in_the_languages_own_error(program, given_values):
    try:
        states = trace(program, given_values)
    except ListLangError:
        return
    assert len(states) == len(program)
    assert all(len(state) <= MAX_LENGTH and all(abs(v) <= MAX_VALUE for v in state) for state in states)


@given(st.text())
def test_parsers_accept_or_raise_their_own_error(text):
    for parse in (parse_program, parse_values):
        with suppress(ListLangError):
            assert parse(text) == parse(text.strip())


@given(values)
def test_shown_values_are_read_back(given_values):
    assert parse_values(show(given_values)) == given_values


@pytest.mark.parametrize("text", ["2 7 5", "2, 7, 5", "[2, 7, 5]", " [2 7 5] "])
def test_brackets_and_commas_are_welcome(text):
    assert parse_values(text) == (2, 7, 5)


@pytest.mark.parametrize(
    "text", ["", "   ", "neg foo", "neg|max", "NEG", "__import__", "neg " * (MAX_OPS + 1)]
)
def test_what_is_no_program(text):
    with pytest.raises(ListLangError):
        parse_program(text)


@pytest.mark.parametrize(
    "text", ["2 x", "1.5", "1e3", "--2", "12345678", "٣", "[[2]]", "1 " * (MAX_LENGTH + 1)]
)
def test_what_is_no_list(text):
    with pytest.raises(ListLangError):
        parse_values(text)


def test_numbers_may_not_grow_without_bound():
    with pytest.raises(ListLangError, match="magnitude"):
        run(("dbl",) * MAX_OPS, (99,))


def test_steps_are_bounded():
    with pytest.raises(ListLangError, match="steps"):
        run(("rev",) * MAX_OPS, (0,) * MAX_LENGTH)
