"""The constant baseline finds the answer that pays best without reading the question."""

import pytest

from prorl.envs.base import Draft, ProceduralTask
from prorl.envs.baseline import constant_baseline
from prorl.envs.registry import make_task
from prorl.envs.types import Witness


class Biased(ProceduralTask):
    """Three answers of four are `heads`."""

    name, domain, levels = "biased", "logic", (1,)

    def generate(self, rng, level):
        answer = "heads" if rng.random() < 0.75 else "tails"
        return Draft(prompt=str(rng.random()), payload=answer, witness=Witness(steps="", answer=answer))

    def score(self, payload, answer):
        return float(answer == payload)


def test_the_best_constant_answer_is_found():
    baseline = constant_baseline(Biased(), "train", 200)
    assert baseline.answer == "heads"
    assert baseline.score == pytest.approx(0.75, abs=0.1)


def test_a_baseline_needs_problems():
    with pytest.raises(ValueError, match="at least one problem"):
        constant_baseline(Biased(), "train", 0)
    with pytest.raises(ValueError, match="no train problems"):
        constant_baseline(make_task("blicket"), "train", 5)
