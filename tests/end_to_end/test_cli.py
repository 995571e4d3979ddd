"""The commands as a person uses them: what they do, and that every mistake is one sentence that leaves nothing behind."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from prorl import __version__
from prorl.cli import app
from prorl.run.journal import read_journal


def prorl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments: object) -> str:
    """Standard output of a command that succeeds."""
    result = prorl(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def refused(*arguments: object) -> str:
    """The one sentence of a command that fails as it should."""
    result = prorl(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    return sentence(result.exit_code, result.stderr)


def sentence(status: int, stderr: str) -> str:
    lines = stderr.splitlines()
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith("prorl: ")
    return lines[0].removeprefix("prorl: ")


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, files with their content, without locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if path.name != "lock"
    }


def last_event(run: Path) -> dict[str, Any]:
    return list(read_journal(run / "journal.jsonl"))[-1]


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch) -> Path:
    """Every command runs in an empty directory, so that `runs/` is its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recipe(workplace, write_recipe) -> Path:
    return write_recipe(workplace)


@pytest.fixture(scope="module")
def trained(write_recipe, tmp_path_factory) -> Path:
    """A run that is done; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("trained")
    done("train", write_recipe(folder), "--run", folder / "tiny")
    return folder / "tiny"


@pytest.fixture
def run(trained, workplace) -> Path:
    """A copy of the finished run, where commands find it by the name `tiny`."""
    return Path(shutil.copytree(trained, workplace / "runs" / "tiny"))


# -- what the program says about itself


def test_version():
    assert done("--version").strip() == __version__


@pytest.mark.parametrize("command", ["train", "resume", "eval"])
def test_every_command_shows_examples(command):
    assert command in done("--help")
    text = done(command, "--help")
    assert "Examples:" in text
    assert f"prorl {command} " in text


def test_every_command_is_tested_here():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names == {"train", "resume", "eval"}


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
    assert last_event(workplace / "runs" / "tiny")["reason"] == "done"


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


def test_resume_branch_goes_on_beside_its_parent(run, workplace):
    before = tree(run)
    text = done("resume", "tiny", "--branch", "longer", "steps=4", "optimizer.lr=1e-3")
    assert "a branch of tiny@3" in text
    assert "step 4/4" in text
    branch = workplace / "runs" / "longer"
    (resumed,) = [record for record in read_journal(branch / "journal.jsonl") if record["kind"] == "resumed"]
    assert resumed["branched_from"] == "tiny@3"
    assert json.loads((branch / "config.json").read_bytes())["optimizer"]["lr"] == 1e-3
    assert tree(run) == before


# -- recipes that cannot be used


def test_a_missing_recipe_names_the_nearest(workplace):
    assert "did you mean 'nano'?" in refused("train", "nanoo")
    assert tree(workplace) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: [1,\nseed: }", "YAML"),
        ("- a list", "mapping"),
        ("", "key 'model' is missing"),
        ("extends: itself", "extend itself"),
    ],
)
def test_a_broken_recipe_is_refused(workplace, text, said):
    (workplace / "itself.yaml").write_text(text)
    before = tree(workplace)
    assert said in refused("train", "itself.yaml")
    assert tree(workplace) == before


@pytest.mark.parametrize("extra", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["optimiser.lr=1"], "did you mean 'optimizer'?"),
        (["optimizer.l=1"], "did you mean 'optimizer.lr'?"),
        (["steps=many"], "steps"),
        (["steps"], "section.key=value"),
        (["tasks.aritmetic.weight=1"], "did you mean arithmetic?"),
        (["tasks.arithmetic.levels={9: 1}"], "no level [9]"),
        (["sampling.samples_per_prompt=1"], "at least 2"),
    ],
)
def test_a_wrong_setting_is_refused(recipe, workplace, changes, said, extra):
    before = tree(workplace)
    assert said in refused("train", recipe, *changes, *extra)
    assert tree(workplace) == before


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tasks": {"box_pushing": {}}}, "has train problems"),
        ({"tasks": {"rg_products": {}}, "exam": {"per_domain": 10**6}}, "distinct exam problems"),
        ({"sampling": {"response_limit": 500}}, "context of 192 tokens"),
        ({"sampling": {"response_limit": 190}}, "192 positions"),  # no prompt fits beside it
        ({"device": "cuda:99"}, "set device=cpu"),
        ({"device": "abacus"}, "set device=cpu"),
    ],
)
def test_a_recipe_that_this_machine_or_model_cannot_run_is_refused(workplace, write_recipe, settings, said):
    recipe = write_recipe(workplace, **settings)
    before = tree(workplace)
    assert said in refused("train", recipe)
    assert tree(workplace) == before


# -- models that cannot be used


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "model.safetensors"),
        ("tokenizer.json", "tokenizer.json"),
    ],
)
def test_a_model_folder_that_lacks_a_file_is_refused(recipe, models, workplace, missing, said):
    folder = shutil.copytree(models["llama"], workplace / "model")
    (folder / missing).unlink()
    before = tree(workplace)
    assert said in refused("train", recipe, f"model.path={folder}")
    assert said in refused("eval", folder, "--recipe", recipe)
    assert tree(workplace) == before


def test_a_model_folder_that_is_not_there_is_refused(recipe, workplace):
    before = tree(workplace)
    assert "there is no directory" in refused("train", recipe, f"model.path={workplace / 'nowhere'}")
    assert tree(workplace) == before


def test_a_tokenizer_without_an_end_is_refused(recipe, models, workplace):
    folder = shutil.copytree(models["llama"], workplace / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_bytes())
    del settings["eos_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert "no end-of-sequence token" in refused("train", recipe, f"model.path={folder}")
    assert not (workplace / "runs").exists()


def test_weights_that_are_cut_short_are_refused(recipe, models, workplace):
    folder = shutil.copytree(models["llama"], workplace / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "cannot load the model" in refused("train", recipe, f"model.path={folder}")
    assert not (workplace / "runs").exists()


# -- run directories that cannot be used


def test_train_does_not_write_over_a_run(recipe, run):
    before = tree(run)
    assert "already holds a run" in refused("train", recipe)
    assert tree(run) == before


def test_train_does_not_write_into_a_file(recipe, workplace):
    (workplace / "notes").write_text("mine")
    assert "not a folder" in refused("train", recipe, "--run", "notes")
    assert "not a folder" in refused("train", recipe, "--run", "notes/run")
    assert (workplace / "notes").read_text() == "mine"


@pytest.mark.parametrize("command", ["resume", "eval"])
def test_a_missing_run_is_refused(workplace, command):
    assert "no run" in refused(command, "nothing")
    assert tree(workplace) == {}


def test_a_model_folder_is_no_run(models):
    assert "holds no run" in refused("resume", models["llama"])
    assert "--recipe" in refused("eval", models["llama"])


def test_other_settings_need_a_branch(run):
    before = tree(run)
    said = refused("resume", "tiny", "optimizer.lr=1e-3", "steps=9")
    assert "optimizer.lr: 0.01 → 0.001" in said
    assert "steps: 3 → 9" in said
    assert "--branch" in said
    assert tree(run) == before


def test_a_branch_does_not_write_over_a_run(run):
    before = tree(run)
    assert "already holds a run" in refused("resume", "tiny", "--branch", "tiny", "steps=9")
    assert tree(run) == before


@pytest.mark.parametrize(
    ("edited", "said"), [('{"seed": 2}', "undo the edit"), ("{", "undo what was changed")]
)
def test_an_edited_config_is_refused(run, edited, said):
    config = json.loads((run / "config.json").read_bytes())
    text = json.dumps(config | json.loads(edited)) if edited.endswith("}") else edited
    (run / "config.json").write_text(text)
    before = tree(run)
    assert said in refused("resume", "tiny")
    assert tree(run) == before


def test_a_damaged_checkpoint_is_passed_over_and_its_work_done_again(run):
    weights = run / "checkpoints" / "step_000003" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    text = done("resume", "tiny")
    assert "step_000003: model.safetensors is damaged" in text
    assert "resumed from the checkpoint of step 2" in text
    assert weights.read_bytes() == whole


def test_a_run_without_a_whole_checkpoint_is_refused(run):
    for weights in (run / "checkpoints").glob("*/model.safetensors"):
        weights.write_bytes(b"")
    assert "none of the 3 checkpoints" in refused("resume", "tiny")


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("[")])
def test_a_lost_measurement_is_said(run, damage):
    damage(run / "evals" / "base.json")
    assert "base.json cannot be read" in refused("eval", "tiny")


# -- a disk that is full


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """A real limit of the system: a write beyond it fails half-way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [3_000, 50_000])  # not even the tokenizer fits; the weights do not fit
def test_no_room_at_the_start_leaves_no_run(recipe, workplace, size):
    with files_limited_to(size):
        assert "free some space" in refused("train", recipe)
    assert not list((workplace / "runs").iterdir())


