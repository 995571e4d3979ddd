"""The learner's weights on their way to the engines through host memory: named, versioned and checksummed.

They travel as one object of Ray's store, which engines on the same machine read in place. Every name of a
weight is listed, also of one that is tied to another, because vLLM renews the output head only where it is named.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prorl.cluster.checksums import Array, crc
from prorl.learn.parallel import full_weights
from prorl.local.backend import SyncError


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """All engines, as those who send them weights see them."""

    actors: Sequence[Any]  # handles of `EngineActor`
    gpus: int  # of each
    deadline: float  # seconds in which all of them must be met, and then take the weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What the engines serve, and how the learner scores a probe with it."""

    version: int
    copy: Callable[[], Any]  # gives a reference to its `Weights`
    send: Callable[[Receivers], str | None]  # has them sent straight to the engines; returns what has failed
    prompt: Sequence[int]
    tokens: Sequence[int]
    logps: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One version of the policy, under transformers' names."""

    version: int
    dtype: str  # torch's name of it
    arrays: Mapping[str, Array]  # bfloat16, which numpy does not know, as int16; tied names share one array
    checksum: int


def collect(model: nn.Module, version: int, dtype: torch.dtype) -> Weights:
    """The whole weights of a model that may be sharded; then a collective, and every rank gets them.

    They may share the model's memory: send them on before it learns.
    """
    arrays = {name: _array(whole.to("cpu", dtype)) for name, whole in full_weights(model)}
    first: dict[int, str] = {}
    named = {
        name: arrays[first.setdefault(id(weight), name)]
        for name, weight in model.state_dict(keep_vars=True).items()
    }
    return Weights(
        version=version, dtype=str(dtype).removeprefix("torch."), arrays=named, checksum=crc(named)
    )


def unpack(weights: Weights) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors, to be read only.

    Raises:
        SyncError: what arrived is not what was sent.
    """
    if crc(weights.arrays) != weights.checksum:
        raise SyncError(
            f"the weights of policy version {weights.version} were damaged on their way to an engine: check the "
            "memory and network of this machine, then resume"
        )
    for name, array in weights.arrays.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nobody writes
            tensor = torch.from_numpy(array)
        yield name, tensor.view(getattr(torch, weights.dtype))


def _array(tensor: Tensor) -> Array:
    array: Array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array
