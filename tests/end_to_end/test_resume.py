"""Stopping, killing and branching: a run that goes on is, bit for bit, the run that never stopped."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console as RichConsole

from prorl.commands import require_overrides
from prorl.config.recipe import RecipeError, changed, load_recipe
from prorl.config.schema import RunConfig
from prorl.control.events import ReferenceReset, Resumed, StageEntered, Started, Stepped, Validated, Warned
from prorl.control.state import fold
from prorl.envs.errors import ProrlError
from prorl.envs.files import NoRoomError, StorageError
from prorl.envs.mixture import Mixture
from prorl.lab.watch.console import Console
from prorl.local.engine import LocalEngine
from prorl.run import journal, process
from prorl.run.history import read_history
from prorl.run.layout import JOURNAL
from prorl.run.store import RunStore
from prorl.session import branch_run, resume_run, start_run
from support.commands import refused
from support.runs import CtrlC, assert_same, contents, events, finished, folders, of_kind, quiet, timeless

LONG = {
    "name": "long",
    "steps": 6,
    "length_penalty": {"weight": 1.0, "on_steps": 2, "off_steps": 1},
    "stages": [{"at": 3, "set": {"sampling.temperature": 0.8}}],
}
"""Resets after every second step, a stage at step 3, the length penalty off in every third step."""


@pytest.fixture(scope="module")
def config(write_recipe, tmp_path_factory) -> RunConfig:
    return load_recipe(str(write_recipe(tmp_path_factory.mktemp("recipe"), **LONG)))


@pytest.fixture(scope="module")
def uninterrupted(config, tmp_path_factory) -> Path:
    return finished(config, tmp_path_factory.mktemp("uninterrupted") / "run")


def test_the_long_run_has_what_could_go_wrong(uninterrupted):
    assert [event.step for event in of_kind(uninterrupted, ReferenceReset)] == [2, 4, 6]
    assert [event.step for event in of_kind(uninterrupted, StageEntered)] == [3]
    assert [event.length_weight for event in of_kind(uninterrupted, Stepped)] == [1, 1, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("stop", "first", "then"),  # steps between two resets, and where one falls on; the number of workers
    [(3, 1, 1), (4, 1, 1), (3, 1, 3), pytest.param(3, 2, 1, marks=pytest.mark.slow)],
)
def test_interrupting_and_resuming_changes_no_bit(config, uninterrupted, tmp_path, stop, first, then):
    run = tmp_path / "run"
    halted = start_run(config.model_copy(update={"workers": first}), run, CtrlC(stop))
    assert (halted.stopped, halted.step) == ("interrupted", stop)
    assert resume_run(run, quiet(), overrides=[f"workers={then}"]).stopped == "done"
    assert_same(run, uninterrupted)
    assert [event.step for event in of_kind(run, Resumed)] == [stop]
    assert not of_kind(run, Warned)


def test_a_disk_without_room_for_the_journal_is_waited_for(config, uninterrupted, tmp_path, monkeypatch):
    append, missing = journal.append_bytes, [True, True]

    def full(descriptor, data, path):
        if b'"kind":"stepped","step":2,' in data and missing and missing.pop():
            raise NoRoomError("no room")
        append(descriptor, data, path)

    monkeypatch.setattr(journal, "append_bytes", full)
    monkeypatch.setattr(process, "RETRY", 0.01)
    assert_same(finished(config, tmp_path / "run"), uninterrupted)
    assert not missing


def test_where_text_would_depend_on_the_workers_one_process_computes(
    config, uninterrupted, tmp_path, monkeypatch
):
    monkeypatch.setattr(LocalEngine, "is_steady", lambda self: False)
    run = tmp_path / "run"
    start_run(config.model_copy(update={"workers": 2}), run, quiet())
    assert_same(run, uninterrupted)
    (warned,) = of_kind(run, Warned)
    assert "one process computes instead of 2" in warned.text


def test_a_second_ctrl_c_stops_at_once_and_loses_only_what_was_not_saved(config, uninterrupted, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        start_run(config, run, CtrlC(3, times=2))
    assert folders(run / "checkpoints") == ["step_000000", "step_000002"]
    assert resume_run(run, quiet()).stopped == "done"
    assert_same(run, uninterrupted)


KILL_AFTER = """
import os, signal, sys
from prorl.cli import main
from prorl.learn.learner import TorchLearner

