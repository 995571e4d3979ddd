"""Multiple choice: which option an answer names, and shuffles that depend on the row alone."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.verifiers.choice import choice_of, shuffled

OPTIONS = ["2 m/s", "4 m/s", "All of them", r"$\frac{1}{2}$"]


@pytest.mark.parametrize("answer", [
    "B", "b", "(B)", "( b )", "B.", "B)", "B:", r"\text{B}", r"\textbf{(B)}", "**B**", "$B$", "B. 4 m/s", "B) 4 m/s",
    "[B]", "[b] 4 m/s", "(B) 4 m/s", "B: 4  m/s", r"\mathrm{B.\ 4\,m/s}", "Answer: B", "The correct answer is (B)",
    "Option B", "4 m/s", r"4\ \text{m/s}",
])  # fmt: skip
def test_ways_to_name_the_second_option(answer):
    assert choice_of(answer, OPTIONS) == "B"


@pytest.mark.parametrize("answer", [
    "", " ", "E", "Z", "(E)", "A B", "A, B", "A and B", "A or B", "AB", "B or C", "(A)(B)", "B. 2 m/s", "B not A",
    "A car", "m/s", "4", "42", "none", "А", "B" * 3000, "5. B", "\\",
])  # fmt: skip
def test_what_names_no_option(answer):
    assert choice_of(answer, OPTIONS) is None


@pytest.mark.parametrize(("answer", "letter"), [("All of them", "C"), (r"\frac12", "D"), ("D. 1/2", None)])
def test_the_text_of_an_option_names_it(answer, letter):
    assert choice_of(answer, OPTIONS) == letter


def test_an_option_may_begin_like_an_introduction():
    options = ["Choice overload", "Option value", "Answer bias", "x"]
    assert [choice_of(option, options) for option in options] == ["A", "B", "C", "D"]


def test_a_text_that_two_options_share_names_neither():
    assert choice_of("same", ["same", " same", "other"]) is None
    assert choice_of("B. same", ["same", " same", "other"]) == "B"


def test_case_counts_only_where_it_tells_options_apart():
    assert [choice_of(option, ["AA", "Aa", "aa"]) for option in ("AA", "Aa", "aa", "aA")] == [
        "A",
        "B",
        "C",
        None,
    ]
    assert choice_of("IRON", ["neon", "iron"]) == "B"
    assert choice_of("Cat", ["dog", "DOG", "cat"]) == "C"


def test_a_letter_is_a_letter_even_where_options_are_letters():
    assert choice_of("A", ["B", "A"]) == "A"


@given(st.text(max_size=40), st.lists(st.text(max_size=10), max_size=8))
def test_whatever_is_named_exists(answer, options):
    letter = choice_of(answer, options)
    assert letter is None or letter in "ABCDEFGH"[: len(options)]


def test_a_shuffle_belongs_to_its_row():
    orders = {key: shuffled(["p", "q", "x", "y"], key) for key in map(str, range(400))}
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders.values())
    assert all(shuffled(["p", "q", "r", "s"], key) == order for key, order in orders.items())
    firsts = Counter(order[0] for order in orders.values())
    assert all(60 < firsts[position] < 140 for position in range(4))


@pytest.mark.parametrize("last", ["None of the above", "all of these", "Both A and B", "All of the above."])
def test_options_that_speak_of_others_keep_every_option_in_place(last):
    assert all(shuffled(["x", "y", "z", last], str(key)) == (0, 1, 2, 3) for key in range(20))
