"""The commands as a person uses them, and Ctrl-C as a terminal sends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from prorl import __version__
from prorl.cli import app
from prorl.director.events import Resumed, Stopped
from prorl.run.status import holder
from support.commands import done, refused, tree
from support.runs import events, folders, of_kind

# -- what the program says about itself


def test_version():
    assert done("--version").strip() == __version__


@pytest.mark.parametrize("command", ["train", "resume", "status", "lineage", "eval"])
def test_every_command_shows_examples(command):
    assert command in done("--help")
    text = done(command, "--help")
    assert "Examples:" in text
    assert f"prorl {command} " in text


def test_every_command_is_tested_here():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names == {"train", "resume", "status", "lineage", "eval"}


# -- what the commands do


def test_a_dry_run_resolves_and_estimates_and_touches_nothing(recipe, workplace):
    before = tree(workplace)
    text = done("train", recipe, "optimizer.lr=0.5", "--dry-run")
    assert "lr: 0.5" in text
    assert "# memory" in text
    assert tree(workplace) == before


def test_train_names_the_run_after_its_recipe_and_ends_with_a_comparison(recipe, workplace):
    text = done("train", recipe, "steps=1")
    assert "step 1/1" in text
    assert "base → step 000001: held-out problems" in text
    assert events(workplace / "runs" / "tiny")[-1] == Stopped(step=1, reason="done")


def test_eval_of_a_run_repeats_its_last_measurement(run):
    measured = (run / "evals" / "step_000003.json").read_bytes()
    (run / "evals" / "step_000003.json").unlink()
    journal = (run / "journal.jsonl").read_bytes()
    text = done("eval", "tiny")
    assert "base → step 000003: held-out problems" in text
    assert "out of domain" in text
    assert (run / "evals" / "step_000003.json").read_bytes() == measured
    assert (run / "journal.jsonl").read_bytes() == journal


def test_eval_of_a_model_asks_the_problems_of_a_recipe(recipe, models, workplace):
    before = tree(workplace)
    text = done("eval", models["qwen3"], "--recipe", recipe)
    assert "held-out problems" in text
    assert "pass@2" in text
    assert tree(workplace) == before


def test_resume_of_a_finished_run_changes_no_weight(run):
    weights = (run / "checkpoints" / "step_000003" / "model.safetensors").read_bytes()
    assert "resumed from the checkpoint of step 3" in done("resume", "tiny")
    assert (run / "checkpoints" / "step_000003" / "model.safetensors").read_bytes() == weights


def test_resume_may_repeat_what_the_recipe_says_anyway(run):
    done("resume", "tiny", "steps=3")


def test_a_branch_goes_on_beside_its_parent(run, workplace):
    before = tree(run)
    text = done("train", "--branch", "tiny@3", "steps=4", "optimizer.lr=1e-3", "--run", "runs/longer")
    assert "a branch of tiny@3" in text
    assert "step 4/4" in text
    branch = workplace / "runs" / "longer"
    assert [event.branched_from for event in of_kind(branch, Resumed)] == ["tiny@3"]
    assert json.loads((branch / "config.json").read_bytes())["optimizer"]["lr"] == 1e-3
    assert tree(run) == before


# -- a run that is stopped from outside


@pytest.fixture
def training(workplace, write_recipe) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a training that would take long and wait until it has said something."""
    started: list[subprocess.Popen[str]] = []

    def start(until: str) -> subprocess.Popen[str]:
        recipe = write_recipe(workplace, steps=30, save={"every": 1000}, exam={"every": 0}, sample_every=0)
        process = subprocess.Popen(
            [sys.executable, "-m", "prorl", "train", recipe],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        for line in process.stdout:
            if line.startswith(until):
                return process
        raise AssertionError(process.stderr.read())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_ctrl_c_saves_says_how_to_go_on_and_the_run_can_be_finished(training, workplace):
    process = training(until="step 2/30")
    busy = refused("resume", "tiny")
    trainer = holder(workplace / "runs" / "tiny")
    assert f"is being trained by process {trainer}" in busy
    assert trainer != process.pid, "the trainer is the child of its supervisor"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group hears it
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stderr == ""
    run = workplace / "runs" / "tiny"
    (stopped,) = of_kind(run, Stopped)
    assert stopped.reason == "interrupted"
    assert 2 <= stopped.step < 30
    assert folders(run / "checkpoints") == ["step_000000", f"step_{stopped.step:06d}"]
    assert f"saved at step {stopped.step}; go on with: prorl resume runs/tiny" in stdout
    assert f"step {stopped.step + 1}/30" in done("resume", "tiny")
    assert events(run)[-1] == Stopped(step=30, reason="done")
