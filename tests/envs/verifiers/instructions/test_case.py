"""Case, language and punctuation of the entire response."""

import pytest

from prorl.envs.verifiers.instructions import case


@pytest.mark.parametrize(("response", "met"), [
    ("THIS IS THE END OF IT!", True), ("ALL OF THE 12 MEN", True), ("THIS IS THE end", False),
    ("", False), ("123", False), ("DAS IST DAS ENDE VON ALLEM", False),
])  # fmt: skip
def test_english_capital(response, met):
    assert case.english_capital(response) is met


@pytest.mark.parametrize(("response", "met"), [
    ("this is the end of it!", True), ("all of the 12 men", True), ("this is The end", False),
    ("", False), ("...", False), ("das ist das ende von allem", False), ("zxcv qwer asdf", False),
])  # fmt: skip
def test_english_lowercase(response, met):
    assert case.english_lowercase(response) is met


@pytest.mark.parametrize("comma", ",，、،")
def test_no_comma_of_any_script(comma):
    assert case.no_comma("one; two. three")
    assert case.no_comma("")
    assert not case.no_comma(f"one{comma} two")


def test_no_dot_and_no_exclamation_mark():
    assert case.no_dot("one! two? three")
    assert not case.no_dot("3.5")
    assert not case.no_dot("one…")
    assert case.no_exclamation("one. two?")
    assert not case.no_exclamation("one!")
    assert not case.no_exclamation("one！")


def test_response_language():
    assert case.response_language("Il fait froid et le vent est fort.", language="fr")
    assert not case.response_language("It is cold and the wind is strong.", language="fr")
    assert not case.response_language("42", language="fr")
