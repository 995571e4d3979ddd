"""Tiny learners and batches to train them on."""

import dataclasses
import math
from shutil import which

import pytest
import torch
import torch.nn.functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

from prorl.build import learner_settings
from prorl.learn.learner import TorchLearner
from prorl.types import Action, PromptActions, log_probs, token_ids
from support.defaults import some_hparams
from support.recipes import recipe
from support.tiny import NARROW

VOCABULARY = 30
UNIFORM = -math.log(VOCABULARY)  # about what an untrained model says
COMPILING = [
    pytest.mark.slow,
    pytest.mark.skipif(not which("g++"), reason="compiling needs a compiler"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),  # torch's own, while it traces
]
FUSED = pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="torch is older than 2.13")
PLAIN = {"betas": (0.0, 0.0), "eps": 1.0}  # steps in proportion to the gradient rather than its sign
HPARAMS = some_hparams(kl_coef=0.1, learning_rate=1e-2, clip_low=0.2, clip_high=0.28, temperature=0.8)


def qwen2(**changes):
    torch.manual_seed(0)
    tied = {"vocab_size": VOCABULARY, "tie_word_embeddings": True}
    return Qwen2ForCausalLM(Qwen2Config(**NARROW | tied | changes))


def settings_of(**changes):
    """The recipe's defaults, with changes."""
    return learner_settings(recipe()).model_copy(update=changes)


def updated(one, data, hparams):
    """One step of a learner."""
    return one.begin_update(data, hparams)()


def learner(model=None, *, with_reference=True, ranks=None, **settings):
    return TorchLearner(
        model or qwen2(), settings_of(**settings), with_reference=with_reference, pad_id=0, ranks=ranks
    )


def action_of(tokens, engine_logp=0.0, advantage=1.0):
    """A response to learn from, each token of which the engine gave the same log-prob."""
    logps = log_probs([engine_logp] * len(tokens))
    return Action(tokens=token_ids(tokens), engine_logps=logps, advantage=advantage)


def batch(groups=4, samples=3, seed=0, engine_logp=UNIFORM):
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high):
        length = int(torch.randint(low, high, (1,), generator=generator))
        return tuple(torch.randint(1, VOCABULARY, (length,), generator=generator).tolist())

    def action():
        tokens = draw(1, 8)
        advantage = float(torch.randn(1, generator=generator))
        return action_of(tokens, engine_logp, advantage)

    return tuple(
        PromptActions(prompt=draw(3, 9), actions=tuple(action() for _ in range(samples)))
        for _ in range(groups)
    )


def weights(model):
    return [weight.detach().clone() for weight in model.parameters()]


def assert_same(found, expected, **tolerance):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


def bits_equal(found, expected):
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def flat(stats) -> dict:
    """The fields of an update's stats, what is measured by position among them."""
    found = dataclasses.asdict(stats)
    return found | found.pop("mismatch_factors")


def numbers(stats):
    return {k: v for k, v in flat(stats).items() if k != "tokens"}


def with_advantage(group, advantage):
    actions = tuple(dataclasses.replace(action, advantage=advantage) for action in group.actions)
    return dataclasses.replace(group, actions=actions)


def seen_in(tiles):
    """Which positions each position sees in tiles, NN."""
    places = tiles.places_N
    queries = tiles.queries_M.view(len(tiles.bias), -1)
    assert torch.equal(tiles.queries_M[places], torch.arange(len(places)))
    keys_MK = tiles.keys_M.view(len(queries), 1, -1).expand(-1, queries.shape[1], -1).flatten(0, 1)
    seen = torch.zeros(len(places), len(places))
    seen.scatter_add_(1, keys_MK[places], (tiles.bias == 0).float().flatten(0, 2)[places])
    assert seen.max() == 1  # none twice
    return seen.bool()
