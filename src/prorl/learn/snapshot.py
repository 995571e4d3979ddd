"""Tensors as they are at one moment, in host memory, and how they lie on disk.

Weights are always a transformers checkpoint in one file, whoever wrote them; the first rank holds and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from prorl.learn.parallel import Ranks, full_weights, sharded_like

WEIGHTS = "model.safetensors"


def host_copy(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy every tensor to host memory; a shard stays a shard."""
    return {
        name: value.detach().to("cpu", copy=True) if torch.is_tensor(value) else value
        for name, value in values.items()
    }


def host_weights(model: PreTrainedModel, ranks: Ranks) -> dict[str, Tensor]:
    """A copy of the whole weights on the first rank, nothing on the others, which help to gather them."""
    copies = {}
    for name, whole in full_weights(model):
        if ranks.index == 0:
            copies[name] = whole.to("cpu", copy=True)
    return copies


def write_model(model: PreTrainedModel, folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write what `host_weights` gave as a transformers checkpoint; nothing on ranks that hold nothing."""
    if weights:
        # One file however large, because weights are read back by that name.
        model.save_pretrained(folder, state_dict=dict(weights), max_shard_size="1TB")


@torch.no_grad()
def read_weights(model: PreTrainedModel, folder: Path) -> None:
    """Load what `write_model` wrote into a model that is whole or sharded, one tensor at a time.

    Raises:
        ValueError: the file holds the weights of another model.
    """
    path = folder / WEIGHTS
    own = model.state_dict(keep_vars=True)
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        filled = {id(own[name]) for name in names & own.keys()}
        if names - own.keys() or any(id(weight) not in filled for weight in own.values()):
            raise ValueError(f"{path} does not hold the weights of this {type(model).__name__}")
        for name in names:
            own[name].copy_(sharded_like(file.get_tensor(name), own[name]))
