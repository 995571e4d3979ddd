"""Escaping, judged by a CommonMark parser: what goes in is what a reader sees, and nothing of it is markup."""

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from prorl.lab.export.markdown import bullets, fenced, plain, table

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r")) | st.text("<>&`*_[]()!|\\~$# \nab")
HOSTILE = (
    "<script>alert(1)</script>",
    "<!-- -->",
    "[a](javascript:alert(1))",
    "![x](http://x/y.png)",
    "`</td>`",
    "a | b",
    "**bold**",
    "~~gone~~",
    "&lt;b&gt;",
    "\\<b>",
)

parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def seen(rendered: str, tag: str) -> str:
    return html.unescape(rendered.split(f"<{tag}>", 1)[1].rsplit(f"</{tag}>", 1)[0])


@given(TEXTS)
def test_a_line_shows_the_text_and_nothing_else(text):
    tokens = parser.parse(f"x {plain(text)} x")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for child in tokens[1].children} <= {"text", "text_special"}
    assert "".join(child.content for child in tokens[1].children).split() == ["x", *text.split(), "x"]


@given(TEXTS)
def test_a_fence_holds_the_text_verbatim(text):
    (token,) = parser.parse(fenced(text, "text"))
    assert (token.type, token.info, token.content) == ("fence", "text", f"{text.rstrip()}\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_cell_and_an_item_show_the_text(text):
    cell = parser.render(table(("what", "n"), [(text, "1")]))
    assert cell.count("<td") == 2
    assert seen(cell, "td").startswith(text)
    assert seen(parser.render(bullets([text])), "li") == text
