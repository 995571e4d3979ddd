"""Copies, repetitions and pairs of responses."""

import pytest

from prorl.envs.verifiers.instructions import copying

ASK = "Write  a Note.\nShort!"


@pytest.mark.parametrize(("response", "met"), [
    ("Yahweh ****** Allah", True), ("******\nOne way.\n******\nAnother way.\n******", True), ("a\n******\nb", True),
    ("a\n******\nA!", False), ("a", False), ("a ****** b ****** c", False), ("a ************ b", False),
    ("******", False), ("a ******", False), ("a *** b", False),
])  # fmt: skip
def test_two_responses(response, met):
    assert copying.two_responses(response) is met


@pytest.mark.parametrize(("response", "met"), [
    ("Write a note. Short!\n\nDear John.", True), (ASK + " ok", True), ("write a note. short! Hi", True),
    (ASK, False), (ASK + " ...", False), ("Sure! " + ASK + " Hi", False), ("Write a note.", False),
])  # fmt: skip
def test_repeat_prompt(response, met):
    assert copying.repeat_prompt(response, prompt_to_repeat=ASK) is met


def test_copy():
    assert copying.copy(" write a note. short!\n", prompt_to_repeat=ASK)
    assert not copying.copy(ASK + " Hi", prompt_to_repeat=ASK)
    assert not copying.copy("", prompt_to_repeat=ASK)
    assert copying.copies(f"{ASK}\n******\n{ASK}", prompt_to_repeat=ASK, N=2)
    assert not copying.copies(f"{ASK}\n******\n{ASK}", prompt_to_repeat=ASK, N=3)
    assert not copying.copies(f"{ASK}\n******\nHi", prompt_to_repeat=ASK, N=2)


def test_copy_span_with_or_without_its_end():
    span = {"prompt_to_repeat": "The old pier", "n_start": 0, "n_end": 6}
    assert copying.copy_span("The ol", **span)
    assert copying.copy_span("the old", **span)
    assert not copying.copy_span("The o", **span)
    assert not copying.copy_span("The old pier", **span)


@pytest.mark.parametrize(("response", "met"), [
    ("a warm day here, then a mild day here", True), ("We saw a warm day here. A mild day here.", True),
    ("a cold day here, a warm day here, a mild day here", True),
    ("a warm day here", False), ("a cold day here, a cold day here", False),
    ("a warm sun here, a mild day here", False), ("a warm day there, a mild day there", False), ("", False),
])  # fmt: skip
def test_repeat_phrase(response, met):
    assert copying.repeat_phrase(response, phrase="a cold day here", small_n=2) is met
