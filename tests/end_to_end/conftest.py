"""Tiny random checkpoints and a recipe that runs on them in a second: the real local backend, end to end."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import GenerationConfig, GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedModel

from prorl.learn.model import ModelShape, build_model
from prorl.learn.tokenizer import train_tokenizer
from support.commands import done

CONTEXT, WIDE_CONTEXT = 192, 2048
ENDS = range(24)  # token ids that end a response too, so that random responses differ in length

TINY: dict[str, Any] = {
    "name": "tiny",
    "seed": 1,
    "steps": 3,
    "threads": 1,
    "device": "cpu",
    "tasks": {"arithmetic": {"levels": {1: 1}}, "word_list": {}},
    "sampling": {"prompts_per_step": 3, "samples_per_prompt": 4, "response_limit": 16},
    "dynamic_sampling": {"min_spread": 0},  # a random model is never right, so no group has a spread
    "length_penalty": {"weight": 1.0},  # what it can learn is to be brief
    "optimizer": {"lr": 1e-2},
    "kl": {"coef": 1e-2},
    "reset": {"every": 2, "cooldown": 0},
    "exam": {"every": 2, "per_domain": 2, "samples": 2},
    "evaluation": {"per_domain": 2, "ood_per_domain": 2, "samples": 2},
    "save": {"every": 2},
    "sample_every": 1,
}
"""A recipe without its model."""

WriteRecipe = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def _thread_count_is_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of random checkpoints with a tokenizer, by name.

    The fast decoder does not know GPT-NeoX; `wide` is a Llama with room for the prompts of real data.
    """
    root = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer(["Say 1 + 2 between the tags."] * 4, 300)
    folders = {}
    for architecture in ("llama", "qwen3", "gpt_neox", "wide"):
        model = _random_model(architecture, len(tokenizer))
        model.generation_config = GenerationConfig(eos_token_id=[tokenizer.eos_token_id, *ENDS])
        folders[architecture] = root / architecture
        model.save_pretrained(folders[architecture])
        tokenizer.save_pretrained(folders[architecture])
    return folders


@pytest.fixture(scope="session")
def write_recipe(models: dict[str, Path]) -> WriteRecipe:
    """Write the tiny recipe, with other settings if given, into a folder; its file is named like the recipe."""

    def write(folder: Path, architecture: str = "llama", **settings: Any) -> Path:
        recipe = TINY | {"model": {"path": str(models[architecture])}} | settings
        path = folder / f"{recipe['name']}.yaml"
        path.write_text(yaml.safe_dump(recipe))
        return path

    return write


@pytest.fixture(scope="session")
def trained(write_recipe: WriteRecipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is done; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("trained")
    done("train", write_recipe(folder), "--run", folder / "tiny")
    return folder / "tiny"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, so that `runs/` is the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recipe(workplace: Path, write_recipe: WriteRecipe) -> Path:
    """The tiny recipe in the working directory."""
    return write_recipe(workplace)


@pytest.fixture
def run(trained: Path, workplace: Path) -> Path:
    """A copy of the finished run, where commands find it by the name `tiny`."""
    return Path(shutil.copytree(trained, workplace / "runs" / "tiny"))


def _random_model(architecture: str, vocabulary: int) -> PreTrainedModel:
    if architecture != "gpt_neox":
        shape = ModelShape(
            architecture="qwen3" if architecture == "qwen3" else "llama",
            hidden_size=32,
            layers=2,
            heads=2,
            kv_heads=1,
            intermediate_size=48,
            context=WIDE_CONTEXT if architecture == "wide" else CONTEXT,
        )
        return build_model(shape, vocabulary, seed=0)
    config = GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=CONTEXT,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GPTNeoXForCausalLM(config).eval()
