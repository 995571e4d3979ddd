"""What an evaluation says of a model and its base: paired by problem, domains alike, the numbers of the records."""

import re

import pytest

from prorl.lab.results import (
    Pair,
    evaluation_tables,
    gain_tables,
    gains,
    newest_pairs,
    problems_moved,
    rate_tables,
)
from prorl.lab.tables import text
from support.evaluations import evaluation as named
from support.evaluations import result as solved
from support.evaluations import results
from support.stories import evaluation, keep, result

BASE = evaluation([result(0, 0), result(1, 2), result(2, 4, domain="code", task="one_liner")], step=None)
AFTER = evaluation([result(0, 1), result(1, 4), result(2, 2, domain="code", task="one_liner")])
BEFORE = named("base", results([0, 2, 0, 3], 4), step=0)
TRAINED = named("step_000009", results([2, 4, 0, 0], 4), step=9)


def pair(base, trained):
    return Pair(base=base, trained=trained)


def pairs(folder, **about):
    return newest_pairs(folder, report=pytest.fail, **about)


def rates(base, trained):
    """Base and trained rate by part, domain and k."""
    return {
        (found.part, label, of_k.k): (of_k.base, of_k.trained)
        for found in gains(pair(base, trained))
        for label, of_domain in found.rows.items()
        for of_k in of_domain
    }


def row(tables, title, label):
    """The cells of a row of the first table whose title begins so."""
    table = next(table for table in tables if table.title.startswith(title))
    cells = next(cells for cells in table.rows if text(cells[0]) == label)
    return [text(cell) for cell in cells]


# -- base → trained


def test_pass_rates_by_hand():
    assert rates(BASE, AFTER) == {
        ("test", "math", 1): (0.25, 0.625),
        ("test", "code", 1): (1.0, 0.5),
        ("test", "mean", 1): (0.625, 0.5625),
        ("test", "math", 4): (0.5, 1.0),
        ("test", "code", 4): (1.0, 1.0),
        ("test", "mean", 4): (0.75, 1.0),
    }


def test_parts_stay_apart_levels_are_one_and_single_samples_have_one_k():
    parts = [result(0, 2), result(0, 0, part="ood"), result(0, 4, part="levels")]
    found = rates(evaluation(parts), evaluation([result(0, 4), result(0, 1, part="ood"), parts[2]]))
    assert {part: found[part, "math", 1] for part in ("test", "ood", "levels")} == {
        "test": (0.5, 1.0),
        "ood": (0.0, 0.25),
        "levels": (1.0, 1.0),
    }
    single = evaluation([result(0, 1, samples=1)], samples=1)
    assert pair(single, single).ks == (1,)


@pytest.mark.parametrize(("up_to", "step"), [(None, 10), (10, 10), (9, 4)])
def test_the_newest_checkpoint_that_was_measured_counts(tmp_path, up_to, step):
    keep(tmp_path, BASE, AFTER, evaluation(BASE.problems, step=10))
    assert [found.trained.step for found in pairs(tmp_path, up_to=up_to)] == [step]


def test_every_evaluation_that_has_both_is_told(tmp_path):
    assert pairs(tmp_path) == []
    keep(tmp_path, BASE, AFTER)
    keep(tmp_path, BASE, AFTER, name="evaluation")
    keep(tmp_path, BASE, name="begun")
    assert {found.evaluation for found in pairs(tmp_path)} == {"measurement", "evaluation"}
    assert pairs(tmp_path, up_to=0) == pairs(tmp_path, up_to=3) == []


@pytest.mark.parametrize("name", ["base.parquet", "step_000004.parquet", "rules.json"])
def test_an_evaluation_that_cannot_be_read_is_said_and_the_others_are_told(tmp_path, name):
    for kind in ("measurement", "evaluation"):
        keep(tmp_path, BASE, AFTER, name=kind)
    broken = tmp_path / "evals" / "measurement" / name
    broken.write_bytes(b"PAR1")
    said: list[str] = []
    assert [found.evaluation for found in newest_pairs(tmp_path, report=said.append)] == ["evaluation"]
    assert len(said) == 1
    assert str(broken) in said[0]
    assert "measure again" in said[0]


