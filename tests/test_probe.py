"""What the proof after a sync lets pass, and what not."""

import pytest
import torch

from prorl.learn.base_model import ModelShape, build_model
from prorl.local.backend import EXACT, SyncError, allowed, require_agreement

SHAPE = ModelShape(
    architecture="qwen3", hidden_size=64, layers=12, heads=2, kv_heads=1, intermediate_size=128, context=64
)
VOCABULARY = 320
PROBE = torch.arange(0, VOCABULARY, 5)[None]


def logps(model):
    """Of the second half of the probe."""
    middle = PROBE.shape[1] // 2
    with torch.no_grad():
        logits = model(PROBE).logits[0, middle - 1 : -1].float()
    return logits.log_softmax(-1).gather(-1, PROBE[0, middle:, None])[:, 0].tolist()


def model_of(seed: int, sharpness: float):
    """Random, with logits of about this standard deviation."""
    model = build_model(SHAPE, VOCABULARY, seed=seed)
    with torch.no_grad():
        model.lm_head.weight.mul_(sharpness / model(PROBE).logits.std())
    return model


@pytest.mark.parametrize("sharpness", [0.5, 4.0, 16.0])
@pytest.mark.parametrize("seed", range(3))
def test_bfloat16_may_round_and_not_be_another_model(seed, sharpness):
    learned = logps(model_of(seed, sharpness))
    rounded = logps(model_of(seed, sharpness).to(torch.bfloat16))
    other = logps(model_of(seed + 3, sharpness))
    tolerance = allowed("bfloat16", learned)
    assert max(abs(a - b) for a, b in zip(rounded, learned, strict=True)) > EXACT
    require_agreement(1, rounded, learned, tolerance=tolerance)
    with pytest.raises(SyncError, match="policy version 1"):
        require_agreement(1, other, learned, tolerance=tolerance)


@pytest.mark.parametrize("sharpness", [0.5, 16.0, 256.0])
def test_float32_rounds_in_proportion_to_the_logits(sharpness):
    model, other = model_of(0, sharpness), model_of(3, sharpness)
    learned = logps(model)
    tolerance = allowed("float32", learned)
    assert tolerance < 0.01 * allowed("bfloat16", learned)
    require_agreement(1, logps(model.double()), learned, tolerance=tolerance)
    with pytest.raises(SyncError):
        require_agreement(1, logps(other), learned, tolerance=tolerance)


def test_float32_may_differ_in_its_last_digits():
    assert allowed("float32", [-1.0, -1.5]) == EXACT
    require_agreement(0, [-1.0, -2.00009], [-1.0, -2.0], tolerance=EXACT)
    with pytest.raises(SyncError, match=r"differ by 0.0002 nats"):
        require_agreement(0, [-1.0, -2.0002], [-1.0, -2.0], tolerance=EXACT)


def test_what_is_no_number_agrees_with_nothing():
    with pytest.raises(SyncError):
        require_agreement(0, [float("nan"), -1.0], [-1.0, -1.0], tolerance=EXACT)
