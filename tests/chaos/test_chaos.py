"""A run whose processes are killed and stopped at random moments, again and again, computes what it always computes.

`make chaos` does so more often.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from prorl.control.events import ReferenceReset, Validated
from support.runs import assert_same, folders, of_kind

FAULTS = int(os.environ.get("CHAOS_KILLS", "6"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
KILLER = Path(__file__).parent / "killer.py"


def test_the_run_has_what_could_go_wrong(uninterrupted):
    assert len(of_kind(uninterrupted, ReferenceReset)) == 4
    assert len(of_kind(uninterrupted, Validated)) == 4
    assert len(folders(uninterrupted / "checkpoints")) >= 3
    samples = "".join(path.read_text() for path in (uninterrupted / "samples").iterdir())
    assert "passed" in samples


def test_every_point_at_which_a_trainer_is_killed_is_there():
    spec = importlib.util.spec_from_file_location("killer", KILLER)
    killer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(killer)
    assert [name for owner, name, _ in killer.points().values() if not hasattr(owner, name)] == []


@pytest.mark.slow
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
        assert_same(run, uninterrupted)
        assert not list(run.rglob(".*")), "what the killed trainers left unfinished is removed"