def test_no_room_later_leaves_the_last_checkpoint(recipe, workplace, models):
    weights = (models["llama"] / "model.safetensors").stat().st_size
    with files_limited_to(
        weights + 20_000
    ):  # the optimizer has no moments yet at step 0, later it is twice that
        assert "step_000002: File too large" in refused("train", recipe)
    folder = workplace / "runs" / "tiny" / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["step_000000"]
    assert "resumed from the checkpoint of step 0" in done("resume", "tiny")


def test_no_room_for_a_branch_leaves_no_branch(run, workplace):
    with files_limited_to(50_000):
        assert "free some space" in refused("resume", "tiny", "--branch", "more", "steps=4")
    assert [path.name for path in (workplace / "runs").iterdir()] == ["tiny"]


FULL = """
set -e
mount -t tmpfs -o size=400k tmpfs disk
{python} -m prorl train {recipe} --run disk/tiny && exit 9
ls disk/tiny/checkpoints
mount -o remount,size=10m disk
{python} -m prorl resume disk/tiny > /dev/null
"""


@pytest.mark.slow
def test_a_disk_that_fills_up_and_is_made_larger(recipe, workplace):
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    (workplace / "disk").mkdir()
    try:
        subprocess.run([*apart, "mount -t tmpfs tmpfs disk"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine does not let us mount a small disk")
    script = FULL.format(python=sys.executable, recipe=recipe)
    process = subprocess.run([*apart, script], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "No space left on device" in sentence(1, process.stderr)
    assert process.stdout.splitlines()[-1] == "step_000000"


# -- a run that is stopped from outside


@pytest.fixture
def training(workplace, write_recipe) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a training that would take long and wait until it has said something."""
    started: list[subprocess.Popen[str]] = []

    def start(until: str) -> subprocess.Popen[str]:
        recipe = write_recipe(workplace, steps=60, save={"every": 1000}, exam={"every": 0}, sample_every=0)
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
    process = training(until="step 2/60")
    busy = refused("resume", "tiny")
    assert f"is being trained by process {process.pid}" in busy
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group hears it
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == ""
    event = last_event(workplace / "runs" / "tiny")
    assert event["reason"] == "interrupted"
    assert 2 <= event["step"] < 60
    saved = [path.name for path in (workplace / "runs" / "tiny" / "checkpoints").iterdir()]
    assert sorted(saved) == ["step_000000", f"step_{event['step']:06d}"]
    assert f"saved at step {event['step']}; go on with: prorl resume runs/tiny" in stdout
    assert f"step {event['step'] + 1}/60" in done("resume", "tiny")
    assert last_event(workplace / "runs" / "tiny")["reason"] == "done"
