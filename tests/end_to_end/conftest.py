"""Tiny random checkpoints and a recipe that runs on them in a second: the real local backend, end to end."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from support import tiny
from support.commands import done
from support.tiny import write_model

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
    models = {name: write_model(root / name, name) for name in ("llama", "qwen3", "gpt_neox")}
    return models | {"wide": write_model(root / "wide", "llama", context=2048)}


@pytest.fixture(scope="session")
def write_recipe(models: dict[str, Path]) -> WriteRecipe:
    """Write the tiny recipe, with other settings if given, into a folder; its file is named like the recipe."""

    def write(folder: Path, architecture: str = "llama", **settings: Any) -> Path:
        return tiny.write_recipe(folder, models[architecture], **settings)

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
