"""What counts as plain data on its way out of a program."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.sandbox.inside.values import MAX_DEPTH, MAX_INT_BITS, NotPlain, encode

Point = namedtuple("Point", "x y")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@settings(max_examples=50)
@given(value=st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_plain_data_is_json(value):
    assert json.loads(encode(value, 1 << 20)) == value


def test_tuples_are_lists_and_floats_are_exact():
    assert json.loads(encode((1, (0.1,)), 100)) == [1, [0.1]]
    assert json.loads(encode(float("inf"), 100)) == float("inf")


@pytest.mark.parametrize(
    "value",
    [
        Point(1, 2),
        OrderedDict(a=1),
        {1, 2},
        b"x",
        1j,
        {1: 2},
        [object()],
        type("I", (int,), {})(1),
        range(3),
        ...,
    ],
)
def test_anything_of_another_type_is_not(value):
    with pytest.raises(NotPlain):
        encode(value, 1 << 20)


def test_depth_and_digits_are_bounded():
    nested: list[object] = []
    for _ in range(MAX_DEPTH - 1):
        nested = [nested]
    assert encode(nested, 1 << 20) is not None
    with pytest.raises(NotPlain, match="deeply"):
        encode([[nested]], 1 << 20)
    assert encode((1 << MAX_INT_BITS) - 1, 1 << 20) is not None
    with pytest.raises(NotPlain, match="digits"):
        encode(1 << MAX_INT_BITS, 1 << 20)
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotPlain, match="deeply"):
        encode(loop, 1 << 20)


def test_what_is_too_long_is_told_apart():
    assert encode("x" * 8, 10) == '"xxxxxxxx"'
    assert encode("x" * 9, 10) is None
