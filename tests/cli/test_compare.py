"""`prorl compare` on run directories, in the state that a user finds them in."""

import json

import pytest

from support.commands import done, prorl, refused
from support.events import evaluated, stepped
from support.stories import STARTED, evaluation, keep, recipe, result, write_run


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two seeds of a recipe and a longer run of another one, below runs/."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for seed, score in ((1, 0.4), (2, 0.6)):
        events = [STARTED, evaluated(0, 0.2), *map(stepped, (1, 2)), evaluated(2, score)]
        write_run(tmp_path / "runs" / f"seed{seed}", events, seed=seed)
    longer = [STARTED, *map(stepped, (1, 2, 3, 4)), evaluated(4, 0.9)]
    write_run(tmp_path / "runs" / "longer", longer, kl=recipe()["kl"] | {"coef": 0.5})
    return tmp_path / "runs"


def line(text, title):
    """The first row of this title and the one below it."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith(title))
    return [lines[at].split(), lines[at + 1].split()]


def data(*arguments):
    """The JSON of a comparison: a row by topic and title."""
    found = json.loads(done("compare", *arguments, "--json"))["tables"]
    return {(table["title"], row[""]): row for table in found for row in table["rows"]}


def test_seeds_share_a_column_with_mean_interval_and_each_run(runs):
    text = done("compare", "seed1", "seed2", "longer")
    assert "mean ± half of its 95 % interval" in text
    assert line(text, "kl.coef")[0] == ["kl.coef", "0.001", "0.5"]
    last = text[text.index("last validation") :]
    assert line(last, "pass@1") == [["pass@1", "50.0%", "±", "127.1%", "90.0%"], ["40.0%,", "60.0%"]]


def test_a_run_alone_keeps_the_interval_of_its_measurement(runs):
    keep(
        runs / "longer",
        evaluation([result(0, 0), result(1, 1)], step=None),
        evaluation([result(0, 2), result(1, 1)]),
    )
    text = done("compare", "longer", "seed1")
    assert line(text, "pass@1, gain")[0] == ["pass@1,", "gain", "+25.0", "(+0.0", "to", "+50.0)", "–"]


def test_a_damaged_measurement_is_said_and_the_rest_is_compared(runs):
    keep(runs / "longer", evaluation([result(0, 0)], step=None), evaluation([result(0, 2)]))
    broken = runs / "longer" / "evals" / "measurement" / "base.parquet"
    broken.write_bytes(broken.read_bytes()[:100])
    ended = prorl("compare", "longer", "seed1")
    assert ended.exit_code == 0
    assert line(ended.stdout, "kl.coef")
    assert "measurement/base.parquet cannot be read" in ended.stderr


def test_json_has_every_value_of_every_run(runs):
    last = data("seed1", "longer", "seed2", "seed1")["last validation", "pass@1"]  # each once
    assert list(last) == ["", "seed1, seed2", "longer"]
    assert last["longer"] == 0.9
    assert last["seed1, seed2"]["values"] == [0.4, 0.6]
    assert last["seed1, seed2"]["mean"]["value"] == 0.5


def test_at_an_earlier_step_later_events_are_not_told(runs):
    found = data("seed1", "longer", "--step", "2")
    assert found["run", "steps"] == {"": "steps", "seed1": 2, "longer": 2}
    assert found["last validation", "pass@1"] == {"": "pass@1", "seed1": 0.4, "longer": None}


def test_a_step_that_a_run_has_not_reached_is_refused(runs):
    assert "seed1 has only 2 steps" in refused("compare", "longer", "seed1", "--step", "3")


def test_a_damaged_journal_is_said_beside_the_state_of_its_run(runs):
    journal = runs / "longer" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"cursor":30', b'"cursor":31'))
    found = data("seed1", "longer")
    assert "damaged at line 4 (byte " in found["run", "state"]["longer"]
    assert (found["run", "steps"]["seed1"], found["run", "steps"]["longer"]) == (2, 4)
