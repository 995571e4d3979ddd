"""What stands at the beginning, at the end, or at a given place."""

import pytest

from prorl.envs.verifiers.instructions import position


@pytest.mark.parametrize(("response", "met"), [
    ("Done. That is all.", True), ('"Done. THAT IS ALL."\n', True), ("That is all.", True),
    ("That is all. Bye.", False), ("Done. That is all", False), ("Xthat is all.", False), ("", False),
])  # fmt: skip
def test_end_checker(response, met):
    assert position.end_checker(response, end_phrase="That is all.") is met


def test_an_end_phrase_may_itself_be_quoted():
    assert position.end_checker('He said "go".', end_phrase='"go".')
    assert position.end_checker('He said "go"', end_phrase='"go"')
    assert not position.end_checker("He said go", end_phrase='"go"')


@pytest.mark.parametrize(("response", "met"), [
    ('"All of it."', True), (' "a" ', True), ("“Curly.”", True),
    ('"Half of it.', False), ('Say "it"', False), ('""', False), ('"', False), ("'Single.'", False),
])  # fmt: skip
def test_quotation(response, met):
    assert position.quotation(response) is met


@pytest.mark.parametrize(("response", "marker", "met"), [
    ("Bye.\n\nP.S. Bring a coat.", "P.S.", True), ("Bye. p. s. bring one", "P.S.", True),
    ("Bye.\nP.P.S Bring one.", "P.P.S", True), ("Bye.\nP. P. S. Bring one.", "P.P.S", True),
    ("Bye.\nNota bene: coat", "Nota bene:", True),
    ("Bye.\nP.P.S. Bring one.", "P.S.", False), ("Bye.\nP.S. Bring one.", "P.P.S", False),
    ("Bye.\nP.S.", "P.S.", False), ("Lamps are on.", "P.S.", False), ("Bye.\nPS bring one", "P.S.", False),
])  # fmt: skip
def test_postscript(response, marker, met):
    assert position.postscript(response, postscript_marker=marker) is met


def test_first_and_last_word_of_the_response():
    assert position.first_word("  **Tide** turns.", first_word="tide")
    assert not position.first_word("The tide.", first_word="tide")
    assert not position.first_word("Tides turn.", first_word="tide")
    assert position.last_word("We wait for the tide!\n", last_word="Tide")
    assert not position.last_word("The tide turns.", last_word="tide")
    assert not position.last_word("", last_word="tide")


def test_first_and_last_word_of_every_sentence():
    assert position.first_words("We go. We stay! We wait", first_word="we")
    assert not position.first_words("We go. They stay.", first_word="we")
    assert not position.first_words("", first_word="we")
    assert position.last_words("Go home. Stay home!", last_word="home")
    assert not position.last_words("Go home. Home is far.", last_word="home")
    assert not position.last_words("", last_word="home")


@pytest.mark.parametrize(("response", "met"), [
    ("Rain brings rain", True), ("«Rain» brings Rain", True), ("rain rain\n", True),
    ("Rain brings rain.", False), ("Rain brings snow", False), ("Rain", False), ("", False),
])  # fmt: skip
def test_same_first_and_last(response, met):
    assert position.same_first_and_last(response) is met


def test_word_at():
    text = "Cold rain falls. Old, grey ships wait."
    assert position.word_at(text, keyword="rain", n=1, m=2)
    assert position.word_at(text, keyword="Ships", n=2, m=3)
    assert not position.word_at(text, keyword="rain", n=1, m=3)
    assert not position.word_at(text, keyword="rain", n=3, m=2)
    assert not position.word_at(text, keyword="rain", n=1, m=9)
