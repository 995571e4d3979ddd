"""The commands as a person uses them, and Ctrl-C as a terminal sends it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from prorl import __version__
from prorl.cli import app
from prorl.control.decide import TOLD_TO_STOP
from prorl.control.events import CommandGiven, Resumed, Stepped, Stopped
from prorl.envs.sandbox.sandbox import probe
from prorl.run.layout import holder
from support.commands import done, prorl, refused, tables, tree
from support.runs import events, folders, of_kind

# -- what the program says about itself


def test_version():
    assert done("--version").strip() == __version__


ALONE = "train resume eval creativity report dashboard status compare export tell log new doctor"
COMMANDS = (*ALONE.split(), "tasks list", "tasks show", "tasks check", "data prepare")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_examples(command):
    words = command.split()
    assert words[0] in done("--help")
    text = done(*words, "--help")
    assert "Example" in text
    assert f"prorl {command}" in " ".join(text.split())


def test_every_command_is_tested_here():
    groups = [("", app), *((group.name + " ", group.typer_instance) for group in app.registered_groups)]
    names = {
        prefix + (command.name or command.callback.__name__)
        for prefix, part in groups
        for command in part.registered_commands
    }
    assert names == set(COMMANDS)


def test_a_problem_is_shown_with_its_solution():
    assert "-- a solution: " in done("tasks", "show", "countdown", 3)
    assert "did you mean 'countdown'?" in refused("tasks", "show", "coundown")
    assert "countdown has no nowhere problems" in refused("tasks", "show", "countdown", "--split", "nowhere")


def test_the_tasks_of_a_recipe_are_listed():
    listed = done("tasks", "list", "--recipe", "nano")
    assert "one_liner" in listed
    assert "arithmetic" not in listed


def test_the_doctor_names_the_tier_that_a_run_would_use():
    assert f"tier {probe()[1]} " in done("doctor")


def test_the_doctor_places_a_recipe_on_gpus_that_are_not_here():
    wanted = ("doctor", "--recipe", "prorl_v2")
    text = done(*wanted, "--gpus", "16", "sampling.response_limit=16384")
    assert "placement on 16 GPUs of 80 GiB in 2 nodes" in text
    assert "16 engines of 1 GPU, 16 learner ranks" in text
    assert "as settings: cluster.learners=16 cluster.engines=16 cluster.colocate=true" in text
    assert "everything fits" in text
    assert "--recipe" in refused("doctor", "sampling.response_limit=16384")
    uneven = refused("doctor", "--recipe", "nano", "--gpus", "3", "--nodes", "2")
    assert "3 GPUs do not spread evenly over 2 nodes" in uneven
    told = done(*wanted, "cluster.learners=12", "cluster.engines=20")
    assert "placement on 32 GPUs of 80 GiB in 4 nodes" in told
    assert "20 engines of 1 GPU, 12 learner ranks" in told


@pytest.mark.skipif(find_spec("ray") is not None, reason="a machine that has it")
def test_the_doctor_of_clusters_says_what_is_missing():
    assert "needs ray" in refused("doctor", "--backend", "ray")
    assert "make cluster-env" in refused("doctor", "--backend", "ray", "--recipe", "nano")


def test_the_doctor_refuses_what_means_nothing():
    assert "--backend ray" in refused("doctor", "--address", "auto")
    placed = refused("doctor", "--recipe", "nano", "--gpus", "8", "steps=5", "cluster.engines=4")
    assert placed == "--gpus chooses the placement itself: leave out cluster.engines=4, or leave out --gpus"
    wanted = ("doctor", "--recipe", "prorl_v2")
    told = refused(*wanted, "--separate", "cluster.learners=12", "cluster.engines=20")
    assert told == "the recipe says where its processes go: leave out --separate, or add --gpus"
    told = refused(*wanted, "--backend", "ray", "--gpu-memory", "24")
    assert told.startswith("--gpu-memory is about GPUs that may not be there: add --gpus, or leave it out")
    staleness = ("sampling.max_staleness=1", "mismatch.kind=tis", "learner.old_logprobs=learner")
    assert "leave out --separate and sampling.max_staleness" in refused(*wanted, "--gpus", "1", *staleness)
    for option in (("--gpu-memory", "inf"), ("--gpus", "5000"), ("--gpus", "8", "--nodes", "5000")):
        assert prorl(*wanted, *option).exit_code == 2


def test_the_doctor_plans_what_suits_several_ranks_and_refuses_it_for_one(tmp_path):
    recipe = tmp_path / "shared.yaml"
    recipe.write_text("extends: prorl_v2\nbackend: ray\ncluster: {colocate: true, learners: 2, engines: 2}\n")
    wanted = ("doctor", "--recipe", recipe, "--separate", "--gpus")
    text = done(*wanted, "32", "cluster.offload=true")
    assert "cluster.learners=8 cluster.engines=24 cluster.colocate=false cluster.tensor_parallel=1" in text
    assert "moments" not in text
    assert "but cluster.learners is 1" in refused(*wanted, "4", "cluster.offload=true")
    assert "cluster.learners=1 cluster.engines=3" in done(*wanted, "4")


def test_a_recipe_without_data_sets_has_nothing_to_prepare():
    assert "names no data sets" in done("data", "prepare", "nano")


# -- what the commands do


def test_a_dry_run_resolves_and_estimates_and_touches_nothing(recipe, workplace):
    before = tree(workplace)
    text = done("train", recipe, "optimizer.lr=0.5", "--dry-run")
    assert "lr: 0.5" in text
    assert "# memory" in text
    assert tree(workplace) == before


def test_a_dry_run_of_a_branch_trains_nothing(run, workplace):
    before = tree(workplace / "runs")
    text = done("train", "--branch", "tiny@2", "optimizer.lr=0.5", "--dry-run")
    assert "lr: 0.5" in text
    assert tree(workplace / "runs") == before


def test_train_names_the_run_after_its_recipe_and_ends_with_a_comparison(recipe, workplace):
    text = done("train", recipe, "steps=1")
    assert "step 1/1" in text
    assert "base → step 1: held-out problems" in text
    assert events(workplace / "runs" / "tiny")[-1] == Stopped(step=1, reason="done")


def test_resume_of_a_finished_run_changes_no_weight(run):
    weights = (run / "checkpoints" / "step_000003" / "model.safetensors").read_bytes()
    assert "resumed from the checkpoint of step 3" in done("resume", "tiny")
    assert (run / "checkpoints" / "step_000003" / "model.safetensors").read_bytes() == weights


def test_resume_may_repeat_what_the_recipe_says_anyway(run):
    done("resume", "tiny", "steps=3")


def test_settings_of_a_cluster_are_refused_where_nothing_is_computed_on_one(run, recipe, workplace):
    for command in (("train", recipe, "--run", "new"), ("resume", "tiny"), ("train", "--branch", "tiny@3")):
        said = refused(*command, "cluster.learners=8", untouched=workplace)
        assert said == "cluster.learners=8 has no effect in one process: add --backend ray"
    for command in (("train", recipe, "--dry-run"), ("resume", "tiny"), ("eval", "tiny", "--k", "2")):
        said = refused(*command, "--address", "auto", untouched=workplace)
        assert said == "cluster.address=auto has no effect in one process: add --backend ray"


def test_a_branch_goes_on_beside_its_parent(run, workplace):
    before = tree(run)
    text = done("train", "--branch", "tiny@3", "steps=4", "optimizer.lr=1e-3", "name=longer")
    assert "a branch of tiny@3" in text
    assert "step 4/4" in text
    branch = workplace / "runs" / "longer"
    assert [event.branched_from for event in of_kind(branch, Resumed)] == ["tiny@3"]
    assert json.loads((branch / "config.json").read_bytes())["optimizer"]["lr"] == 1e-3
    assert tree(run) == before


def test_status_of_all_runs_and_of_one(run, workplace):
    shutil.copytree(run, workplace / "runs" / "other")
    text = done("status")
    assert [line.split()[:3] for line in text.splitlines()[1:3]] == [["other", "3", "3"], ["tiny", "3", "3"]]
    assert "stopped after step 3: done" in text
    assert "other" not in done("status", "tiny")


def test_status_of_nothing(workplace):
    assert "no runs below runs/" in done("status")


def test_the_report_shows_references_and_parents(run):
    done("train", "--branch", "tiny@2", "--run", "runs/twig")
    assert "a branch of tiny@2" in Path("runs/twig/report.html").read_text()
    found = {table["title"]: table["rows"] for table in tables("report", "twig")}
    first, last = (list(row.values()) for row in found["Reference lineage"])
    assert first[:4] == ["ref_000", "start", "the base", "new"]
    assert last[:4] == ["ref_001", "schedule", "ref_000", "keep"]
    assert last[5:] == ["stored", 2, 2]


def test_status_and_report_do_without_torch(run):
    for command in ("status", "report"):
        code = (
            f"import sys; sys.argv = ['prorl', {command!r}, 'tiny']\n"
            "from prorl.cli import main\n"
            "try: main()\n"
            "finally: assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


# -- a run that is stopped from outside


@pytest.fixture
def training(workplace, write_recipe) -> Iterator[Callable[..., tuple[subprocess.Popen[str], Path]]]:
    """Start a training that would take long and wait until it has said something; its process and its run."""
    started: list[subprocess.Popen[str]] = []

    def start(until: str, **settings: Any) -> tuple[subprocess.Popen[str], Path]:
        rare = {"save": {"every": 1000}, "validation": {"every": 0}, "sample_every": 0}
        recipe = write_recipe(workplace, steps=30, **(rare | settings))
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
                return process, workplace / "runs" / "tiny"
        raise AssertionError(process.stderr.read())

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_ctrl_c_saves_says_how_to_go_on_and_the_run_can_be_finished(training):
    process, run = training(until="step 2/30")
    busy = refused("resume", "tiny")
    trainer = holder(run)
    assert f"is being trained by process {trainer}" in busy
    assert trainer != process.pid, "the trainer is the child of its supervisor"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group hears it
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stderr == ""
    (stopped,) = of_kind(run, Stopped)
    assert stopped.reason == "interrupted"
    assert 2 <= stopped.step < 30
    assert folders(run / "checkpoints") == ["step_000000", f"step_{stopped.step:06d}"]
    assert f"saved at step {stopped.step}; go on with: prorl resume runs/tiny" in stdout
    assert f"step {stopped.step + 1}/30" in done("resume", "tiny")
    assert events(run)[-1] == Stopped(step=30, reason="done")


@pytest.mark.slow
def test_a_running_training_obeys_what_it_is_told(training):
    process, run = training(until="step 2/30")
    done("tell", "tiny", "kl.coef=0.5", "--yes")
    done("tell", "tiny", "stop")
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, "")
    assert [(command.name, command.refused) for command in of_kind(run, CommandGiven)] == [
        ("set", None),
        ("stop", None),
    ]
    assert events(run)[-1].reason == TOLD_TO_STOP
    assert "go on with: prorl resume runs/tiny" in stdout


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "status"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 75)])
def test_a_scheduler_that_wants_the_machine_back_gets_a_saved_run(training, kind, status):
    process, run = training(until="step 1/30")
    process.send_signal(kind)  # the supervisor alone: it passes it on
    process.communicate(timeout=120)
    assert process.returncode == status
    (stopped,) = of_kind(run, Stopped)
    assert folders(run / "checkpoints")[-1] == f"step_{stopped.step:06d}"


@pytest.mark.slow
def test_a_trainer_that_is_killed_is_started_again_and_the_run_ends(training):
    process, run = training(until="step 3/30")
    os.kill(holder(run), signal.SIGKILL)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "was killed by SIGKILL at step" in (run / "supervisor.log").read_text()
    assert [step.step for step in of_kind(run, Stepped)] == list(range(1, 31))
    assert len(of_kind(run, Resumed)) == 1


@pytest.mark.slow
def test_a_trainer_that_hangs_is_killed_and_the_run_ends(training):
    phases = ("generate", "judge", "learn", "sync", "validation", "measure", "save", "between")
    process, run = training(until="step 3/30", deadlines=dict.fromkeys(phases, 5.0))
    os.kill(holder(run), signal.SIGSTOP)
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    assert "no sign of life for 5 s in phase" in (run / "supervisor.log").read_text()
    assert [step.step for step in of_kind(run, Stepped)] == list(range(1, 31))
