"""Numbers of words, sentences and paragraphs, each at its boundary."""

import pytest

from prorl.envs.verifiers.instructions import length

SIX = "This one, don't worry, has six words."


@pytest.mark.parametrize(("number", "relation", "met"), [
    (7, "at least", True), (8, "at least", False), (7, "less than", False), (8, "less than", True),
])  # fmt: skip
def test_number_words(number, relation, met):
    assert length.number_words(SIX, num_words=number, relation=relation) is met


def test_word_range_includes_both_ends():
    assert length.word_range(SIX, min_words=7, max_words=7)
    assert length.word_range(SIX, min_words=0, max_words=9)
    assert not length.word_range(SIX, min_words=8, max_words=9)
    assert not length.word_range(SIX, min_words=1, max_words=6)


@pytest.mark.parametrize(("number", "relation", "met"), [
    (3, "at least", True), (4, "at least", False), (3, "less than", False), (4, "less than", True),
])  # fmt: skip
def test_number_sentences(number, relation, met):
    text = "Dr. No paid $3.50. Really? He did..."
    assert length.number_sentences(text, num_sentences=number, relation=relation) is met


@pytest.mark.parametrize(("response", "count"), [
    ("a", 1), ("a\n***\nb", 2), ("***\na\n***\nb\n***", 2), ("a *** b *** c", 3),
])  # fmt: skip
def test_number_paragraphs(response, count):
    assert length.number_paragraphs(response, num_paragraphs=count)
    assert not length.number_paragraphs(response, num_paragraphs=count + 1)


@pytest.mark.parametrize("response", ["", "***", "a\n***\n***\nb", "a ****** b", "a\n***\n--\n***\nb"])
def test_an_empty_paragraph_spoils_them_all(response):
    assert not any(length.number_paragraphs(response, num_paragraphs=count) for count in range(1, 5))


def test_two_paragraphs():
    assert length.two_divided("a\n***\nb")
    assert not length.two_divided("a\n\nb")
    assert not length.two_divided("a\n***\nb\n***\nc")
    assert length.two_spaced("a\nb\n\n \nc")
    assert not length.two_spaced("a\nb")
    assert not length.two_spaced("a\n\nb\n\nc")


@pytest.mark.parametrize(("response", "met"), [
    ("First.\n\nTide turns.", True), ("First.\n\n\n\"Tide\", he said.", True), ("First.\n\n**tide** turns", True),
    ("Tide.\n\nSecond.", False), ("First.\n\nTides turn.", False), ("First.\n\nTide.\n\nThird.", False),
    ("First.\nTide.", False), ("First.\n\n...", False), ("First.\n\nTide-free.", False),
])  # fmt: skip
def test_nth_first_word(response, met):
    assert length.nth_first_word(response, num_paragraphs=2, nth_paragraph=2, first_word="tide") is met


def test_the_first_word_in_any_case():
    assert length.begins_with("tide turns", "TIDE")
    assert length.begins_with("TIDE turns", "tide")
