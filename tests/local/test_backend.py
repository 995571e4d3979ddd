"""Engine and learner of one process, and the proof that they are the same policy."""

from __future__ import annotations

import pytest
import torch

from prorl.local.backend import LocalBackend, SyncError
from prorl.local.engine import LocalEngine
from support.learners import VOCABULARY, learner, qwen2


def backend(noise: float) -> LocalBackend:
    """Whose engine's weights are off by this share of their size."""
    served, trained = qwen2(), learner(with_reference=False)
    with torch.no_grad():
        for number, weight in enumerate(served.parameters()):
            weight *= 1 + noise * (-1) ** number
    engine = LocalEngine(served, eos_ids=[0], pad_id=0)
    return LocalBackend(engine, None, trained, probe=tuple(range(VOCABULARY)))


@pytest.fixture
def precision():
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(
    ("products", "noise", "agree"),
    [("highest", 0, True), ("highest", 0.1, False), ("high", 0.1, True), ("high", 3, False)],
)
def test_a_sync_is_refused_beyond_what_the_precision_of_products_explains(precision, products, noise, agree):
    precision(products)
    one = backend(noise)
    if agree:
        one.sync(1)
        assert one.engine.version == 1
    else:
        with pytest.raises(SyncError, match="policy version 1"):
            one.sync(1)
