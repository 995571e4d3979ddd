"""prorl from Python: a run is trained, resumed, evaluated and read as tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import prorl
from prorl.envs.files import encode_json
from prorl.run import checkpoint
from support.runs import events


@pytest.fixture(scope="module")
def view(trained):
    return prorl.open_run(trained)


def test_importing_prorl_is_light_and_has_a_version():
    light = "import prorl, sys; assert not {'torch', 'pydantic'} & sys.modules.keys(); prorl.__version__"
    subprocess.run([sys.executable, "-c", light], check=True)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        prorl.trian  # noqa: B018


def test_the_steps_of_a_run_are_a_table_of_numbers(view):
    steps = view.steps
    assert steps["step"].to_pylist() == [1, 2, 3]
    assert str(steps["step"].type) == "int64"
    assert {"rollout_stats.score", "update.kl", "seconds.total"} <= set(steps.column_names)


def test_events_are_those_of_the_journal(view, trained):
    found = view.events.to_pylist()
    kinds = [event.kind for event in events(trained) if event.kind != "stepped"]
    assert [row["kind"] for row in found] == kinds
    assert json.loads(found[0]["event"])["environment"]["backend"] == "local"


def test_evaluations_and_rollouts_are_tables(view):
    evaluations = view.evaluations.to_pylist()
    assert {row["model"] for row in evaluations} == {"base", "step_000003"}
    assert {row["evaluation"] for row in evaluations} == {"measurement"}
    assert all(0 <= row["solved"] <= row["samples"] for row in evaluations)
    rollouts = view.rollouts.to_pylist()
    assert {row["task"] for row in rollouts} <= {"arithmetic", "word_list"}
    assert {row["step"] for row in rollouts} <= {0, 1, 2, 3}


def test_rollouts_may_hold_whatever_models_write(tmp_path):
    said = "a line\u2028another\x85one \ud83d"
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples/step_000007.jsonl").write_bytes(encode_json({"response": said, "score": 1.0}))
    (row,) = prorl.RunView(tmp_path).rollouts.to_pylist()
    assert row == {"step": 7, "response": "a line\u2028another\x85one ?", "score": 1.0}


@pytest.mark.parametrize("damaged", [b"{", b"\xff", b"[]"])
def test_a_damaged_recipe_is_told_in_one_sentence(tmp_path, damaged):
    (tmp_path / "config.json").write_bytes(damaged)
    (tmp_path / "journal.jsonl").touch()
    with pytest.raises(prorl.ProrlError, match="undo what was changed in it"):
        prorl.RunView(tmp_path).config  # noqa: B018


def test_a_run_is_trained_and_evaluated_from_python(write_recipe, workplace):
    config = prorl.load_recipe(str(write_recipe(workplace)))
    run = prorl.train(config, "steps=1", run="runs/mine")
    assert (run.config.steps, run.health) == (1, "done")
    tables = prorl.evaluate("runs/mine", "evaluation.per_domain=2", "evaluation.per_level=1", k=2)
    assert tables
    assert "evaluation" in {row["evaluation"] for row in run.evaluations.to_pylist()}
    assert prorl.resume("mine").health == "done"
    for k in ([], [0, 4], 0):
        with pytest.raises(prorl.ProrlError, match="say at least one number from 1 up"):
            prorl.evaluate("runs/mine", k=k)
    with pytest.raises(prorl.ProrlError, match="known recipes are"):
        prorl.train("nanno")
    with pytest.raises(prorl.ProrlError, match="nowhere"):
        prorl.train(Path("nowhere.yaml"))
    with pytest.raises(prorl.ProrlError):
        prorl.open_run("nowhere")


def test_a_run_that_stops_for_want_of_memory_is_not_returned_as_if_it_had_been_asked_to(
    write_recipe, workplace, monkeypatch
):
    with monkeypatch.context() as full:
        full.setattr(checkpoint, "machine_memory", lambda: (1 << 30, 1))
        with pytest.raises(prorl.ProrlError, match=r"stopped, saved, before memory .* `prorl.resume`"):
            prorl.train(str(write_recipe(workplace)), run="runs/mine")
    assert prorl.resume("mine").health == "done"


@pytest.mark.slow
def test_a_recipe_may_name_a_tracker_that_follows_the_run(write_recipe, workplace, monkeypatch):
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(workplace / "trackio"))
    run = prorl.train(str(write_recipe(workplace)), "log=trackio", run="runs/mine")
    assert json.loads((run.folder / "logged.json").read_bytes())["trackio"] == 3
    assert "trackio" in (run.folder / "log.txt").read_text()
