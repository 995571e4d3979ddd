"""Exports of real runs: what transformers makes of them, what is refused, and what survives a bad moment."""

import contextlib
import io
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from prorl.control.events import Validated
from prorl.learn.model import eos_ids, load_tokenizer
from prorl.local.engine import LocalEngine
from prorl.rollout.pipeline import ChatRenderer
from prorl.run.checkpoint import verify
from prorl.run.store import RunStore
from prorl.types import Request, Sampling
from support.commands import done, files_limited_to, prorl, refused, tree
from support.runs import folders, of_kind
from support.tiny import ENDS

LAST = "step_000003"
PROMPTS = ("Say 1 + 2.", "What is 3 * 4?", "Sort: pear fig", "x", "12 + 30 =")


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "model"
    done("export", trained, folder)
    return folder


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


# -- what transformers makes of it


def test_weights_are_those_of_the_checkpoint_to_the_bit(trained, exported):
    tokens = torch.arange(40, 60)[None]
    models = [
        AutoModelForCausalLM.from_pretrained(folder) for folder in (exported, trained / "checkpoints" / LAST)
    ]
    with torch.inference_mode():
        ours, stored = (model(tokens).logits for model in models)
    assert torch.equal(ours, stored)


def test_the_chat_template_gives_the_tokens_of_the_renderer(trained, exported):
    tokenizer = AutoTokenizer.from_pretrained(exported)
    renderer = ChatRenderer(load_tokenizer(trained / "tokenizer"))
    for prompt in PROMPTS:
        chat = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert tuple(ids) == renderer.encode(prompt)


def test_generation_is_set_as_in_training(exported):
    settings = GenerationConfig.from_pretrained(exported)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    assert (settings.do_sample, settings.temperature, settings.top_p, settings.top_k) == (True, 1.0, 1.0, 0)
    assert settings.max_new_tokens == 16
    assert settings.eos_token_id == [tokenizer.eos_token_id, *ENDS]
    assert settings.pad_token_id == tokenizer.pad_token_id


def test_greedy_text_is_the_engines(exported):
    model = AutoModelForCausalLM.from_pretrained(exported)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    engine = LocalEngine(
        model, eos_ids=eos_ids(model.generation_config, tokenizer), pad_id=tokenizer.pad_token_id
    )
    renderer = ChatRenderer(tokenizer)
    for draw, prompt in enumerate(PROMPTS):
        sampling = Sampling(temperature=0.0, top_p=1.0, limit=16)
        request = Request(draw=draw, prompt=renderer.encode(prompt), samples=1, seed=0, sampling=sampling)
        engine.submit(request)
        (completion,) = engine.poll()
        inputs = torch.tensor([request.prompt])
        output = model.generate(inputs, attention_mask=torch.ones_like(inputs), do_sample=False)
        assert output[0, len(request.prompt) :].tolist() == list(completion.tokens)


def test_sampled_text_ends_where_a_response_does(exported):
    model = AutoModelForCausalLM.from_pretrained(exported)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    inputs = tokenizer(PROMPTS[0], return_tensors="pt")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        output = model.generate(**inputs, num_return_sequences=32)[:, inputs["input_ids"].shape[1] :].tolist()
    ends = set(eos_ids(model.generation_config, tokenizer))
    lengths = [next((at for at, token in enumerate(row, 1) if token in ends), len(row)) for row in output]
    for row, length in zip(output, lengths, strict=True):
        assert set(row[length:]) <= {tokenizer.pad_token_id}
    assert len(set(lengths)) > 1
    assert max(lengths) <= 16


def test_rounded_weights_are_the_checkpoints_rounded(trained, tmp_path):
    done("export", trained, tmp_path / "half", "--dtype", "bfloat16")
    assert json.loads((tmp_path / "half" / "config.json").read_bytes())["dtype"] == "bfloat16"
    stored = load_file(trained / "checkpoints" / LAST / "model.safetensors")
    rounded = load_file(tmp_path / "half" / "model.safetensors")
    assert rounded.keys() == stored.keys()
    assert all(torch.equal(rounded[name], stored[name].bfloat16()) for name in stored)


@pytest.mark.parametrize("architecture", ["qwen3", "gpt_neox"])
def test_other_architectures_load_too(architecture, write_recipe, workplace):
    done("train", write_recipe(workplace, architecture, steps=1, validation={"every": 0}), "--run", "run")
    done("export", "run", "model")
    _, report = AutoModelForCausalLM.from_pretrained("model", output_loading_info=True)
    assert not report["missing_keys"]


# -- what lies there


