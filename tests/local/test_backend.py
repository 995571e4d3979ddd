"""Engine and learner of one process, and the proof that they are the same policy."""

import gc

import pytest
import torch

from prorl.build import Session
from prorl.config.schema import ShapeConfig
from prorl.learn.base_model import build_model
from prorl.local.backend import EXACT, LocalBackend, SyncError, allowed, require_agreement
from prorl.local.engine import LocalEngine
from support.fake_backend import FakeBackend
from support.learners import VOCABULARY, learner, qwen2


def backend(noise):
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


SHAPE = ShapeConfig(
    architecture="qwen3", hidden_size=64, layers=12, heads=2, kv_heads=1, intermediate_size=128, context=64
)
WORDS = 320
PROBE = torch.arange(0, WORDS, 5)[None]


def logps(model):
    """Of the second half of the probe."""
    middle = PROBE.shape[1] // 2
    with torch.no_grad():
        logits = model(PROBE).logits[0, middle - 1 : -1].float()
    return logits.log_softmax(-1).gather(-1, PROBE[0, middle:, None])[:, 0].tolist()


def model_of(seed, sharpness):
    """Random, with logits of about this standard deviation."""
    model = build_model(SHAPE, WORDS, seed=seed)
    with torch.no_grad():
        model.lm_head.weight.mul_(sharpness / model(PROBE).logits.std())
    return model


@pytest.mark.parametrize(
    ("dtype", "other", "sharpness"),
    [("bfloat16", torch.bfloat16, sharpness) for sharpness in (0.5, 4.0, 16.0)]
    + [("float32", torch.float64, sharpness) for sharpness in (0.5, 16.0, 256.0)],
)
@pytest.mark.parametrize("seed", range(2))
def test_a_type_may_round_in_proportion_to_the_logits_and_not_be_another_model(dtype, other, sharpness, seed):
    learned = logps(model_of(seed, sharpness))
    rounded = logps(model_of(seed, sharpness).to(other))
    if dtype == "bfloat16":
        assert max(abs(a - b) for a, b in zip(rounded, learned, strict=True)) > EXACT
    else:
        assert allowed("float32", learned) < 0.01 * allowed("bfloat16", learned)
    require_agreement(1, rounded, learned, dtype)
    with pytest.raises(SyncError, match="policy version 1"):
        require_agreement(1, logps(model_of(seed + 3, sharpness)), learned, dtype)


def test_float32_may_differ_in_its_last_digits():
    assert allowed("float32", [-1.0, -1.5]) == EXACT
    require_agreement(0, [-1.0, -2.00009], [-1.0, -2.0], "float32")
    with pytest.raises(SyncError, match=r"differ by 0.0002 nats"):
        require_agreement(0, [-1.0, -2.0002], [-1.0, -2.0], "float32")
    with pytest.raises(SyncError):  # what is no number agrees with nothing
        require_agreement(0, [float("nan"), -1.0], [-1.0, -1.0], "float32")


def test_a_collection_inside_a_session_leaves_out_what_was_there_before():
    unused = dict.fromkeys(("config", "plan", "tasks", "renderer", "tokenizer", "context"))
    before = [[]]
    with Session(**unused, backend=FakeBackend({}, {}, 0.5)):
        assert not any(one is before for one in gc.get_objects())
    assert any(one is before for one in gc.get_objects())
