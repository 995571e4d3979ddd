"""Whole runs on the real local backend: what they leave behind, and what they begin with."""

import json
from collections import Counter
from contextlib import ExitStack
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from rich.console import Console as RichConsole
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, CohereConfig, CohereForCausalLM

from prorl.config.recipe import load_recipe
from prorl.control.events import Stepped
from prorl.control.state import fold, from_json
from prorl.envs.files import StorageError
from prorl.lab.evals.evaluation_store import evaluations, read_evaluation
from prorl.lab.watch.console import Console
from prorl.learn.llama import unsupported_reason
from prorl.learn.model import ModelError
from prorl.run.store import RunStore
from prorl.session import start_run
from support import runs
from support.runs import events, folders, of_kind, quiet, timeless


@pytest.fixture(scope="module", params=["llama", "qwen3", "gpt_neox"])
def architecture(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def finished(architecture, write_recipe, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(architecture)
    return runs.finished(write_recipe(folder, architecture), folder / "run")


# -- what a run leaves behind


def test_the_journal_tells_the_whole_story(finished):
    kinds = [event.kind for event in events(finished)]
    assert kinds == [
        "started",
        "validated",
        "stepped",
        "stepped",
        "validated",
        "reference_reset",
        "stepped",
        "validated",
        "intervened",  # a warning about a base that was never trained
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
    ((name, files),) = evaluations(finished)
    assert (name, [path.stem for path in files]) == ("measurement", ["base", "step_000003"])
    for path in files:
        assert Counter(problem.part for problem in read_evaluation(path).problems) == {"test": 4, "ood": 4}
    assert folders(finished / "samples") == [f"step_{step:06d}.jsonl" for step in range(3)]
    for line in (finished / "samples" / "step_000002.jsonl").read_text().splitlines():
        assert json.loads(line).keys() >= {"task", "prompt", "response", "score", "finish"}
    assert len(list((finished / "tb").glob("events.out.tfevents.*"))) == 1


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
    config = load_recipe(str(write_recipe(tmp_path, model={"warmup": warmup}, steps=1)))
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


def test_who_comes_second_does_not_remove_what_another_has_begun_at_the_same_moment(
    write_recipe, tmp_path, monkeypatch
):
    recipe, run, create = load_recipe(str(write_recipe(tmp_path))), tmp_path / "run", RunStore.create

    with ExitStack() as first:

        def come_second(*arguments, **settings) -> RunStore:
            first.enter_context(create(*arguments, **settings))
            return create(*arguments, **settings)

        monkeypatch.setattr(RunStore, "create", come_second)
        with pytest.raises(StorageError, match="is being trained by"):
            start_run(recipe, run, quiet())
        assert (run / "config.json").exists()


def test_what_a_run_has_saved_is_kept_when_it_fails_although_its_checkpoints_were_moved_away(
    write_recipe, tmp_path, monkeypatch
):
    run = tmp_path / "run"

    def fail(store, *_) -> None:
        store.finish_writing()
        (run / "checkpoints").rename(tmp_path / "elsewhere")
        raise OSError("a disk is gone")

    monkeypatch.setattr(RunStore, "write_samples", fail)
    nothing = {"per_domain": 0, "ood_per_domain": 0, "samples": 1}
    with pytest.raises(OSError, match="a disk is gone"):
        start_run(load_recipe(str(write_recipe(tmp_path, evaluation=nothing))), run, quiet())
    assert folders(tmp_path / "elsewhere") == ["step_000000"]
    assert {"journal.jsonl", "config.json", "references"} <= {*folders(run)}
