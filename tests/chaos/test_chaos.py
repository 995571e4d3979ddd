"""A run whose processes are killed and stopped at random moments, again and again, computes what it always computes.

`make chaos` does so more often.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from prorl.config.recipe import load_recipe
from prorl.director.events import Evaluated, ReferenceReset, Stepped
from prorl.launch import start_run
from support.runs import contents, folders, of_kind, quiet, timeless
from support.tiny import write_model, write_recipe

FAULTS = int(os.environ.get("CHAOS_KILLS", "6"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
STEPS = 12
KILLER = Path(__file__).parent / "killer.py"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    # A random model hits upon whole answers, so that there are programs to be run.
    answers = [f"<answer>x{one}{number}</answer>" for one in "+-*%" for number in range(1, 100)]
    model = write_model(folder / "model", "llama", layers=1, words=answers)
    return write_recipe(
        folder,
        model,
        name="chaos",
        steps=STEPS,
        tasks={"arithmetic": {"levels": {1: 1}}, "word_list": {}, "one_liner": {"levels": {1: 1}}},
        judge={"workers": 2},
        reset={"every": 3, "cooldown": 0},
        exam={"every": 4, "per_domain": 2, "samples": 2},
        save={"every": 2, "keep_last": 2},
        evaluation={"per_domain": 2, "ood_per_domain": 0, "samples": 2},
    )


@pytest.fixture(scope="module")
def uninterrupted(recipe, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert start_run(load_recipe(str(recipe)), run, quiet()).stopped == "done"
    return run


def test_the_run_has_what_could_go_wrong(uninterrupted):
    assert len(of_kind(uninterrupted, ReferenceReset)) == 4
    assert len(of_kind(uninterrupted, Evaluated)) == 4
    assert len(folders(uninterrupted / "checkpoints")) >= 3
    samples = "".join(path.read_text() for path in (uninterrupted / "samples").iterdir())
    assert "passed" in samples


def test_faults_change_no_bit(recipe, uninterrupted, tmp_path):
    tests = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, KILLER, recipe, tmp_path, str(SEED), str(FAULTS)]
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    print(report["runs"], Counter(report["faults"]))
    assert len(report["faults"]) >= FAULTS
    for number in range(report["runs"]):
        run = tmp_path / f"run_{number}"
        assert contents(run) == contents(uninterrupted)
        assert timeless(run) == timeless(uninterrupted)
        assert [step.step for step in of_kind(run, Stepped)] == list(range(1, STEPS + 1))
        assert not list(run.rglob(".*")), "what the killed trainers left unfinished is removed"
