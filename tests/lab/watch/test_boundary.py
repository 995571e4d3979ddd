"""A study on a terminal: the numbers of the records, on eighty columns."""

from io import StringIO

import pytest
from rich.console import Console as RichConsole

from prorl.lab.watch.boundary import show_boundary, show_gains, show_rates
from prorl.lab.watch.console import Console
from support.studies import result, results, study, voted

BASE = study("base", results([0, 2, 0, 3], 4), step=0)
TRAINED = study("step_000009", results([2, 4, 0, 0], 4), step=9)


@pytest.fixture
def console() -> Console:
    return Console(RichConsole(file=StringIO(), force_terminal=True, record=True, width=80))


def row(text: str, label: str) -> list[str]:
    """The cells of the first row that begins with a label."""
    line = next(line for line in text.splitlines() if line.replace("│", " ").split()[:1] == [label])
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_the_table_shows_base_trained_and_the_gain_with_its_interval(console):
    show_gains(
        console, study("base", results([0, 2], 4)), study("step_000009", results([2, 4], 4), step=9), (1, 4)
    )
    text = console.rich.export_text()
    assert "base → step 000009: held-out problems" in text
    assert row(text, "math") == [
        "math",
        "2",
        "25.0% → 75.0%",
        "50.0% → 100.0%",
        "+50.0% [+50.0%, +50.0%]",
    ]
    assert "mean" in text
    assert "out of domain" not in text


def test_the_rates_of_one_model_have_a_row_per_task(console):
    problems = [*results([0, 2, 4, 2], 4, task="aime"), *results([4], 4, task="gpqa", domain="stem")]
    show_rates(console, study("org/model", problems), (1, 4))
    text = console.rich.export_text()
    assert "org/model: held-out problems" in text
    assert row(text, "aime") == ["aime", "4", "50.0%", "75.0%"]
    assert row(text, "gpqa") == ["gpqa", "1", "100.0%", "100.0%"]
    assert row(text, "mean") == ["mean", "5", "75.0%", "87.5%"]


def test_it_says_who_solves_what(console):
    show_boundary(console, BASE, TRAINED, None, (1, 4))
    text = console.rich.export_text()
    assert "who solves what in 4 tries" in text
    assert row(text, "all")[1:] == ["1", "1", "0", "1", "0", "0.3", "1"]
    assert "unclear" in text


def test_format_failures_are_shown_apart(console):
    base = study("base", [voted({"a": (1, True), "b": (1, False)}, silent=6)])
    show_boundary(console, base, study("step_000009", [voted({"a": (8, True)})], step=9), None, (1, 8))
    text = console.rich.export_text()
    answers = text[text.index("answers, held-out problems") :]
    assert row(answers, "base") == ["base", "75.0%", "0.0%", "50.0%", "50.0%", "9.0"]


def test_a_part_without_votes_has_no_majority(console):
    show_boundary(console, BASE, TRAINED, None, (1, 4))
    text = console.rich.export_text()
    assert row(text[text.index("answers") :], "base")[4] == "–"


def test_ladders_have_a_row_per_level(console):
    def ladder(*solved):
        return [
            result(number, 4, part="ladder", level=level, index=0) for level, number in enumerate(solved, 1)
        ]

    show_boundary(
        console, study("base", ladder(4, 1, 0)), study("step_000009", ladder(4, 0, 2), step=9), None, (1, 4)
    )
    text = console.rich.export_text()
    assert "difficulty ladders" in text
    assert ["t", "3", "0% → 50%", "0% → 100%", "1", "0"] in [
        [cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines()
    ]


def test_one_k_is_enough(console):
    show_boundary(console, BASE, TRAINED, None, (1,))
    assert "pass@1" in console.rich.export_text()


def test_what_nobody_was_asked_is_not_shown(console):
    show_gains(console, BASE, study("step_000009", results([1], 4, task="other"), step=9), (1,))
    assert console.rich.export_text() == ""
