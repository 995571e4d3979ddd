"""`prorl report` on run directories, finished or in progress, and the report that ends a run."""

import os

from prorl.cli.runs import report_at_the_end
from support import events
from support.commands import done, tables
from support.journals import run_with

STEPS = [events.stepped(step) for step in range(1, 4)]


def test_one_run_has_its_report_beside_it_and_several_have_theirs_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_with(tmp_path / "runs" / "a", STEPS)
    run_with(tmp_path / "runs" / "b", STEPS, seed=1)
    assert done("report", "a").strip() == os.path.join("runs", "a", "report.html")
    assert done("report", "a", "b", "a").strip() == "report.html"
    assert "<title>a, b</title>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    found = {table["title"]: table["rows"] for table in tables("report", "a", "b")}
    assert found["Summary: recipe"] == [{"": "seed", "a, b": {"values": ["0", "1"]}}]


def test_a_run_that_has_not_made_a_step_has_a_report(tmp_path):
    done("report", run_with(tmp_path / "new", []), "--out", tmp_path / "deep" / "file.html")
    assert (tmp_path / "deep" / "file.html").stat().st_size > 1_000_000


def test_a_run_does_not_fail_for_want_of_a_report(tmp_path, capsys):
    folder = run_with(tmp_path / "a", STEPS)
    report_at_the_end(folder)
    assert f"report: {folder / 'report.html'}" in capsys.readouterr().out
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()
    report_at_the_end(folder)
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "the run is complete" in sentence
