"""Weights straight from the learner's GPUs to the engines', by the trainer's side of vLLM's weight-transfer API.

Every rank gathers every weight, which is a collective. Rank 0 tells the engines what to do and broadcasts over NCCL;
the others only gather along.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from vllm.distributed.weight_transfer.base import ParamMeta, TrainerInitInfo, WeightSource
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

from prorl.cluster.calls import reason, results
from prorl.cluster.checksums import differing, word_sum
from prorl.cluster.settings import Device
from prorl.cluster.weights import Receivers
from prorl.learn.parallel import gathered


class Source(WeightSource):  # type: ignore[misc]
    """The policy's weights under all their names, also of those that are tied, whole and as the engines hold them."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, device: Device, *, sends: bool) -> None:
        """`sends`: this rank's weights are those that are sent, so it sums them."""
        self._model, self._dtype, self._device, self._sends = model, dtype, device, sends
        self.begin()

    def metadata(self) -> list[ParamMeta]:
        """What a round yields, in its order."""
        named = self._model.state_dict(keep_vars=True).items()
        return [ParamMeta(name, self._dtype, tuple(weight.shape)) for name, weight in named]

    def begin(self) -> None:
        """Begin another round."""
        self._round = self._weights()
        self._sums: dict[str, Tensor] = {}

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """What is left of this round. With shards a collective: all ranks must come to its end."""
        return self._round

    def sums(self) -> dict[str, int]:
        """The `word_sum` of every weight of this round, once all of it has been sent."""
        return {name: int(total) for name, total in self._sums.items()}

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        for name, weight in self._model.state_dict(keep_vars=True).items():
            whole = gathered(weight).to(self._device, self._dtype)
            if self._sends:
                self._sums[name] = word_sum(whole)
            yield name, whole


class Line:
    """This rank's end of the way to the engines, and for vLLM the client who talks to them.

    A failure at the other end is kept and not raised, and ends the talking: the ranks must walk through all
    collectives of a transfer together, or the next thing they do would hang.

    Source: `VLLMWeightSyncClient` and `TrainerWeightTransferEngine` in vLLM's distributed/weight_transfer/base.py.
    """

    def __init__(self, source: Source, rank: int, receivers: Receivers, address: tuple[str, int]) -> None:
        """Meet the engines, over NCCL at an address of rank 0; on all ranks. `failure` says whether it went well."""
        self.failure: str | None = None
        self._source = source
        self._receivers = receivers
        self._due = time.monotonic() + receivers.deadline
        self._sender: Any = None
        self._arrived: list[list[dict[str, int]]] = []  # at every engine, on every GPU
        info = _init_info(rank, receivers, address)
        try:
            self._sender = WeightTransferTrainerFactory.trainer_init(info, client=self, source=source)
        except Exception as error:
            self._fail("this rank", reason(error))

    def send(self) -> str | None:
        """Send the source to all engines; on all ranks, once all have met. Returns what has failed, if anything."""
        self.failure = None
        self._due = time.monotonic() + self._receivers.deadline
        self._source.begin()
        try:
            self._sender.send_weights()
        except Exception as error:
            self._fail("this rank", reason(error))
        for _ in self._source:  # to the end of the round, wherever this rank has stopped
            pass
        return self.failure

    def close(self) -> None:
        """Leave the engines."""
        if self._sender is not None:
            self._sender.shutdown()

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Have the engines come to the meeting; over NCCL every GPU of every engine has a rank of its own."""
        everyone = [dict(init_info) for _ in self._receivers.actors]
        if "rank_offset" in init_info:  # vLLM's own is for one engine alone
            for index, info in enumerate(everyone):
                info["rank_offset"] += index * self._receivers.gpus
        self._ask("shutdown_weight_transfer_engine")  # those that stay have met a group that is no more
        self._ask("init_weight_transfer_engine", everyone)

    def start_weight_update(self) -> None:
        """Have the engines prepare."""
        self._ask("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        """Have the engines receive what is sent meanwhile."""
        self._arrived = self._ask("receive_weights", [update_info] * len(self._receivers.actors))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Have the engines end the transfer, if they received what was sent."""
        sent = self._source.sums()
        for index, gpus in enumerate(self._arrived):
            if damaged := differing(sent, gpus, self._receivers.gpus):
                which = f"{len(damaged)} of {len(sent)} weights, the first of them {damaged[0]}"
                self._fail("receive_weights", f"{which}, are not at engine {index} as they were sent")
        self._ask("finish_weight_update")

    def _ask(self, step: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """What all engines answer to a step, in their order; nothing once something has failed.

        `arguments` holds one for each.
        """
        if self.failure is not None:
            return []
        actors = self._receivers.actors
        each = [()] * len(actors) if arguments is None else [(argument,) for argument in arguments]
        try:
            asked = [actor.transfer.remote(step, *mine) for actor, mine in zip(actors, each, strict=True)]
            return results(asked, within=max(0.0, self._due - time.monotonic()))
        except Exception as error:
            self._fail(step, reason(error))
            return []

    def _fail(self, step: str, why: str) -> None:
        """Keep what was first, and let a broadcast end that somebody will never take part in: it waits for ever."""
        if self.failure is None:
            self.failure = f"{step}: {why}"
        group = getattr(self._sender, "model_update_group", None)  # NCCL's
        if group is not None:
            group.destroy()


def _init_info(rank: int, receivers: Receivers, address: tuple[str, int]) -> TrainerInitInfo:
    return NCCLTrainerInitInfo(
        rank=rank,
        master_address=address[0],
        master_port=address[1],
        world_size=1 + len(receivers.actors) * receivers.gpus,
        # One stream for all pieces: a layer that came in two of them is copied where the second arrives, and with
        # streams that take turns the memory of the first could be used again before it has been read.
        packed_num_buffers=1,
    )
