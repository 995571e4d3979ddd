"""The visible form, and that an empty form is none."""

import pytest

from prorl.envs.verifiers.instructions import layout


@pytest.mark.parametrize(("response", "count"), [
    ("[name] lives in [home town]", 2), ("[] [ ] [..]", 0), ("[a[b]", 1), ("[a\nb]", 0), ("[link](url)", 1),
])  # fmt: skip
def test_placeholders(response, count):
    assert layout.placeholders(response, num_placeholders=count)
    assert not layout.placeholders(response, num_placeholders=count + 1)


@pytest.mark.parametrize(("response", "count"), [
    ("* one\n* two", 2), ("- one\n  - two\n\t* three", 3), ("**bold** start\n*emphasis* start", 0),
    ("---\n* * *\n- \n-5 degrees", 0), ("text * not a bullet", 0), ("1. one\n* two", 1),
])  # fmt: skip
def test_bullets_are_counted_exactly(response, count):
    assert layout.bullets(response, num_bullets=count)
    assert not layout.bullets(response, num_bullets=count + 1)
    assert not layout.bullets(response + "\n* another", num_bullets=count)


@pytest.mark.parametrize(("response", "met"), [
    ("My answer is yes.", True), ("  MY ANSWER IS MAYBE.\nBecause.", True), ("My answer is no. Sorry.", True),
    ("yes", False), ("My answer is yes", False), ("My answer is yes. My answer is no.", False), ("", False),
])  # fmt: skip
def test_constrained(response, met):
    assert layout.constrained(response) is met


@pytest.mark.parametrize(("response", "count"), [
    ("*one* and **two** and ***three***", 3), ("* item one\n* item two", 0), ("* a * b *", 0),
    ("**** ** **", 0), ("*open", 0), ("*a\nb*", 0), ("* item *high* and *light*", 2),
])  # fmt: skip
def test_highlights(response, count):
    assert layout.highlights(response, num_highlights=count)
    assert not layout.highlights(response, num_highlights=count + 1)


@pytest.mark.parametrize(("response", "count"), [
    ("Section 1\nText.\nSection 2\nMore.", 2), ("**Section 1**: a\n# Section 2: b", 2),
    ("Section 1 Section 2 Section 3", 0), ("Section 1 a Section 1 b", 1), ("SECTION 1 a", 0),
    ("Subsection1 a", 0), ("Section X a", 0),
])  # fmt: skip
def test_sections(response, count):
    assert layout.sections(response, section_spliter="Section", num_sections=count)
    assert not layout.sections(response, section_spliter="Section", num_sections=count + 1)


@pytest.mark.parametrize("response", ['{"a": 1}', "[1, 2]", '```json\n{"a": [1]}\n```', '```\n["x"]\n```\n'])
def test_json(response):
    assert layout.json_format(response)


@pytest.mark.parametrize("response", [
    "", "{}", "[]", "7", '"text"', "null", "{'a': 1}", '{"a": 1} Done.', '{"a": NaN}', "[" * 100_000,
    '{"a": ' + "9" * 5000 + "}", '```json\n{"a": 1}', "```json```",
])  # fmt: skip
def test_no_json(response):
    assert not layout.json_format(response)


@pytest.mark.parametrize(("response", "met"), [
    ("<<poem of joy>>\nRoses.", True), ("Roses.\n<<end>>", True), ("**<<bold>>** text", True),
    ("<<only a title>>", False), ("<<>> text", False), ("<< >> text", False), ("<title> text", False),
    ("<<a\nb>> text", False),
])  # fmt: skip
def test_title(response, met):
    assert layout.title(response) is met


@pytest.mark.parametrize(("response", "met"), [
    ("[I] [am] [here].", True), ("[one]", True), ("[Hello], [world]!", True),
    ("[I am] [here]", False), ("[I] am [here]", False), ("", False), ("[]", False),
])  # fmt: skip
def test_square_brackets(response, met):
    assert layout.square_brackets(response) is met


@pytest.mark.parametrize(("response", "met"), [
    ("<<I am>> <<at home>>", True), ("<<I am>> <<at home>> today", True), ("<<I am>>\n<<at home.>>", True),
    ("<<I am>> at home", False), ("today <<I am>>", False), ("<<I>> <<am>>", False), ("", False),
])  # fmt: skip
def test_bigram_wrapping(response, met):
    assert layout.bigram_wrapping(response) is met


@pytest.mark.parametrize(("response", "met"), [
    ("It rains.-We stay.", True), ("It rains!-Why?-We stay.", True), ("A well-known fact.-We stay.", True),
    ("It rains.", False), ("It rains. We stay.", False), ("It rains. -We stay.", False),
    ("It rains.-We stay. Still.", False),
])  # fmt: skip
def test_sentence_hyphens(response, met):
    assert layout.sentence_hyphens(response) is met
