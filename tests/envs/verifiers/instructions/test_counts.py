"""Counts of letters, words of a kind, and numbers."""

import pytest

from prorl.envs.verifiers.instructions import counts as c


@pytest.mark.parametrize(("response", "letter", "frequency", "relation", "met"), [
    ("Too tight", "t", 3, "at least", True), ("Too tight", "T", 4, "at least", False),
    ("Too tight", "t", 3, "less than", False), ("Too tight", "t", 4, "less than", True),
    ("#go #vote", "#", 2, "at least", True), ("no signs", "!", 1, "less than", True),
])  # fmt: skip
def test_letter_frequency(response, letter, frequency, relation, met):
    assert c.letter_frequency(response, letter=letter, let_frequency=frequency, let_relation=relation) is met


def test_letter_total():
    assert c.letter_total("ab, 1 cé", N=4, relation="at least")
    assert not c.letter_total("ab, 1 cé", N=5, relation="at least")
    assert not c.letter_total("abcd", N=4, relation="less than")


def test_lowercase_words_and_capital_words():
    assert c.lowercase_words("BIG News for YOU today", N=2)
    assert not c.lowercase_words("BIG News for you today", N=2)
    assert c.lowercase_words("ALL LOUD 12", N=0)
    capital = {"capital_frequency": 2}
    assert c.capital_words("The NASA-ESA plan and COVID-19", capital_relation="at least", **capital)
    assert not c.capital_words("The NASA-ESA plan of 2020", capital_relation="at least", **capital)
    assert c.capital_words("*KEY* skills", capital_relation="less than", **capital)
    assert not c.capital_words("KEY SKILLS", capital_relation="less than", **capital)


def test_different_words():
    assert c.all_different("Every word, once.")
    assert not c.all_different("The cat and the dog")
    assert not c.all_different("well, well-known")
    assert c.distinct_words("one two two three", N=3)
    assert not c.distinct_words("one two two three", N=4)
    assert not c.distinct_words("One one ONE", N=2)


@pytest.mark.parametrize(("response", "count"), [
    ("no numbers", 0), ("1,000 and 3.14", 2), ("At 7:30 on 4 May 2020.", 3), ("a1b2", 2),
])  # fmt: skip
def test_numbers(response, count):
    assert c.numbers(response, N=count)
    assert not c.numbers(response, N=count + 1)


def test_conjunctions():
    assert c.conjunctions("Big and small, but old", small_n=2)
    assert not c.conjunctions("Big and small and old", small_n=2)
    assert not c.conjunctions("sand, buttons, fort", small_n=1)


@pytest.mark.parametrize(("response", "met"), [
    ("One two. Three four.\n***\nFive six! Seven eight?\n* * *\nNine ten. Eleven twelve.", True),
    ("One two. Three four.\n***\nFive six! Seven eight?", False),
    ("One two. Three four.\n***\nFive six! Seven?\n***\nNine ten. Eleven twelve.", False),
    ("One two. Three four.\n***\nFive six!\n***\nNine ten. Eleven twelve.", False),
    ("One two. Three four.\n***\n***\nNine ten. Eleven twelve.", False),
])  # fmt: skip
def test_composition(response, met):
    assert c.composition(response, n_sent=2, n_words=2) is met
