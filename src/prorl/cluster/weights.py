"""The learner's weights on their way to the engines: through host memory, or straight from GPU to GPU.

In host memory they are an object of Ray's store on every node that holds a rank, with a checksum, which the engines
of that node read in place.
Straight from GPU to GPU they go by the trainer's side of vLLM's weight-transfer API: every rank gathers every weight,
which is a collective, and rank 0 broadcasts it over NCCL, or each rank lends it to the engine on its GPU (CUDA IPC).
All ways list every name of a weight, also of one that is tied to another, because vLLM renews the output head only
where it is named.
"""

import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prorl.cluster.settings import Device, EngineSettings
from prorl.learn.parallel import full_weights, gathered
from prorl.local.backend import SyncError

Array = np.ndarray[Any, np.dtype[Any]]

PIECE = 2**22  # words that are summed at a time, which takes 96 MiB beside the tensor
BUFFER = 2**29  # bytes that are sent at a time, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A version of the policy for the engines, and the learner's log-probs of a probe."""

    version: int
    copy: Callable[[], Any]  # gives its `Copies`
    send: Callable[[Sequence[Any], EngineSettings], str | None]  # to actors of engines; returns what failed
    prompt: Sequence[int]
    tokens: Sequence[int]
    logps: Sequence[float]


# -- through host memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One version of the policy, under transformers' names."""

    version: int
    dtype: str  # torch's name of it
    arrays: Mapping[str, Array]  # bfloat16, which numpy does not know, as int16; tied names share one array
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """One version's `Weights` in Ray's store."""

    by_node: Mapping[str, Any]  # a reference, by the id of the node that it lies on

    def nearest(self, node: str) -> Any:
        """A reference to the copy on that node, or to the first where it has none."""
        return self.by_node.get(node, next(iter(self.by_node.values())))


def collect(model: nn.Module, version: int, dtype: torch.dtype) -> Weights:
    """The whole weights of a model; where it is sharded a collective. They may share its memory until it learns."""
    held = model.state_dict(keep_vars=True)
    arrays: dict[int, Array] = {}  # by the weight's id
    for name, whole in full_weights(model):
        tensor = whole.to("cpu", dtype)
        arrays[id(held[name])] = (tensor.view(torch.int16) if dtype == torch.bfloat16 else tensor).numpy()
    named = {name: arrays[id(weight)] for name, weight in held.items()}
    return Weights(
        version=version, dtype=str(dtype).removeprefix("torch."), arrays=named, checksum=crc(named)
    )


