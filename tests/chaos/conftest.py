"""A run in which everything happens that faults could disturb, programs in the sandbox among it."""

from pathlib import Path

import pytest

from support.runs import finished
from support.tiny import write_model, write_recipe


@pytest.fixture(scope="session")
def recipe(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    # A random model hits upon whole answers, so that there are programs to be run.
    answers = [f"<answer>x{one}{number}</answer>" for one in "+-*%" for number in range(1, 100)]
    model = write_model(folder / "model", "llama", layers=1, words=answers)
    return write_recipe(
        folder,
        model,
        name="chaos",
        steps=12,
        tasks={"arithmetic": {"levels": {1: 1}}, "word_list": {}, "one_liner": {"levels": {1: 1}}},
        judge={"workers": 2},
        reset={"every": 3, "cooldown": 0},
        validation={"every": 4, "per_domain": 2, "samples": 2},
        save={"every": 2, "keep_last": 2},
        evaluation={"per_domain": 2, "ood_per_domain": 0, "samples": 2},
    )


@pytest.fixture(scope="session")
def uninterrupted(recipe, tmp_path_factory) -> Path:
    return finished(recipe, tmp_path_factory.mktemp("uninterrupted") / "run")
