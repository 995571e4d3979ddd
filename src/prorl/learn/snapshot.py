"""Tensors as they are at one moment, in host memory: what a checkpoint writes while training goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def host_copy(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy every tensor to host memory; one that is there under two names (tied weights) is one again."""
    copies: dict[tuple[object, ...], Tensor] = {}
    return {
        name: _copied(value, copies) if torch.is_tensor(value) else value for name, value in values.items()
    }


def _copied(tensor: Tensor, copies: dict[tuple[object, ...], Tensor]) -> Tensor:
    place = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
    if tensor.numel() == 0 or place not in copies:
        copies[place] = tensor.detach().to("cpu", copy=True)
    return copies[place]
