"""No room: one sentence, no run where none could begin, and the last checkpoint where one had been written."""

import subprocess
import sys

import pytest

from prorl.control.events import Warned
from prorl.run.process import Interrupt, WaitEnded
from support.commands import done, files_limited_to, refused
from support.runs import of_kind


@pytest.mark.parametrize("size", [3_000, 50_000])  # not even the tokenizer fits; the weights do not fit
def test_no_room_at_the_start_leaves_at_most_what_was_measured(recipe, workplace, size):
    with files_limited_to(size):
        assert "free some space" in refused("train", recipe)
    assert not [*workplace.glob("runs/*/checkpoints/*")]
    assert (workplace / "runs").exists() == any(workplace.glob("runs/*/evals/measurement/base.parquet"))
    done("train", recipe)


def test_no_room_later_leaves_the_last_checkpoint(recipe, workplace, models, monkeypatch):
    def stop(*_) -> None:
        raise WaitEnded  # somebody who sees that the end of the run waits for room

    monkeypatch.setattr(Interrupt, "wait", stop)
    weights = (models["llama"] / "model.safetensors").stat().st_size
    # The optimizer has no moments yet at step 0, later it is twice that.
    with files_limited_to(weights + 20_000):
        assert "step_000003: File too large" in refused("train", recipe)
    missed, ended = of_kind(workplace / "runs" / "tiny", Warned)
    assert "step_000002: File too large" in missed.text
    assert ended.text.startswith("ended by NoRoomError: ")
    folder = workplace / "runs" / "tiny" / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["step_000000"]
    assert "resumed from the checkpoint of step 0" in done("resume", "tiny")


def test_no_room_for_a_branch_leaves_no_branch(run, workplace):
    with files_limited_to(50_000):
        assert "free some space" in refused("train", "--branch", "tiny", "steps=4", "--run", "runs/more")
    assert [path.name for path in (workplace / "runs").iterdir()] == ["tiny"]


FULL = """
set -e
mount -t tmpfs -o size=450k tmpfs disk
{python} -m prorl train {recipe} --run disk/tiny > said 2>&1 &
run=$!
waits() {{ test "$(grep -c 'trying again' said)" -ge "$1"; }}
until waits 2; do sleep 0.2; kill -0 $run; done
pkill -9 -P $run
until waits 4; do sleep 0.2; kill -0 $run; done
ls disk/tiny/checkpoints
mount -o remount,size=10m disk
wait $run
"""


@pytest.mark.slow
def test_the_end_of_a_run_and_a_restart_wait_until_a_full_disk_has_room(recipe, workplace):
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    (workplace / "disk").mkdir()
    try:
        subprocess.run([*apart, "mount -t tmpfs tmpfs disk"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine does not let us mount a small disk")
    script = FULL.format(python=sys.executable, recipe=recipe)
    process = subprocess.run([*apart, script], capture_output=True, text=True, timeout=180)
    said = (workplace / "said").read_text()
    assert process.returncode == 0, process.stderr + said
    assert "paused: no space left for a checkpoint" in said
    assert process.stdout.splitlines() == ["step_000000"]
