"""Whole runs on the real local backend: what they leave behind, and that stopping and killing change nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from rich.console import Console as RichConsole
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from prorl.backends.local.decoder import unsupported_reason
from prorl.director.events import (
    Evaluated,
    Event,
    ReferenceReset,
    Resumed,
    StageEntered,
    Stepped,
    from_record,
)
from prorl.director.state import RunState, fold, from_json
from prorl.launch import branch_run, resume_run, start_run
from prorl.learn.model import ModelError
from prorl.recipe import RecipeError, load_recipe
from prorl.run.journal import read_journal
from prorl.watch.console import Console

LONG = {
    "name": "long",
    "steps": 6,
    "length_penalty": {"weight": 1.0, "on_steps": 2, "off_steps": 1},
    "stages": [{"at": 3, "set": {"sampling.temperature": 0.8}}],
}
"""Resets after every second step, a stage at step 3, the length penalty off in every third step."""


def quiet() -> Console:
    return Console(RichConsole(file=StringIO()))


class CtrlC(Console):
    """A person at the terminal who presses Ctrl-C so many times as soon as a step is shown."""

    def __init__(self, step: int, times: int = 1) -> None:
        super().__init__(RichConsole(file=StringIO()))
        self._step = step
        self._times = times

    @contextmanager
    def live(self, steps: int) -> Iterator[Callable[[Event, RunState], None]]:
        def watch(event: Event, state: RunState) -> None:
            if isinstance(event, Stepped) and event.step == self._step:
                for _ in range(self._times):
                    signal.raise_signal(signal.SIGINT)

        yield watch


def events(run: Path) -> list[Event]:
    return [from_record(record) for record in read_journal(run / "journal.jsonl")]


def of_kind(run: Path, kind: type) -> list:
    return [event for event in events(run) if isinstance(event, kind)]


def timeless(run: Path) -> list[Event]:
    """What happened, without how long it took and without the interruptions themselves."""
    return [
        replace(event, seconds={} if isinstance(event, Stepped) else 0.0)
        if isinstance(event, (Stepped, Evaluated))
        else event
        for event in events(run)
        if event.kind not in ("resumed", "stopped")
    ]


def contents(run: Path) -> dict[str, bytes]:
    """Every byte that must not depend on interruptions: tensors, driver state, samples, measurements."""
    kept = ("checkpoints/step_000006", "references", "samples", "evals", "tokenizer")
    files = (path for part in kept for path in (run / part).rglob("*") if path.is_file())
    return {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in files
        if path.name != "manifest.json"  # it holds the length of the journal
    }


def folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


@pytest.fixture(scope="module", params=["llama", "qwen3", "gpt_neox"])
def architecture(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def finished(architecture, write_recipe, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(architecture)
    run = folder / "run"
    assert start_run(load_recipe(str(write_recipe(folder, architecture))), run, quiet()).stopped == "done"
    return run


# -- what a run leaves behind


def test_the_journal_tells_the_whole_story(finished):
    kinds = [event.kind for event in events(finished)]
    assert kinds == [
        "started",
        "evaluated",
        "stepped",
        "stepped",
        "evaluated",
        "reference_reset",
        "stepped",
        "evaluated",
        "stopped",
    ]
    saved = json.loads((finished / "checkpoints" / "step_000003" / "state.json").read_bytes())
    assert from_json(saved) == fold(events(finished))


def test_engine_and_learner_agree_at_every_step(architecture, finished):
    model = AutoModelForCausalLM.from_pretrained(finished / "checkpoints" / "step_000003")
    assert (unsupported_reason(model) is None) == (architecture != "gpt_neox")
    assert all(step.update.mismatch < 1e-5 for step in of_kind(finished, Stepped))


def test_every_step_updates_and_the_policy_moves_away_from_its_reference(finished):
    steps = of_kind(finished, Stepped)
    assert all(step.update.updates == 1 and step.update.grad_norm > 0 for step in steps)
    assert [step.update.kl > 0 for step in steps] == [False, True, False]  # reset after step 2


def test_checkpoints_load_with_transformers(architecture, finished, models):
    policies = {}
    for step in (0, 2, 3):
        model, report = AutoModelForCausalLM.from_pretrained(
            finished / "checkpoints" / f"step_{step:06d}", output_loading_info=True
        )
        assert not report["missing_keys"]
        assert not report["unexpected_keys"]
        policies[step] = model.state_dict()
    base = AutoModelForCausalLM.from_pretrained(models[architecture]).state_dict()
    assert all(torch.equal(base[name], weight) for name, weight in policies[0].items())
    for earlier, later in pairwise(policies.values()):
        assert any(not torch.equal(earlier[name], weight) for name, weight in later.items())


def test_references_are_the_policies_they_were_born_from(finished):
    for reference, step in (("ref_000", 0), ("ref_001", 2)):
        born = load_file(finished / "references" / reference / "model.safetensors")
        policy = load_file(finished / "checkpoints" / f"step_{step:06d}" / "model.safetensors")
        assert born.keys() == policy.keys()
        assert all(torch.equal(born[name], policy[name]) for name in policy)


def test_the_tokenizer_lies_in_the_run(architecture, finished, models):
    saved = AutoTokenizer.from_pretrained(finished / "tokenizer")
    given = AutoTokenizer.from_pretrained(models[architecture])
    chat = [{"role": "user", "content": "Say 1 + 2 — or 17."}]
    assert saved.apply_chat_template(chat) == given.apply_chat_template(chat)
    assert saved.eos_token_id == given.eos_token_id


def test_measurements_samples_and_scalars_are_there(finished):
    for name in ("base", "step_000003"):
        results = json.loads((finished / "evals" / f"{name}.json").read_bytes())
        assert {split: len(counts) for split, counts in results.items()} == {"test": 4, "ood": 4}
    assert folders(finished / "samples") == [f"step_{step:06d}.jsonl" for step in range(3)]
    for line in (finished / "samples" / "step_000002.jsonl").read_text().splitlines():
        assert json.loads(line).keys() >= {"task", "prompt", "response", "score", "finish"}
    assert len(list((finished / "tb").glob("events.out.tfevents.*"))) == 1


# -- stopping changes nothing


@pytest.fixture(scope="module")
def recipe(write_recipe, tmp_path_factory):
    return load_recipe(str(write_recipe(tmp_path_factory.mktemp("recipe"), **LONG)))


@pytest.fixture(scope="module")
def uninterrupted(recipe, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert start_run(recipe, run, quiet()).stopped == "done"
    return run


def test_the_long_run_has_what_could_go_wrong(uninterrupted):
    assert [event.step for event in of_kind(uninterrupted, ReferenceReset)] == [2, 4, 6]
    assert [event.step for event in of_kind(uninterrupted, StageEntered)] == [3]
    assert [event.length_weight for event in of_kind(uninterrupted, Stepped)] == [1, 1, 0, 1, 1, 0]


@pytest.mark.parametrize("stop", [3, 4])  # between two resets, and where one falls on the same boundary
def test_interrupting_and_resuming_changes_no_bit(recipe, uninterrupted, tmp_path, stop):
    run = tmp_path / "run"
    halted = start_run(recipe, run, CtrlC(stop))
    assert (halted.stopped, halted.step) == ("interrupted", stop)
    assert resume_run(run, quiet()).stopped == "done"
    assert contents(run) == contents(uninterrupted)
    assert timeless(run) == timeless(uninterrupted)
    assert [event.step for event in of_kind(run, Resumed)] == [stop]


def test_a_second_ctrl_c_stops_at_once_and_loses_only_what_was_not_saved(recipe, uninterrupted, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        start_run(recipe, run, CtrlC(3, times=2))
    assert folders(run / "checkpoints") == ["step_000000", "step_000002"]
    assert resume_run(run, quiet()).stopped == "done"
    assert contents(run) == contents(uninterrupted)
    assert timeless(run) == timeless(uninterrupted)


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


@pytest.mark.parametrize(
    ("method", "count", "left"),
    [
        ("update", 4, ["step_000000", "step_000002"]),  # in the middle of step 4
        pytest.param(  # in the middle of writing the checkpoint of step 4
            "save", 3, ["step_000000", "step_000002"], marks=pytest.mark.slow
        ),
    ],
)
def test_a_killed_run_goes_on_as_if_it_had_not_been(
    recipe, uninterrupted, write_recipe, tmp_path, method, count, left
):
    run = tmp_path / "run"
    command = ["train", str(write_recipe(tmp_path, **LONG)), "--run", str(run)]
    process = subprocess.run(
        [sys.executable, "-c", KILL_AFTER, method, str(count), *command], capture_output=True, text=True
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert [name for name in folders(run / "checkpoints") if not name.startswith(".")] == left
    assert resume_run(run, quiet()).stopped == "done"
    assert contents(run) == contents(uninterrupted)
    assert timeless(run) == timeless(uninterrupted)
    assert not list(run.rglob(".*")), "what the killed process left unfinished is removed"


# -- branches


def test_a_branch_is_a_run_of_its_own_that_remembers_its_parent(uninterrupted, tmp_path):
    before = contents(uninterrupted)
    branch = tmp_path / "hotter"
    changes = ["steps=8", "optimizer.lr=5e-3", "optimizer.weight_decay=0.5"]
    assert branch_run(uninterrupted, branch, changes, quiet()).stopped == "done"
    (resumed,) = of_kind(branch, Resumed)
    assert (resumed.step, resumed.branched_from) == (6, "run@6")
    assert [step.learning_rate for step in of_kind(branch, Stepped)] == [1e-2] * 6 + [5e-3] * 2
    assert timeless(branch)[: len(timeless(uninterrupted))] == timeless(uninterrupted)
    optimizer = torch.load(branch / "checkpoints" / "step_000008" / "optimizer.pt", weights_only=True)
    assert optimizer["param_groups"][0]["weight_decay"] == 0.5
    assert contents(uninterrupted) == before
    assert json.loads((branch / "config.json").read_bytes())["name"] == "hotter"


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
        (["kl.coef=0"], RecipeError, "reference reset"),
        (["optimizer.leer=1"], RecipeError, "optimizer.leer"),
        (["sampling.response_limit=500"], RecipeError, "response_limit"),
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
    assert of_kind(free, Stepped)[-1].update.kl == 0


def test_a_run_without_kl_holds_no_reference_and_a_branch_cannot_invent_one(write_recipe, tmp_path):
    free = load_recipe(str(write_recipe(tmp_path, steps=1, kl={"coef": 0}, reset={"every": 0})))
    assert start_run(free, tmp_path / "free", quiet()).reference is None
    assert not folders(tmp_path / "free" / "references")
    with pytest.raises(RecipeError, match="holds no reference"):
        branch_run(tmp_path / "free", tmp_path / "bound", ["kl.coef=0.1", "steps=2"], quiet())
    assert not (tmp_path / "bound").exists()


# -- the base


def test_a_base_is_warmed_up_once(write_recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shape = {
        "architecture": "qwen3",
        "hidden_size": 32,
        "layers": 1,
        "heads": 2,
        "kv_heads": 1,
        "intermediate_size": 48,
        "context": 192,
    }
    warmup = {"shape": shape, "vocab_size": 300, "steps": 3, "batch_size": 4, "corpus_problems": 50}
    config = load_recipe(str(write_recipe(tmp_path, steps=1, model={"warmup": warmup})))
    said = []
    for name in ("first", "second"):
        output = StringIO()
        assert start_run(config, tmp_path / name, Console(RichConsole(file=output))).stopped == "done"
        said.append("warming up the base: 3/3" in output.getvalue())
    assert said == [True, False]
    assert timeless(tmp_path / "first") == timeless(tmp_path / "second")
    (base,) = (tmp_path / "cache" / "prorl").iterdir()
    first = load_file(tmp_path / "first" / "checkpoints" / "step_000000" / "model.safetensors")
    assert all(
        torch.equal(first[name], weight) for name, weight in load_file(base / "model.safetensors").items()
    )


# -- models that cannot be used


def test_a_model_whose_logits_are_scaled_is_refused(write_recipe, models, tmp_path):
    from transformers import CohereConfig, CohereForCausalLM

    folder = tmp_path / "cohere"
    config = CohereConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=48,
        logit_scale=0.1,
        max_position_embeddings=192,
    )
    CohereForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(models["llama"]).save_pretrained(folder)
    recipe = load_recipe(str(write_recipe(tmp_path, model={"path": str(folder)})))
    with pytest.raises(ModelError, match="Cohere"):
        start_run(recipe, tmp_path / "run", quiet())
    assert not (tmp_path / "run").exists()