name, count = sys.argv.pop(1), int(sys.argv.pop(1))
original = getattr(TorchLearner, name)

def fatal(self, *arguments):
    global count
    result = original(self, *arguments)
    count -= 1
    if not count:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(TorchLearner, name, fatal)
main()
"""
"""`prorl`, killed from within right after the learner's method NAME was called COUNT times."""


def kill_after(method: str, count: int, recipe: Path, run: Path) -> None:
    command = ["train", str(recipe), "--run", str(run), "--no-supervise"]
    killed = [sys.executable, "-c", KILL_AFTER, method, str(count), *command]
    process = subprocess.run(killed, capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.slow
def test_a_killed_run_goes_on_as_if_it_had_not_been(uninterrupted, write_recipe, tmp_path):
    run = tmp_path / "run"
    kill_after("begin_update", 4, write_recipe(tmp_path, **LONG), run)
    assert "step_000000" in folders(run / "checkpoints")
    assert "step_000004" not in folders(run / "checkpoints")
    assert resume_run(run, quiet()).stopped == "done"
    assert_same(run, uninterrupted)
    assert not list(run.rglob(".*")), "what the killed process left unfinished is removed"


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(
    uninterrupted, write_recipe, tmp_path
):
    run = tmp_path / "run"
    recipe = write_recipe(tmp_path, **LONG)
    kill_after("save_reference", 1, recipe, run)
    assert folders(run / "checkpoints") == []
    base = run / "evals" / "measurement" / "base.parquet"
    measured = base.stat().st_mtime_ns
    finished(recipe, run)
    assert base.stat().st_mtime_ns == measured, "what was measured is not again"
    assert_same(run, uninterrupted)


# -- damage


def flip_in_line(number: int) -> Callable[[Path], None]:
    """Flip a bit in the middle of a line of the journal, the last one for -1."""

    def harm(run: Path) -> None:
        lines = (run / JOURNAL).read_bytes().splitlines(keepends=True)
        half = len(lines[number]) // 2
        lines[number] = lines[number][:half] + bytes([lines[number][half] ^ 4]) + lines[number][half + 1 :]
        (run / JOURNAL).write_bytes(b"".join(lines))

    return harm


def swap_references(run: Path) -> None:
    last, before, aside = (run / "references" / name for name in ("ref_003", "ref_002", "aside"))
    last.rename(aside)
    before.rename(last)
    aside.rename(before)


@pytest.mark.parametrize(
    ("harm", "said", "step"),
    [
        (flip_in_line(-1), "damaged at line", 4),  # the newest checkpoint that is older
        (flip_in_line(5), "damaged at line 6", 0),
        (swap_references, "ref_003 is a copy of ref_002", 0),  # step 4 goes on with the other one
    ],
)
def test_damage_costs_the_steps_since_an_older_checkpoint_and_no_bit(
    uninterrupted, tmp_path, harm, said, step
):
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run)
    harm(run)
    text = StringIO()
    assert resume_run(run, Console(RichConsole(file=text, width=1000))).stopped == "done"
    assert said in text.getvalue()
    assert [event.step for event in of_kind(run, Resumed)] == [step]
    assert_same(run, uninterrupted)