def unpack(weights: Weights) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors, to be read only. Raises SyncError: what arrived is not what was sent."""
    if crc(weights.arrays) != weights.checksum:
        raise SyncError(
            f"the weights of policy version {weights.version} were damaged on their way to an engine: check the "
            "memory and network of this machine, then resume"
        )
    for name, array in weights.arrays.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # it is only read
            tensor = torch.from_numpy(array)
        yield name, tensor.view(getattr(torch, weights.dtype))


def crc(arrays: Mapping[str, Array]) -> int:
    """CRC-32 over names, shapes and contents; arrays under two names count once."""
    value, seen = 0, set()
    for name, array in arrays.items():
        value = zlib.crc32(f"{name} {array.shape}".encode(), value)
        place = array.__array_interface__["data"]
        if place not in seen:
            seen.add(place)
            value = zlib.crc32(np.ascontiguousarray(array).data, value)
    return value


# -- from GPU to GPU


def word_sum(tensor: Tensor) -> Tensor:
    """The sum of a tensor's 16-bit words, each times its place, modulo 2^64: an int64 scalar on the same device.

    Any change of one word changes it, as does any exchange of two that differ. It is exact, so the order in which a
    device adds up does not matter.
    """
    words = tensor.detach().contiguous().view(-1).view(torch.int16)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for start in range(0, len(words), PIECE):
        piece = words[start : start + PIECE].long()
        total += (piece * torch.arange(start + 1, start + 1 + len(piece), device=words.device)).sum()
    return total


def differing(sent: Mapping[str, int], received: Sequence[Mapping[str, int]]) -> list[str]:
    """Names of weights that not every receiver has as they were sent, by their sums."""
    return [name for name, total in sent.items() if any(sums.get(name) != total for sums in received)]


def policy_source(
    model: nn.Module, dtype: torch.dtype, device: Device, *, sums: dict[str, Tensor] | None
) -> Any:
    """A `WeightSource` of vLLM: the policy's weights under all names, whole and in the engines' dtype; a collective.

    `sums` takes the `word_sum` of every weight of a round, and is None on ranks that send nothing.
    """
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

    class Source(WeightSource):  # type: ignore[misc]  # Any, where vLLM is not installed
        def metadata(self) -> list[Any]:
            named = model.state_dict(keep_vars=True).items()
            return [ParamMeta(name, dtype, tuple(weight.shape)) for name, weight in named]

        def begin(self) -> None:
            self._round = self._weights()

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            return self._round  # what is left of it

        def _weights(self) -> Iterator[tuple[str, Tensor]]:
            for name, weight in model.state_dict(keep_vars=True).items():
                whole = gathered(weight).to(device, dtype)
                if sums is not None:
                    sums[name] = word_sum(whole)
                yield name, whole

    source = Source()
    source.begin()
    return source


@contextmanager
def same_stream(device: Device) -> Iterator[None]:
    """Take back the stream that vLLM's communicator gives the calling thread: a rank computes in two threads, whose
    work must stay in order."""
    before = torch.cuda.current_stream() if device == "cuda" else None
    try:
        yield
    finally:
        if before is not None:
            torch.cuda.set_stream(before)


class Sender:
    """This rank's side of transfers to the engines; to vLLM, the client that talks to them.

    A failure of an engine is kept in `failure` and not raised, and nothing more is asked of the engines: the ranks
    must take part in all collectives of a transfer together, or the next collective would hang.

    Source: `VLLMWeightSyncClient` and `TrainerWeightTransferEngine` in vLLM's distributed/weight_transfer/base.py.
    """

    def __init__(
        self,
        model: nn.Module,
        dtype: torch.dtype,
        device: Device,
        *,
        rank: int,
        engines: Sequence[Any],
        settings: EngineSettings,
        address: tuple[str, int],
    ) -> None:
        """Form the group with all engine actors at a free address of rank 0; `failure` says whether it went well.

        They must join it, and then take the weights, within the engines' deadline.
        """
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        self.failure: str | None = None
        self._engines, self._settings = engines, settings
        self._due = time.monotonic() + settings.engine_deadline
        self._sums: dict[str, Tensor] = {}
        self._source = policy_source(model, dtype, device, sums=None if rank else self._sums)
        self._sender: Any = None
        self._arrived: list[list[dict[str, int]]] = []  # at every engine, on every GPU
        info = self._way(rank, address)
        try:
            self._sender = WeightTransferTrainerFactory.trainer_init(info, client=self, source=self._source)
        except Exception as error:
            self._fail("this rank", error)

    def send(self) -> str | None:
        """Send the policy to all engines, on all ranks of the group; returns what has failed, if anything."""
        self.failure = None
        self._due = time.monotonic() + self._settings.engine_deadline
        self._sums.clear()
        self._source.begin()
        try:
            self._sender.send_weights()
        except Exception as error:
            self._fail("this rank", error)
        for _ in self._source:  # to the end of the round, wherever this rank has stopped
            pass
        return self.failure

    def close(self) -> None:
        """Leave the group."""
        if self._sender is not None:
            self._sender.shutdown()

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Have the engines join the group; over NCCL every GPU of every engine has a rank of its own."""
        everyone = [dict(init_info) for _ in self._engines]
        if "rank_offset" in init_info:  # vLLM's own is for one engine alone
            for index, info in enumerate(everyone):
                info["rank_offset"] += index * self._settings.tensor_parallel
        self._ask("shutdown_weight_transfer_engine")  # leave a group that exists no more
        self._ask("init_weight_transfer_engine", everyone)

    def start_weight_update(self) -> None:
        """Have the engines prepare."""
        self._arrived = [[{} for _ in range(self._settings.tensor_parallel)] for _ in self._engines]
        self._ask("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        """Have the engines receive what is sent meanwhile, which over IPC is a piece of it."""
        answers = self._ask("receive_weights", [update_info] * len(self._engines))
        for gpus, received in zip(self._arrived, answers, strict=False):
            for sums, more in zip(gpus, received, strict=True):
                sums |= more

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Have the engines end the transfer, if they received what was sent."""
        sent = {name: int(total) for name, total in self._sums.items()}
        for index, gpus in enumerate(self._arrived):
            if damaged := differing(sent, gpus):
                which = f"{len(damaged)} of {len(sent)} weights, the first of them {damaged[0]}"
                self._fail("receive_weights", f"{which}, are not at engine {index} as they were sent")
        self._ask("finish_weight_update")

    def _way(self, rank: int, address: tuple[str, int]) -> Any:
        """How the trainer's side of vLLM's API sends."""
        from vllm.distributed.weight_transfer import ipc_engine, nccl_engine

        if self._settings.transfer == "ipc":
            largest = max(meta.dtype.itemsize * prod(meta.shape) for meta in self._source.metadata())
            return ipc_engine.IPCTrainerInitInfo(
                rank=rank, packed=True, packed_buffer_size_bytes=max(BUFFER, largest)
            )
        return nccl_engine.NCCLTrainerInitInfo(
            rank=rank,
            master_address=address[0],
            master_port=address[1],
            world_size=1 + len(self._engines) * self._settings.tensor_parallel,
            # One stream for all pieces: a layer that came in two of them is copied where the second arrives, and with
            # streams that take turns the memory of the first could be used again before it has been read.
            packed_num_buffers=1,
            packed_buffer_size_bytes=BUFFER,  # two of them exist at a time
        )

    def _ask(self, step: str, *arguments: Sequence[Any]) -> list[Any]:
        """What all engines answer to a step, each argument having one for each; nothing once something has failed."""
        from prorl.cluster.cluster import results

        if self.failure is not None:
            return []
        each = zip(self._engines, *arguments, strict=True)
        try:
            asked = [actor.call.remote("transfer", step, *mine) for actor, *mine in each]
            return results(asked, within=max(0.0, self._due - time.monotonic()))
        except Exception as error:
            self._fail(step, error)
            return []

    def _fail(self, step: str, why: Exception | str) -> None:
        """Keep the first failure, and abort a broadcast that not all will take part in: it would wait for ever."""
        from prorl.cluster.cluster import reason

        if self.failure is None:
            self.failure = f"{step}: {why if isinstance(why, str) else reason(why)}"
        group = getattr(self._sender, "model_update_group", None)  # NCCL's
        if group is not None:
            group.destroy()
