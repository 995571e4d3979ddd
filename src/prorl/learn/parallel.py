"""The learner over several processes: who computes which rows, and the model sharded over them by FSDP2.

A batch is dealt before they compute, with counts over all ranks, so denominators need no communication, and a rank
is given its own rows only; gradients, parameters and a handful of sums travel. Invariants: all ranks make the same
number of forward and backward passes, since each of them is a collective; outside of these every parameter is
sharded and in float32.

Source: Zhao et al. 2023, PyTorch FSDP (arXiv 2304.11277); the per-parameter sharding is `fully_shard`'s.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from prorl.learn.logprobs import Scoring, score
from prorl.learn.packing import MicroBatch, Row, gather_rows, plan_rows
from prorl.types import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The processes that learn together, seen from one of them. By default it is alone and nothing is sent."""

    index: int = 0
    count: int = 1
    mesh: DeviceMesh | None = None  # of all ranks, one-dimensional; None: alone
    files: dist.ProcessGroup | None = None  # for what is written beside the training

    @classmethod
    def joined(cls, device: str) -> Ranks:
        """All ranks of the default process group, on devices of this type ("cpu" or "cuda")."""
        count = dist.get_world_size()
        return cls(
            index=dist.get_rank(),
            count=count,
            mesh=init_device_mesh(device, (count,)),
            files=dist.new_group(backend="gloo"),
        )

    def total(self, sums: Tensor) -> Tensor:
        """The sum over ranks, in place and the same on all of them."""
        if self.mesh is not None:
            dist.all_reduce(sums, group=self.mesh.get_group())
        return sums


class Scorer(nn.Module):
    """`score` as the forward pass of one module, so that FSDP's hooks enclose the model's body and its head."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: MicroBatch, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """As `logprobs.score`."""
        return score(self.model, batch, scoring)

    def __call__(self, batch: MicroBatch, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """As `forward`, through the hooks."""
        scores: tuple[Tensor, Tensor] = super().__call__(batch, scoring)
        return scores


def shard(scorer: Scorer, ranks: Ranks, *, dtype: torch.dtype, offload: bool) -> None:
    """Shard the model over the ranks, layer by layer, in place; with one rank alone nothing happens.

    Parameters stay float32 and are gathered in `dtype`; gradients are summed in float32, not averaged, because the
    loss is divided by the global token count already. `offload` keeps shards, gradients and moments in host memory.
    """
    if ranks.mesh is None:
        return
    pinned = ranks.mesh.device_type == "cuda"
    options: dict[str, Any] = {
        "mesh": ranks.mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy(pin_memory=pinned) if offload else OffloadPolicy(),
        # The root as well: what is scored without gradient would otherwise stay gathered until the next backward.
        "reshard_after_forward": True,
    }
    layers = [layer for layer in scorer.modules() if isinstance(layer, GradientCheckpointingLayer)]
    for module in (*layers, scorer):
        sharded = fully_shard(module, **options)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # plain sums; gloo has no others


def without_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A frozen copy whose weights take no memory until `copy_weights`; it may be sharded before."""
    nowhere = {
        id(weight): nn.Parameter(torch.empty_like(weight, device="meta"), requires_grad=False)
        for weight in model.parameters()
    }
    return copy.deepcopy(model, nowhere)


def copy_weights(source: PreTrainedModel, target: PreTrainedModel) -> None:
    """Give `target`, which came `without_weights` of `source`, a copy of them, as they lie over the ranks by now."""
    target.load_state_dict(copy.deepcopy(source.state_dict(keep_vars=True)), assign=True)


def deal(rows: Sequence[Row], ranks: int) -> list[list[Row]]:
    """Rows of each rank, balanced by token positions: the longest first, always to the rank that has least.

    (Graham 1969: at most 4/3 of the best possible longest share.) There may be ranks without rows.
    """
    hands: list[list[Row]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for row in sorted(rows, key=lambda row: row.positions, reverse=True):
        least = loads.index(min(loads))
        hands[least].append(row)
        loads[least] += row.positions
    return hands


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one rank computes of a mini-batch, and counts over all ranks."""

    passes: tuple[tuple[Row, ...], ...]  # rows of each forward pass, none where other ranks still compute
    action_tokens: int
    positions: int  # computed, padding included


def deal_batch(
    batch: Batch, *, updates: int, ranks: int, budget: int, pair_cost: float | None
) -> list[list[Share]]:
    """For each rank its share of every mini-batch, one per update; `budget` and `pair_cost` as in `plan_rows`.

    Mini-batches are contiguous groups whose counts differ by at most one. Groups without action tokens are left out,
    and fewer groups than updates make fewer mini-batches.
    """
    groups = [group for group in batch.groups if group.action_tokens]
    parts = min(updates, len(groups))
    bounds = [part * len(groups) // parts for part in range(parts + 1)] if parts else []
    hands: list[list[Share]] = [[] for _ in range(ranks)]
    for start, end in pairwise(bounds):
        rows = plan_rows(groups[start:end], budget=budget, pair_cost=pair_cost)
        plans = [gather_rows(hand, budget=budget) for hand in deal(rows, ranks)]
        tokens = sum(group.action_tokens for group in groups[start:end])
        positions = sum(len(part) * part[0].positions for plan in plans for part in plan)
        for hand, plan in zip(hands, plans, strict=True):
            passes = (*map(tuple, plan), *[()] * (max(map(len, plans)) - len(plan)))
            hand.append(Share(passes=passes, action_tokens=tokens, positions=positions))
    return hands


def full_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every weight by name, whole, one at a time; tied ones once. With shards a collective: all ranks iterate."""
    seen: set[int] = set()
    for name, weight in model.state_dict(keep_vars=True).items():
        if id(weight) not in seen:
            seen.add(id(weight))
            yield name, gathered(weight)


def gathered(weight: Tensor) -> Tensor:
    """A weight as a whole; with shards a collective."""
    whole = weight.detach()
    return whole.full_tensor() if isinstance(whole, DTensor) else whole


def sharded_like(whole: Tensor, weight: Tensor) -> Tensor:
    """`whole`, which every rank holds, as `weight` lies over the ranks; nothing is sent."""
    if not isinstance(weight, DTensor):
        return whole
    return distribute_tensor(whole, weight.device_mesh, weight.placements, src_data_rank=None)
