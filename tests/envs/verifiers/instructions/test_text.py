"""Words, sentences and parts by regular expression."""

import pytest

from prorl.envs.verifiers.instructions.text import divided, paragraphs, sentences, tokens, words


@pytest.mark.parametrize(("text", "expected"), [
    ("Don’t stop", ["don’t", "stop"]), ("a_b __c__ _", ["a_b", "c"]), ("3.5 km", ["3", "5", "km"]),
    ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]), ("你好 ok", ["你", "好", "ok"]), ("— … !", []), ("", []),
])  # fmt: skip
def test_words(text, expected):
    assert words(text) == expected


def test_tokens_keep_case_and_hyphens():
    assert tokens('"Well-Known" (U.S.) -- x!') == ["Well-Known", "U.S", "x"]


@pytest.mark.parametrize(("text", "count"), [
    ("One. Two! Three?", 3), ("One... two?! Three", 3), ("Mr. Fox met Dr. J. Owl at 5 p.m. today.", 1),
    ("He said \"Go.\" Then he left.", 2), ("1. One item\n2. Another item", 2), ("A heading\n\nA line", 2),
    ("- cold wind\n- grey water", 2), ("1) cold\n2) grey", 2),
    ("one line\nthe same sentence.", 1), ("你好。再见！", 2), ("It costs $3.50 at example.com.", 1),
    ("I am. So am I. Good.", 3), ("", 0), ("...", 0),
])  # fmt: skip
def test_sentences(text, count):
    assert len(sentences(text)) == count


def test_parts():
    assert paragraphs("a\nb\n\n \n\nc\n") == ["a\nb", "c"]
    assert divided("***a***b***", "***") == ["a", "b"]
    assert divided("a******b", "***") is None
    assert divided("", "***") is None
