"""Checks on words: occurrences inside words count, forbidden words must stand alone, keywords are no patterns."""

import pytest

from prorl.envs.verifiers.instructions import keywords as k


@pytest.mark.parametrize(
    ("response", "keyword", "times"),
    [
        ("Mother and mothers", "mother", 2),
        ("momma", "mom", 1),
        ("ice  cream, ice\ncream, icecream", "ice cream", 2),
        ("1+1 and 1+1", "1+1", 2),
        ("aaaa", "aa", 2),
        ("(.*)", ".*", 1),
        ("", "a", 0),
    ],
)
def test_occurrences(response, keyword, times):
    assert k.occurrences(response, keyword) == times


def test_existence_needs_every_keyword():
    assert k.existence("The war ended in PEACE", keywords=("war", "peace"))
    assert k.existence("warm and peaceful", keywords=("war", "peace"))
    assert not k.existence("The war went on", keywords=("war", "peace"))
    assert not k.existence("", keywords=("war",))


@pytest.mark.parametrize(("frequency", "relation", "met"), [
    (2, "at least", True), (3, "at least", False), (2, "less than", False), (3, "less than", True),
])  # fmt: skip
def test_frequency_at_its_boundary(frequency, relation, met):
    assert k.frequency("war, War", keyword="war", frequency=frequency, relation=relation) is met


def test_a_forbidden_word_must_stand_alone():
    assert k.forbidden_words("The rocket rocks", forbidden_words=("rock",))
    assert not k.forbidden_words("ROCK!", forbidden_words=("rock",))
    assert not k.forbidden_words("hard-rock", forbidden_words=("roll", "rock"))
    assert k.exclude_word("fielded", keyword="field")
    assert not k.exclude_word("field", keyword="field")
    assert not k.exclude_word("In this Field.", keyword="field")


def test_exact_numbers_of_keywords():
    assert k.word_once("one owl", keyword="owl")
    assert not k.word_once("owl owl", keyword="owl")
    assert not k.word_once("none", keyword="owl")
    assert k.once_and_twice("a pen, two owls, an owl", keyword1="pen", keyword2="owl")
    assert not k.once_and_twice("a pen, an owl", keyword1="pen", keyword2="owl")
    assert not k.once_and_twice("pen pen owl owl", keyword1="pen", keyword2="owl")
    five = {f"keyword{i}": word for i, word in enumerate(("ink", "owl", "jar", "gum", "yak"), start=1)}
    text = "ink owl owl jar jar jar" + " gum" * 5 + " yak" * 7
    assert k.five_keywords(text, **five)
    assert not k.five_keywords(text + " yak", **five)
    assert not k.five_keywords(text.replace("ink", ""), **five)


@pytest.mark.parametrize(("response", "met"), [
    ("A racecar at noon.", True), ("Wow!", True), ("level-headed", True),
    ("a I 7", False), ("mmm hmm", False), ("nothing here", False),
])  # fmt: skip
def test_palindrome(response, met):
    assert k.palindrome(response) is met


@pytest.mark.parametrize(("response", "met"), [
    ("cats eat fish", False), ("Apples Bananas", False), ("z a", True), ("bread and water", True),
    ("and again", True), ("1 2 3", True), ("", True),
])  # fmt: skip
def test_no_adjacent_consecutive(response, met):
    assert k.no_adjacent_consecutive(response) is met
