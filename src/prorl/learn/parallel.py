"""The model on one rank or over several: sharded by FSDP2, copied to host memory, written, and read back.

Invariant: outside of forward and backward passes every parameter is sharded and in float32. On disk the weights are
always a transformers checkpoint in one file, whoever wrote them; the first rank holds and writes it.

Source: Zhao et al. 2023, PyTorch FSDP (arXiv 2304.11277); the per-parameter sharding is `fully_shard`'s.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from prorl.learn.loss import Scoring, score
from prorl.learn.packing import MicroBatch

WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The processes that learn together, seen from one of them. By default it is alone and nothing is sent."""

    index: int = 0
    count: int = 1
    mesh: DeviceMesh | None = None  # of all ranks, one-dimensional; None: the local backend
    files: dist.ProcessGroup | None = None  # for what is written beside the training

    @classmethod
    def joined(cls, device: str) -> Ranks:
        """All ranks of the default process group, on devices of this type ("cpu" or "cuda")."""
        count, files = dist.get_world_size(), dist.new_group(backend="gloo")
        return cls(index=dist.get_rank(), count=count, mesh=init_device_mesh(device, (count,)), files=files)

    def total(self, sums: Tensor) -> Tensor:
        """The sum over ranks, in place and the same on all of them."""
        if self.mesh is not None:
            dist.all_reduce(sums, group=self.mesh.get_group())
        return sums


@dataclass(slots=True)
class Held:
    """What a process computes with: modules, the policy first, and what it keeps from one item to the next."""

    modules: Sequence[Any]
    kept: dict[str, Any] = field(default_factory=dict)


Function = Callable[[Held, Any], Iterator[Any]]
"""Computes an item. Defined in a module, so that another process finds it."""


class Runner(Protocol):
    """Computes items with the same function."""

    count: int  # of the processes that compute

    def run(self, function: Function, items: Sequence[Any], *, gradients: bool = False) -> Iterator[Any]:
        """The one value that `function` yields for each item, in order.

        With `gradients`, those of each item are added, in order, to the `grad` of the policy's parameters.
        """


class Here:
    """A `Runner` in this process."""

    count = 1

    def __init__(self, modules: Sequence[Any]) -> None:
        self._held = Held(modules)

    def run(self, function: Function, items: Sequence[Any], *, gradients: bool = False) -> Iterator[Any]:
        """As `Runner.run`; autograd itself adds the gradients."""
        for item in items:
            yield from function(self._held, item)


class Scorer(nn.Module):
    """`score` as the forward pass of one module, so that FSDP's hooks enclose the model's body and its head."""

    def __init__(self, model: PreTrainedModel, device: torch.device) -> None:
        """`device` is where it computes, wherever its weights lie meanwhile."""
        super().__init__()
        self.model = model
        self.device = device

    def forward(self, batch: MicroBatch, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """As `score`."""
        return score(self.model, batch, scoring)

    def put(self, device: torch.device) -> None:
        """Keep the weights on a device."""
        # As `to` does, which leaves no choice of memory.
        self._apply(partial(moved, device=device))  # type: ignore[no-untyped-call]


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The transformer layers inside, by which a model is checkpointed, compiled and sharded."""
    return [layer for layer in module.modules() if isinstance(layer, GradientCheckpointingLayer)]


def shard(scorer: Scorer, ranks: Ranks, *, dtype: torch.dtype, offload: bool) -> None:
    """Shard the model over the ranks, layer by layer, in place; without a mesh (the local backend) nothing happens.

    Parameters stay float32 and are gathered in `dtype`; gradients are summed in float32, not averaged, because the
    loss is divided by the global token count already. `offload` keeps shards, gradients and moments in host memory.
    """
    if ranks.mesh is None:
        return
    pinned = ranks.mesh.device_type == "cuda"
    for module in (*layers_of(scorer), scorer):
        sharded = fully_shard(
            module,
            mesh=ranks.mesh,
            mp_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32),
            offload_policy=CPUOffloadPolicy(pin_memory=pinned) if offload else OffloadPolicy(),
            # The root as well: what is scored without gradient would stay gathered until the next backward.
            reshard_after_forward=True,
        )
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # plain sums; gloo has no others


def without_weights(*modules: nn.Module) -> list[Any]:
    """Copies whose weights take no memory until they are given some; a weight that is shared stays shared."""
    nowhere = {
        id(weight): nn.Parameter(torch.empty_like(weight, device="meta"), requires_grad=weight.requires_grad)
        for module in modules
        for weight in module.parameters()
    }
    return copy.deepcopy(list(modules), nowhere)


def full_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every weight by name, whole, one at a time; tied ones once. Over several ranks all must iterate."""
    seen: set[int] = set()
    for name, weight in model.state_dict(keep_vars=True).items():
        if id(weight) not in seen:
            seen.add(id(weight))
            yield name, gathered(weight)


def gathered(weight: Tensor) -> Tensor:
    """A weight as a whole; with shards a collective."""
    whole = weight.detach()
    return whole.full_tensor() if isinstance(whole, DTensor) else whole


def moved(tensor: Tensor, device: torch.device, *, copy: bool = False) -> Tensor:
    """A tensor on a device, arrived there; a shard stays a shard. `copy`: another one if it is there already.

    What leaves a GPU gets pinned memory, which torch keeps for the next: fresh pages would take 40 times as long.
    """
    there = tensor.to(device, copy=copy, non_blocking=True)
    if tensor.is_cuda:  # at once: FSDP reads what it is given
        torch.cuda.current_stream(tensor.device).synchronize()
    return there


def host_copies(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of every tensor in host memory."""
    return {name: moved(value.detach(), torch.device("cpu"), copy=True) for name, value in values.items()}


def sharded_like(whole: Tensor, weight: Tensor) -> Tensor:
    """`whole`, which every rank holds, as `weight` lies over the ranks; nothing is sent."""
    if not isinstance(weight, DTensor):
        return whole
    return distribute_tensor(whole, weight.device_mesh, weight.placements, src_data_rank=None)


def model_writer(model: PreTrainedModel, ranks: Ranks) -> Callable[[Path], None]:
    """Copy the whole weights to host memory of the first rank, a collective; the returned function writes them there.

    It writes a transformers checkpoint, and does nothing on the other ranks.
    """
    copies: dict[str, Tensor] = {}
    for name, whole in full_weights(model):
        if ranks.index == 0:
            copies |= host_copies({name: whole})

    def write(folder: Path) -> None:
        if copies:  # one file however large, because weights are read back by that name
            # With the model's own names: some architectures have others on the hub, which `load_model` knows alike.
            model.save_pretrained(folder, state_dict=copies, max_shard_size="1TB", save_original_format=False)

    return write


@torch.no_grad()
def read_weights(model: PreTrainedModel, folder: Path) -> None:
    """Load what a `model_writer` wrote into a model, whole or sharded; ValueError if it is of another model."""
    path = folder / WEIGHTS
    own = model.state_dict(keep_vars=True)
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        filled = {id(own[name]) for name in names & own.keys()}
        if names - own.keys() or any(id(weight) not in filled for weight in own.values()):
            raise ValueError(f"{path} does not hold the weights of this {type(model).__name__}")
        for name in names:
            own[name].copy_(sharded_like(file.get_tensor(name), own[name]))
