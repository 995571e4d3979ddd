"""One table, four renderers: what goes in is what a reader sees, and nothing of it is markup."""

import json
import math
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from prorl.lab.export import bullets, fenced
from prorl.lab.tables import (
    IN_FILES,
    Number,
    Several,
    Table,
    duration,
    escape,
    plain,
    print_tables,
    terminal,
    text,
    to_html,
    to_json,
    to_markdown,
)

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r")) | st.text("<>&`*_[]()!|\\~$# \nab")
GAIN = Number(value=0.125, low=-0.1, high=0.15, form="points")
MEAN = Several(
    cells=(Number(value=0.25, form=".1%"), Number(value=0.75, form=".1%")),
    mean=Number(value=0.5, low=0.25, high=0.75, form=".1%"),
)
MIDDLE = {"value": 0.5, "low": 0.25, "high": 0.75}
TABLE = Table(
    title="runs", columns=("run", "steps", "gain"), rows=(("a", 1200, GAIN), ("b", None, None)), notes=("so",)
)

parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def printed(tables, width=80, **how):
    console = Console(file=StringIO(), width=width)
    print_tables(tables, console, **how)
    return console.file.getvalue()


def test_where_nobody_looks_lines_are_as_long_as_columns_says_or_long(monkeypatch):
    monkeypatch.setattr("sys.stdout", StringIO())
    monkeypatch.setenv("COLUMNS", "90")
    assert terminal().width == 90
    monkeypatch.delenv("COLUMNS")
    assert terminal().width == IN_FILES


@pytest.mark.parametrize(
    ("cell", "said", "data"),
    [
        ("x", "x", "x"),
        (1234, "1,234", 1234),
        (None, "–", None),
        (Number(value=1234.4), "1,234", 1234.4),
        (Number(value=math.nan), "–", None),
        (Number(value=0.5, base=0.25, form=".1%"), "25.0% → 50.0%", {"value": 0.5, "base": 0.25}),
        (GAIN, "+12.5 (−10.0 to +15.0)", {"value": 0.125, "low": -0.1, "high": 0.15}),
        (Number(value=90.0, form="ago"), "2 min ago", 90.0),
        (MEAN, "50.0% ± 25.0%\n25.0%, 75.0%", {"values": [0.25, 0.75], "mean": MIDDLE}),
        (Several(cells=("a", None)), "a, –", {"values": ["a", None]}),
        (Several(cells=("a", "a")), "a", {"values": ["a", "a"]}),
        ("half \ud800", "half \ud800", "half ?"),
    ],
)  # fmt: skip
def test_a_cell_as_text_and_as_data(cell, said, data):
    assert text(cell) == said
    (table,) = json.loads(to_json([Table(title="t", columns=("c",), rows=((cell,),))]))["tables"]
    assert table == {"title": "t", "notes": [], "rows": [{"c": data}]}


def test_columns_have_names_of_their_own_and_rows_a_cell_for_each():
    with pytest.raises(ValueError, match="one name"):
        Table(title="", columns=("a", "a"), rows=())
    with pytest.raises(ValueError, match="cells below"):
        Table(title="", columns=("a", "b"), rows=(("x",),))


def test_html_sets_numbers_to_the_right_and_escapes():
    shown = to_html(Table(title="", columns=("<a>", "n"), rows=(("<b>", 1), ("x" * 99, None))))
    assert '<th scope="col" class="long">&lt;a&gt;</th>' in shown
    assert '<td class="long">&lt;b&gt;</td><td class="number">1</td>' in shown
    assert escape('"<\ud800') == "&quot;&lt;?"


def test_a_terminal_shows_titles_rows_and_notes_and_no_markup():
    _, *lines = printed([TABLE]).splitlines()
    assert [line.split() for line in lines] == [
        ["runs"], ["run", "steps", "gain"],
        ["a", "1,200", "+12.5", "(−10.0", "to", "+15.0)"], ["b", "–", "–"], ["so"],
    ]  # fmt: skip
    assert "[bold]x[/bold]" in printed([Table(title="", columns=("c",), rows=(("[bold]x[/bold]",),))])


def test_aligned_tables_share_their_columns():
    wide = Table(title="two", columns=TABLE.columns, rows=(("much longer", 1, None),))
    lines = printed([TABLE, wide], aligned=True).splitlines()
    assert len([line for line in lines if "steps" in line]) == 1
    assert {line.index("–") for line in lines if line.startswith("b")} == {lines[-1].index(" 1 ") + 1}


@pytest.mark.parametrize("aligned", [False, True])
def test_a_terminal_that_is_too_narrow_loses_no_cell(aligned):
    names = tuple(f"column{number}" for number in range(12))
    wide = Table(
        title="A title that is longer than any line " * 3, columns=names, rows=(tuple(range(12)),) * 2
    )
    shown = printed([wide, wide], width=30, aligned=aligned)
    assert all(name in shown for name in names)
    last = [line.split() for line in shown.splitlines() if line.startswith("0 ")]
    assert last == [[str(number) for number in range(12)]] * 4
    long = Table(title="", columns=("key", "n"), rows=(("model.warmup." * 9, 1),))
    for width in (30, 1):
        shown = printed([long], width=width, aligned=aligned)
        assert "…" not in shown
        assert shown.split()[-1] == "1"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((0, "0 s"), (59.4, "59 s"), (59.7, "1 min"), (90, "2 min")),
        *((3569, "59 min"), (3570, "1.0 h"), (7200, "2.0 h")),
        *((86_210, "23.9 h"), (86_399, "1.0 d"), (200_000, "2.3 d")),
    ],
)
def test_durations(seconds, said):
    assert duration(seconds) == said


# -- Markdown, judged by a CommonMark parser


@given(TEXTS)
@example("<script>x</script> <!-- --> [a](javascript:x) ![x](y) `</td>` a | b **b** ~~gone~~ &lt;b&gt; \\<b>")
def test_a_line_a_cell_and_an_item_show_the_text_and_nothing_else(content):
    cell = to_markdown(Table(title="", columns=("what", "n"), rows=((f"x {content} x", 1),)))
    rendered = (f"x {plain(content)} x", 0, 1), (bullets([f"x {content} x"]), 0, 1), (cell, 2, 4)
    for markdown, place, number in rendered:
        lines = [token.children for token in parser.parse(markdown) if token.type == "inline"]
        assert len(lines) == number
        assert {child.type for child in lines[place]} <= {"text", "text_special"}
        assert "".join(child.content for child in lines[place]).split() == ["x", *content.split(), "x"]


@given(TEXTS)
def test_a_fence_holds_the_text_verbatim(content):
    (token,) = parser.parse(fenced(content, "text"))
    assert (token.type, token.info, token.content) == ("fence", "text", f"{content.rstrip()}\n")