# -- tables


def test_the_table_shows_base_trained_and_the_gain_with_its_interval_at_the_ends_of_k():
    models = named("base", results([0, 2], 4)), named("step_000009", results([2, 4], 4), step=9)
    (table,) = gain_tables(pair(*models), (1, 2, 4))
    assert table.title == "base → step 9: held-out problems"
    gained = ["+50.0 (+50.0 to +50.0)", "+50.0 (+0.0 to +100.0)"]
    assert row([table], "", "math") == ["math", "2", "25.0% → 75.0%", gained[0], "50.0% → 100.0%", gained[1]]
    assert row([table], "", "mean")[2] == "25.0% → 75.0%"


def test_the_rates_of_one_model_have_a_row_per_task_and_per_level():
    problems = [*results([0, 2, 4, 2], 4, task="aime"), *results([4], 4, task="gpqa", domain="stem")]
    levels = [solved(at, 4, part="levels", level=at, index=at) for at in (1, 2)]
    tested, by_level = rate_tables(named("org/model", [*problems, *levels]), (1, 4))
    assert tested.title == "org/model: held-out problems"
    assert [[text(cell) for cell in row] for row in tested.rows] == [
        ["aime", "4", "50.0%", "75.0%"],
        ["gpqa", "1", "100.0%", "100.0%"],
        ["mean", "5", "75.0%", "87.5%"],
    ]
    assert by_level.columns == ("task", "level", "problems", "pass@1", "pass@4")
    assert [text(cell) for cell in by_level.rows[1]] == ["t", "2", "1", "50.0%", "100.0%"]


def test_it_says_who_solves_what_and_a_part_without_votes_has_no_majority():
    tables = evaluation_tables(pair(BEFORE, TRAINED), (1, 4))
    found = row(tables, "Who solves what in 4 tries, beyond guessing", "all")
    assert found == ["all", "held-out", "4", "–", "1", "1", "0", "0.3", "1", "0", "0.3", "1"]
    assert row(tables, "Pattern of each task", "t")[1:3] == ["held-out", "unclear"]
    (pattern,) = (table for table in tables if table.title == "Pattern of each task")
    assert pattern.columns[4:6] == ("pass@1 beyond guessing", "pass@4 beyond guessing")
    assert row(tables, "Answers", "base")[4] == "–"


def test_levels_have_a_row_each():
    def levels(*numbers):
        return [solved(number, 4, part="levels", level=level) for level, number in enumerate(numbers, 1)]

    models = named("base", levels(4, 1, 0)), named("step_000009", levels(4, 0, 2), step=9)
    table = evaluation_tables(pair(*models), (1, 4))[-1]
    assert table.title == "By difficulty level"
    assert [text(cell) for cell in table.rows[-1]] == ["t", "3", "0% → 50%", "0% → 100%", "–", "1", "0"]


def test_one_k_is_enough_and_what_nobody_was_asked_is_not_shown():
    assert evaluation_tables(pair(BEFORE, TRAINED), (1,))[0].columns[2:] == ("pass@1", "gain in pass@1")
    other = named("step_000009", results([1], 4, task="other"), step=9)
    assert evaluation_tables(pair(BEFORE, other), (1,)) == []


def test_what_takes_several_tries_is_not_told_of_one():
    models = named("base", results([0, 1, 1], 1), step=0), named("step_000009", results([1, 0, 1], 1), step=9)
    tables = evaluation_tables(pair(*models), (1,))
    found = row(tables, "Who solves what at the first try, beyond guessing", "all")
    assert found == ["all", "held-out", "3", "–", "1", "1", "–", "–", "1", "–", "–", "0"]
    told = problems_moved(pair(*models).moves("test"), 1)
    assert told == "At the first try and beyond guessing 1 of 3 problems are new and 1 lost."
    seen = [
        (*table.columns, table.title, *(text(cell) for row in table.rows for cell in row)) for table in tables
    ]
    assert not [
        one for cells in seen for one in cells if re.search(r"of the tries|Pattern|maj@|1 tries", one)
    ]
