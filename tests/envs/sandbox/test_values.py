"""What counts as plain data on its way out of a program."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.sandbox.inside.protocol import MAX_DEPTH, MAX_INT_BITS, NotPlain, encode, require_plain

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
        {1, 2},
        b"x",
        1j,
        {(1, 2): 3},
        {1: 2, "1": 3},
        [object()],
        range(3),
        ...,
    ],
)
def test_anything_of_another_type_is_not(value):
    with pytest.raises(NotPlain):
        encode(value, 1 << 20)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Point(1, 2), "[1,2]"),
        (OrderedDict(a=1), '{"a":1}'),
        (defaultdict(list, {1: (2,)}), '{"1":[2]}'),
        (Counter("aab"), '{"a":2,"b":1}'),
        ({True: 1, None: 2, 0.5: 3}, '{"true":1,"null":2,"0.5":3}'),
        (type("I", (int,), {"__eq__": lambda self, other: True, "__repr__": lambda self: "9"})(1), "1"),
        (type("S", (str,), {"__str__": lambda self: "other"})("x"), '"x"'),
        (type("F", (float,), {"__float__": lambda self: 9.0})(1.5), "1.5"),
        (type("L", (list,), {"__iter__": lambda self: iter([9])})([1]), "[1]"),
        (type("D", (dict,), {"items": lambda self: [("b", 9)]})(a=1), '{"a":1}'),
        (Decimal("0.5"), "0.5"),
        (Fraction(1, 2), "0.5"),
    ],
)
def test_a_result_is_what_its_base_type_holds(value, text):
    assert encode(value, 1 << 20) == text
    if type(value) is not dict:
        with pytest.raises(NotPlain):
            require_plain(value)


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
