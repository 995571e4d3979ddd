"""How runs are named, and which folder a name means."""

from pathlib import Path

import pytest

from prorl.envs.errors import ProrlError
from prorl.run.layout import RUNS, is_born, run_at, run_folder


@pytest.mark.parametrize("holds", [None, "", "config.json"])  # nothing, a folder, a model of the same name
def test_a_name_means_the_run_below_runs_whatever_else_has_it(tmp_path, monkeypatch, holds):
    monkeypatch.chdir(tmp_path)
    (RUNS / "nano").mkdir(parents=True)
    (RUNS / "nano" / "journal.jsonl").touch()
    if holds is not None:
        (tmp_path / "nano").mkdir()
        (tmp_path / "nano" / holds).touch()
    assert run_at("nano@30") == (RUNS / "nano", 30)


def test_a_run_as_given_comes_first_and_what_is_nowhere_is_as_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (Path("nano"), RUNS / "nano"):
        folder.mkdir(parents=True)
        (folder / "journal.jsonl").touch()
    (RUNS / "torn").mkdir()
    assert [run_folder(Path(name)) for name in ("nano", "torn", "none")] == [
        Path("nano"),
        RUNS / "torn",
        Path("none"),
    ]


@pytest.mark.parametrize("said", ["nano@", "nano@last", "nano@-1"])
def test_a_step_is_a_number(said):
    with pytest.raises(ProrlError, match=f"{said}: say RUN@STEP"):
        run_at(said)


def test_a_folder_that_cannot_be_looked_into_holds_no_checkpoint(tmp_path):
    assert not is_born(tmp_path / (300 * "n"))