def test_damage_before_every_checkpoint_ends_for_good_with_its_place(uninterrupted, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run)
    flip_in_line(0)(run)
    assert "damaged at line 1 (byte 0)" in refused("resume", run).replace("\n", " ")
    with pytest.raises(StorageError, match="damaged at line 1"):
        branch_run(run, tmp_path / "branch", ["steps=9"], quiet())
    assert folders(tmp_path) == ["run"]


# -- what else the bits depend on


@pytest.fixture(scope="module")
def stopped(config, tmp_path_factory) -> Path:
    """A run that was stopped after its first step."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    assert start_run(config, run, CtrlC(1)).step == 1
    return run


@pytest.fixture
def halted(stopped, tmp_path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def test_another_torch_is_told_and_what_the_bits_depend_on_is_recorded(halted, monkeypatch):
    config = json.loads((halted / "config.json").read_bytes())
    assert (config["threads"], config["device"]) == (1, "cpu")
    (started,) = of_kind(halted, Started)
    assert started.environment.keys() >= {"torch", "transformers", "processor", "tokenizer", "problems"}
    assert started.environment["torch"] == torch.__version__
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    resume_run(halted, quiet())
    (warned,) = of_kind(halted, Warned)
    assert "torch was 2." in warned.text
    assert "is now 9.9.9" in warned.text


def test_another_tokenizer_is_refused(halted):
    path = halted / "tokenizer" / "tokenizer_config.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(StorageError, match="tokenizer/ are not those"):
        resume_run(halted, quiet())


def test_a_tokenizer_that_is_gone_is_asked_for(halted):
    shutil.rmtree(halted / "tokenizer")
    with pytest.raises(StorageError, match=r"tokenizer is missing.*restore it from a copy"):
        resume_run(halted, quiet())


def test_other_problems_are_refused(halted, monkeypatch):
    original = Mixture.problem

    def reworded(self, draw, split, weights=None):
        problem = original(self, draw, split, weights)
        return replace(problem, prompt=problem.prompt + "?")

    monkeypatch.setattr(Mixture, "problem", reworded)
    with pytest.raises(StorageError, match="no longer ask the problems"):
        resume_run(halted, quiet())


def test_other_rows_are_refused(halted, monkeypatch):
    monkeypatch.setattr(Mixture, "rows_fingerprint", lambda self: "others")
    with pytest.raises(StorageError, match="its data is not what it was started with"):
        resume_run(halted, quiet())


def test_the_care_for_a_run_may_change_and_its_bits_do_not(uninterrupted, halted):
    changes = ["save.every=1", "save.keep_last=1", "deadlines.learn=7"]
    assert resume_run(halted, quiet(), overrides=changes).stopped == "done"
    assert json.loads((halted / "config.json").read_bytes())["save"]["every"] == 1
    assert folders(halted / "checkpoints") == ["step_000000", "step_000006"]
    assert folders(halted / "references") == folders(uninterrupted / "references")
    assert timeless(halted) == timeless(uninterrupted)


# -- branches


@pytest.mark.parametrize(("step", "begun"), [(None, 6), (4, 4)])
def test_a_branch_is_a_run_of_its_own_that_remembers_its_parent(uninterrupted, tmp_path, step, begun):
    before = contents(uninterrupted)
    branch = tmp_path / "hotter"
    changes = [f"steps={begun + 2}", "optimizer.lr=5e-3", "optimizer.weight_decay=0.5"]
    assert branch_run(uninterrupted, branch, changes, quiet(), step=step).stopped == "done"
    (resumed,) = of_kind(branch, Resumed)
    assert (resumed.step, resumed.branched_from) == (begun, f"run@{begun}")
    inherited = events(branch)[: events(branch).index(resumed)]
    assert inherited == events(uninterrupted)[: len(inherited)]
    assert [step.learning_rate for step in of_kind(branch, Stepped)] == [1e-2] * begun + [5e-3] * 2
    assert [reset.step for reset in of_kind(branch, ReferenceReset)] == [*range(2, begun + 3, 2)]
    last = branch / "checkpoints" / f"step_{begun + 2:06d}"
    optimizer = torch.load(last / "optimizer.pt", weights_only=True)
    assert optimizer["param_groups"][0]["weight_decay"] == 0.5
    assert contents(uninterrupted) == before
    assert json.loads((branch / "config.json").read_bytes())["name"] == "hotter"


def test_what_a_run_cannot_do_later_is_refused_at_its_start(config, halted, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    for start in (
        lambda: start_run(changed(config, {}, ["log=wandb"]), tmp_path / "new", quiet()),
        lambda: resume_run(halted, quiet(), overrides=["log=wandb"]),
    ):
        with pytest.raises(ProrlError, match="pip install wandb"):
            start()
    assert RunStore.open(halted).config.log is None
    monkeypatch.setattr(Mixture, "validation_problems", lambda *_: ())
    with pytest.raises(RecipeError, match=r"set validation\.every=0"):
        start_run(config, tmp_path / "new", quiet())
    assert not (tmp_path / "new").exists()


def test_what_the_operator_has_set_must_fit_where_a_run_goes_on(uninterrupted, tmp_path):
    run = Path(shutil.copytree(uninterrupted, tmp_path / "run"))
    config, held = RunStore.open(run).config, replace(fold(events(run)), overrides={"top_p": 0.9})
    require_overrides(config, held)
    with pytest.raises(RecipeError, match="top_p"):
        require_overrides(changed(config, {}, ["backend=ray"]), held)


@pytest.mark.parametrize(
    ("change", "first"), [("validation.samples=3", 4), ("instruction=Think.", 4), ("validation.every=5", 0)]
)
def test_a_branch_that_validates_otherwise_has_a_first_validation_of_its_own(
    uninterrupted, tmp_path, change, first
):
    branch = tmp_path / "other"
    branch_run(uninterrupted, branch, [change, "steps=5"], quiet(), step=4)
    assert read_history(branch).of(Validated)[0].step == first


def test_a_branch_without_changes_is_its_parent_again(uninterrupted, tmp_path):
    branch = tmp_path / "again"
    branch_run(uninterrupted, branch, [], quiet(), step=4)
    assert timeless(branch) == timeless(uninterrupted)
    again, before = contents(branch), contents(uninterrupted)
    differing = {name for name in again if again[name] != before[name]}
    assert differing == {"checkpoints/step_000006/state.json"}  # it names the recipe, and so does the recipe


def test_a_branch_is_settled_as_a_new_run_is_and_begins_in_an_empty_folder(uninterrupted, tmp_path):
    branch = tmp_path / "branch"
    (tmp_path / ".branch.tmp-0123abcd").mkdir()  # of one that was killed
    changes = ["steps=5", "threads=0", "workers=1", "device=auto", "backend=auto"]
    branch_run(uninterrupted, branch, changes, quiet(), step=4)
    config = RunStore.open(branch).config
    assert (config.threads >= 1, config.device, config.backend) == (True, "cpu", "local")
    assert [path.name for path in tmp_path.iterdir()] == ["branch"]
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "slurm.out").touch()
    with pytest.raises(StorageError, match="is not empty"):
        branch_run(uninterrupted, tmp_path / "taken", [], quiet())


def test_a_branch_can_return_to_the_best_policy_of_its_parent(uninterrupted, tmp_path):
    best = fold(events(uninterrupted)).best_step
    assert best == 0
    branch = tmp_path / "back"
    branch_run(uninterrupted, branch, ["steps=8", "reset.target=best"], quiet())
    last = of_kind(branch, ReferenceReset)[-1]
    assert (last.step, last.target, last.source_step) == (8, "best", 0)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (["kl.coef=0", "steps=9"], RecipeError, "reference reset"),
        (["optimizer.leer=1"], RecipeError, "optimizer.leer"),
        (["sampling.response_limit=500", "steps=9"], RecipeError, "response_limit"),
        ([], RecipeError, "from step 6 of 6 trains nothing: say steps=N"),
    ],
)
def test_a_branch_that_cannot_be_leaves_nothing(uninterrupted, tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        branch_run(uninterrupted, tmp_path / "branch", changes, quiet())
    assert not folders(tmp_path)


def test_a_branch_may_drop_the_kl_penalty_but_not_begin_to_pay_one(uninterrupted, tmp_path):
    free = tmp_path / "free"
    changes = ["kl.coef=0", "reset.every=0", "steps=7"]
    assert branch_run(uninterrupted, free, changes, quiet()).stopped == "done"
    assert of_kind(free, Stepped)[-1].update.kl is None


def test_a_run_without_kl_holds_no_reference_and_a_branch_cannot_invent_one(write_recipe, tmp_path):
    free = load_recipe(str(write_recipe(tmp_path, steps=1, kl={"coef": 0}, reset={"every": 0})))
    assert start_run(free, tmp_path / "free", quiet()).reference is None
    assert not folders(tmp_path / "free" / "references")
    with pytest.raises(RecipeError, match="holds no reference"):
        branch_run(tmp_path / "free", tmp_path / "bound", ["kl.coef=0.1", "steps=2"], quiet())
    assert not (tmp_path / "bound").exists()


# -- learning from samples one update old: measured, corrected for, and resumable

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
def stale(write_recipe, tmp_path_factory) -> RunConfig:
    return load_recipe(str(write_recipe(tmp_path_factory.mktemp("recipe"), **STALE)))


@pytest.fixture(scope="module")
def overlapped(stale, tmp_path_factory) -> Path:
    return finished(stale, tmp_path_factory.mktemp("overlapped") / "run")


def test_the_mismatch_is_that_of_one_update(overlapped):
    steps = of_kind(overlapped, Stepped)
    assert [step.staleness for step in steps] == [0, 1, 1, 0, 1, 1]
    assert all((step.update.mismatch > 1e-3) == bool(step.staleness) for step in steps)
    assert all(step.update.mismatch < 1e-5 for step in steps if not step.staleness)


def test_workers_that_sample_while_they_learn_change_no_bit(stale, overlapped, tmp_path):
    assert_same(finished(stale.model_copy(update={"workers": 2}), tmp_path / "run"), overlapped)


def test_a_run_of_samples_one_update_old_that_stops_at_a_checkpoint_goes_on_bit_for_bit(
    stale, overlapped, tmp_path
):
    run = tmp_path / "run"
    assert start_run(stale, run, CtrlC(3)).step == 3
    assert resume_run(run, quiet()).stopped == "done"
    assert_same(run, overlapped)


# -- partial rollouts: what is in hand belongs to the checkpoint

PARTIAL = STALE | {"sampling": STALE["sampling"] | {"max_staleness": 0, "partial": 1.0}}


@pytest.fixture(scope="module")
def in_pieces(write_recipe, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("in_pieces")
    return finished(write_recipe(folder, **PARTIAL), folder / "run")


def test_responses_of_several_policies_are_told_and_weighed(in_pieces):
    steps = of_kind(in_pieces, Stepped)
    assert max(step.staleness for step in steps) > 0
    assert any(step.rollout_stats.in_hand for step in steps)
    assert all(step.update.mismatch > 1e-4 for step in steps if step.staleness)


@pytest.mark.parametrize(("stop", "workers"), [(2, 1), (4, 2)])
def test_a_run_of_partial_rollouts_goes_on_bit_for_bit(write_recipe, in_pieces, tmp_path, stop, workers):
    recipe = load_recipe(str(write_recipe(tmp_path, **PARTIAL)), [f"workers={workers}"])
    run = tmp_path / "run"
    assert start_run(recipe, run, CtrlC(stop)).step == stop
    assert resume_run(run, quiet()).stopped == "done"
    assert_same(run, in_pieces)
