"""These tests run vLLM in their own process, which reads its environment when it is imported."""

import os

import pytest

from prorl.cluster.settings import engine_environment

os.environ.update(engine_environment(threads=1, device="cpu"))


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A checkpoint that is only read."""
    from support.cluster import write_model

    return write_model(tmp_path_factory.mktemp("model") / "qwen3")