def test_it_holds_what_is_needed_and_nothing_of_the_trainer(trained, exported):
    mine = ("README.md", "generation_config.json", "manifest.json", "prorl_config.json")
    model = ("config.json", "model.safetensors")
    tokenizer = ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json")
    assert folders(exported) == sorted((*mine, *model, *tokenizer))
    assert (exported / "prorl_config.json").read_bytes() == (trained / "config.json").read_bytes()
    assert verify(exported).about["step"] == 3


def test_the_card_tells_the_validations_of_the_journal_and_its_code_runs(trained, exported, monkeypatch):
    first, *_, last = of_kind(trained, Validated)
    card = (exported / "README.md").read_text()
    assert f"| mean | {first.score:.1%} | {last.score:.1%} |" in card
    monkeypatch.chdir(exported)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(re.search(r"```python\n(.*?)\n```", card, re.DOTALL)[1], {})
    assert said.getvalue().endswith("\n")


def test_an_earlier_step_is_told_as_it_was(trained, tmp_path):
    done("export", f"{trained}@2", tmp_path / "model")
    assert "# tiny, step 2" in (tmp_path / "model" / "README.md").read_text()
    stored = trained / "checkpoints" / "step_000002" / "model.safetensors"
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == stored.read_bytes()


def test_sampling_is_that_of_the_last_step_of_its_stage(write_recipe, workplace):
    stages = [{"at": 2, "set": {"sampling.response_limit": 8, "sampling.temperature": 0.5}}]
    done("train", write_recipe(workplace, stages=stages, validation={"every": 0}), "--run", "run")
    for step, limit, temperature in ((0, 16, 1.0), (2, 16, 1.0), (3, 8, 0.5)):
        done("export", f"run@{step}", f"model{step}")
        settings = GenerationConfig.from_pretrained(f"model{step}")
        assert (settings.max_new_tokens, settings.temperature) == (limit, temperature)


def test_training_goes_on_from_an_export(recipe, exported):
    done("train", recipe, f"model.path={exported}", "steps=1", "--run", "again")
    begun = load_file("again/checkpoints/step_000000/model.safetensors")
    ended = load_file(exported / "model.safetensors")
    assert all(torch.equal(begun[name], weight) for name, weight in ended.items())


# -- at a bad moment


def test_a_run_that_is_training_is_exported_beside_it(run):
    with RunStore.open(run):
        assert "step 3" in done("export", "tiny", "model")


def test_what_was_made_read_only_is_exported_into_a_folder_that_is_not(run):
    (run / "tokenizer").chmod(0o555)
    done("export", "tiny", "model")
    assert Path("model").stat().st_mode & 0o200


def test_a_damaged_checkpoint_is_passed_over_with_a_sentence_unless_it_was_asked_for(run):
    spoil(run / "checkpoints" / LAST / "model.safetensors")
    assert "model.safetensors is damaged" in refused("export", "tiny@3", "model")
    assert not Path("model").exists()
    result = prorl("export", "tiny", "model")
    assert result.exit_code == 0
    assert "model.safetensors is damaged" in result.stderr
    assert "step 2 of runs/tiny is exported" in result.stdout


def test_what_is_not_there_or_was_changed_is_refused(run):
    assert "it has those of: 0, 2, 3" in refused("export", "tiny@1", "model")
    spoil(run / "tokenizer" / "tokenizer.json")
    assert "restore them" in refused("export", "tiny", "model")
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    assert "has no checkpoint yet" in refused("export", "tiny", "model")


def test_nothing_is_overwritten_and_an_empty_folder_is_filled(run):
    Path("model").mkdir()
    Path("model/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    before = tree(Path.cwd())
    for name in ("model", "file", "."):
        assert "nothing is overwritten" in refused("export", "tiny", name)
    assert tree(Path.cwd()) == before
    Path("empty").mkdir()
    done("export", "tiny", "empty")
    assert "README.md" in folders(Path("empty"))


def test_a_full_disk_leaves_nothing_behind(run):
    with files_limited_to(20_000):
        assert "cannot write" in refused("export", "tiny", "models/first")
    assert folders(Path("models")) == []


def test_a_checkpoint_that_vanishes_meanwhile_is_a_sentence(run, monkeypatch):
    def vanish(source, target):
        shutil.rmtree(Path(source).parent)
        raise FileNotFoundError(source)

    monkeypatch.setattr(shutil, "copyfile", vanish)
    assert "vanished while it was copied" in refused("export", "tiny", "model")
    assert not Path("model").exists()


@pytest.mark.parametrize("repository", ["me/model", "no such name"])
def test_a_hub_that_cannot_be_reached_is_one_sentence_and_the_export_stays(
    trained, tmp_path, monkeypatch, repository
):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "nobody")
    result = prorl("export", trained, tmp_path / "model", "--push", repository)
    assert result.exit_code == 1
    (sentence,) = result.stderr.splitlines()
    assert "is written, but could not be pushed" in sentence
    assert (tmp_path / "model" / "README.md").exists()
