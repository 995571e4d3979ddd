"""`--json` on every command that prints tables: one JSON document, failures on standard error."""

import json
from pathlib import Path

import pytest

from support.commands import done, prorl, refused
from support.stories import evaluation, keep, result, write_run


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = write_run(tmp_path / "runs" / "nano")
    keep(
        folder, evaluation([result(0, 0), result(1, 2)], step=None), evaluation([result(0, 2), result(1, 4)])
    )
    return folder


def tables(*arguments):
    result = prorl(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["tables"]
    assert all(table.keys() == {"title", "notes", "rows"} for table in found)
    return {table["title"]: table["rows"] for table in found}


def test_status(run):
    found = tables("status")
    assert found[""][0]["run"] == "nano"
    assert found[""][0]["validation"] == 0.5
    assert found["last decisions"]
    assert tables("status", "nano")["last decisions"] == found["last decisions"]


def test_status_without_runs_is_an_empty_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tables("status") == {"": []}


def test_the_report_has_the_tables_of_its_page(run):
    found = tables("report", "nano")
    (mean,) = (row for row in found["pass@k: By domain: held-out problems"] if row["domain"] == "mean")
    assert mean["pass@1"] == {"value": 0.75, "base": 0.25}
    assert mean["gain in pass@1"]["value"] == 0.5
    assert [row["reference"] for row in found["Reference lineage"]] == ["ref_000", "ref_001"]
    assert any(row["setting"] == "steps" for row in found["Recipe: What differs from the defaults"])
    assert not (run / "report.html").exists()
    assert "leave out --out" in refused("report", "nano", "--json", "--out", "x.html")
    assert "runs is a folder: say what the file is called" in refused("report", "nano", "--out", "runs")


def test_the_tables_of_a_report_on_runs_of_one_name_have_titles_of_their_own(run, tmp_path):
    other = write_run(tmp_path / "elsewhere" / "nano", seed=9)
    found = json.loads(done("report", "nano", other, "--json"))["tables"]
    titles = [table["title"] for table in found]
    assert len(set(titles)) == len(titles)


def test_tasks():
    (rows,) = tables("tasks", "list", "--recipe", "nano").values()
    assert {row["task"]: row["domain"] for row in rows}["countdown"]
    (rows,) = tables("tasks", "check", "countdown", "--problems", 2).values()
    assert [(row["task"], row["solved"], row["of"], row["faults"]) for row in rows] == [
        ("countdown", 2, 2, "")
    ]


def test_the_doctor():
    found = tables("doctor")
    states = {name: {row["piece"]: row["state"] for row in found[name]} for name in ("speed", "sandbox")}
    assert states["speed"]["cores"] == "ok"
    assert states["sandbox"]["user"] in ("ok", "missing")
    rows = tables("doctor", "--recipe", "prorl_v2", "--gpus", 16)["placement"]
    assert {row["memory"] for row in rows} == {"sampling, per GPU", "learning, per GPU", "host, per node"}
    assert all(row["GiB"] > 0 for row in rows)


def test_failures_are_a_sentence_on_standard_error(run):
    for command in ("status", "compare", "report", "creativity"):
        assert "check the name" in refused(command, "nowhere", "--json")
        assert prorl(command, "nowhere", "--json").stdout == ""
        assert "runs holds no run" in refused(command, "runs", "--json")


@pytest.mark.parametrize(
    "command",
    ["status", "compare", "report", "eval", "creativity", "doctor", "tasks list", "tasks check"],
)
def test_help_says_so(command):
    assert "--json" in done(*command.split(), "--help")
