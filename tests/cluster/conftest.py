"""These tests run vLLM in their own process, which reads its environment when it is imported."""

import os

import pytest

from prorl.cluster.settings import engine_environment

os.environ.update(engine_environment(threads=1, device="cpu"))


SLOWEST = ("test_failures", "test_backend", "test_transfer", "test_judge", "test_colocated")  # begun first


def pytest_collection_modifyitems(items):
    """The files that take longest come first, so that no process is left with one of them at the end."""
    places = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A checkpoint that is only read, with tied embeddings, and heads of 32 dimensions, the least for vLLM here."""
    from support.tiny import write_model

    return write_model(tmp_path_factory.mktemp("model") / "qwen3", "qwen3", width=64)
