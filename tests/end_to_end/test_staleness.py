"""Learning from samples one update old, on the real local backend: measured, corrected for, and resumable."""

from __future__ import annotations

from pathlib import Path

import pytest

from prorl.config.recipe import load_recipe
from prorl.config.schema import RunConfig
from prorl.control.events import Stepped
from prorl.session import resume_run, start_run
from support.runs import CtrlC, contents, of_kind, quiet, timeless

STALE = {
    "steps": 6,
    "sampling": {"prompts_per_step": 3, "samples_per_prompt": 4, "response_limit": 16, "max_staleness": 1},
    "mismatch": {"kind": "tis"},
    "learner": {"old_logprobs": "learner"},
    "validation": {"every": 0},
    "reset": {"every": 0},
    "save": {"every": 3},
}


@pytest.fixture(scope="module")
def config(write_recipe, tmp_path_factory) -> RunConfig:
    return load_recipe(str(write_recipe(tmp_path_factory.mktemp("recipe"), **STALE)))


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert start_run(config, run, quiet()).stopped == "done"
    return run


def test_the_mismatch_is_that_of_one_update(finished):
    steps = of_kind(finished, Stepped)
    assert [step.staleness for step in steps] == [0, 1, 1, 0, 1, 1]
    assert all((step.update.mismatch > 1e-3) == bool(step.staleness) for step in steps)
    assert all(step.update.mismatch < 1e-5 for step in steps if not step.staleness)


def test_a_run_that_stops_at_a_checkpoint_goes_on_bit_for_bit(config, finished, tmp_path):
    run = tmp_path / "run"
    assert start_run(config, run, CtrlC(3)).step == 3
    assert resume_run(run, quiet()).stopped == "done"
    assert contents(run) == contents(finished)
    assert timeless(run) == timeless(finished)
