"""Stages and commands on the real backend: a domain joins, n and limit double, the optimizer is cleared once."""

from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

from prorl.commands import INBOX, Command, send
from prorl.config.recipe import load_recipe
from prorl.control.events import CommandGiven, ReferenceReset, StageEntered, Stepped
from prorl.control.state import fold
from prorl.session import resume_run, start_run
from support.runs import CtrlC, assert_same, events, finished, of_kind, quiet

STAGES = {
    "name": "staged",
    "steps": 6,
    "reset": {"every": 0},
    "kl": {"coef": 1e-2},
    "stages": [
        {"at": 0, "mixture": {"word_list": 0}},
        {"at": 2, "mixture": {"word_list": 1}},
        {"at": 3, "set": {"sampling.samples_per_prompt": 8, "sampling.response_limit": 32}},
        {"at": 4, "reset_reference": True, "optimizer": "clear"},
    ],
    "save": {"every": 1, "keep_last": 9},
}


@pytest.fixture(scope="module")
def config(write_recipe, tmp_path_factory):
    return load_recipe(str(write_recipe(tmp_path_factory.mktemp("recipe"), **STAGES)))


@pytest.fixture(scope="module")
def staged(config, tmp_path_factory) -> Path:
    return finished(config, tmp_path_factory.mktemp("staged") / "run")


def moments(run: Path, step: int) -> list[torch.Tensor]:
    saved = torch.load(run / "checkpoints" / f"step_{step:06d}" / "optimizer.pt", weights_only=True)
    tensors = [leaf for leaf in tree_leaves(saved) if isinstance(leaf, torch.Tensor)]
    return [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel() > 1]


def test_the_plan_is_carried_out(staged):
    assert [event.step for event in of_kind(staged, StageEntered)] == [0, 2, 3, 4]
    steps = of_kind(staged, Stepped)
    assert [set(step.rollout_stats.domain_scores) for step in steps[:2]] == [{"math"}] * 2
    assert {"instruct"} <= set().union(*(step.rollout_stats.domain_scores for step in steps[2:]))
    assert [
        step.rollout_stats.rollouts // (step.rollout_stats.draws + step.rollout_stats.surplus)
        for step in steps
    ] == [4] * 3 + [8] * 3
    assert max(step.rollout_stats.length for step in steps[:3]) <= 16
    (reset,) = of_kind(staged, ReferenceReset)
    assert (reset.step, reset.optimizer) == (4, "clear")


def test_the_optimizer_is_empty_once(staged):
    empty = [step for step in range(1, 7) if not any(m.any() for m in moments(staged, step))]
    assert empty == [4]


@pytest.mark.parametrize("stop", [3, 4])
def test_interrupting_between_stages_changes_no_bit(config, staged, tmp_path, stop):
    run = tmp_path / "run"
    assert start_run(config, run, CtrlC(stop)).stopped == "interrupted"
    assert resume_run(run, quiet()).stopped == "done"
    assert_same(run, staged)


def test_commands_in_the_inbox_are_obeyed_by_a_real_run(recipe, tmp_path):
    config = load_recipe(str(recipe), ["steps=2"])
    run = tmp_path / "run"
    assert start_run(config, run, CtrlC(1)).stopped == "interrupted"
    commands = [
        Command(name="set", settings={"kl.coef": 0.5, "optimizer.lr": 1e-3}),
        Command(name="set", settings={"sampling.response_limit": 10_000}),
    ]
    for command in commands:
        send(run / INBOX, command)
    assert resume_run(run, quiet()).stopped == "done"
    obeyed, refused = of_kind(run, CommandGiven)
    assert obeyed.refused is None
    assert "leaves no room for a prompt in the model's context of 192 tokens" in refused.refused
    last = of_kind(run, Stepped)[-1]
    assert (last.kl_coef, last.learning_rate) == (0.5, 1e-3)
    assert fold(events(run)).overrides == {"kl_coef": 0.5, "learning_rate": 1e-3}
