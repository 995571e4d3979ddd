"""vLLM's transports over TCP and shared memory: all that runs without GPUs, which is all but NCCL and CUDA's own."""

import os
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import torch

from prorl.cluster import weights
from prorl.cluster.engine import EngineActor
from prorl.cluster.learner import LearnerRank
from support.cluster import runner_of

weights.BUFFER = (
    2**14
)  # bytes, so that there are many pieces, as of a large model; the largest weight is larger


class Stream:
    """CUDA's, where everything is done in order anyway."""

    def synchronize(self):
        pass


class Communicator:
    """In place of `PyNcclCommunicator`: ranks meet at the same address, and must be as many as they say.

    Once destroyed it raises, as NCCL does before vLLM has noted that it is no more.
    """

    flips = 0  # bits that are lost on the way to this process, one in each piece that comes next

    def __init__(self, group):
        self._group = group
        self.disabled = False

    def broadcast(self, tensor, src, stream=None):
        if self.disabled:
            raise RuntimeError("this communicator was aborted")
        tensor.copy_(self._group.broadcast(tensor, src))
        if Communicator.flips:
            Communicator.flips -= 1
            tensor.view(-1).view(torch.uint8)[0] ^= 1

    def destroy(self):
        self.disabled = True


def over_tcp():
    """Let vLLM in this process broadcast over TCP."""
    from vllm.distributed.utils import StatelessProcessGroup
    from vllm.distributed.weight_transfer import nccl_common, packed_tensor

    def meet(host, port, rank, size, device):
        group = StatelessProcessGroup.create(host, port, rank, size)
        group.all_gather_obj(rank)  # two of one rank would wait here
        return Communicator(group)

    nccl_common.stateless_init_process_group = meet
    packed_tensor._get_streams = lambda device, count: (Stream(),) * count
    torch.cuda.stream = lambda stream: nullcontext()
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.synchronize = lambda: None


class Shared:
    """torch to what vLLM packs with: memory of a GPU is a file that other processes may map."""

    def __init__(self, folder):
        self._folder = folder

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, size, *, dtype, device):
        if device != "cuda":
            return torch.empty(size, dtype=dtype, device=device)
        return torch.from_file(str(self._folder / f"{os.getpid()}"), shared=True, size=size, dtype=dtype)


def over_shared_memory(folder, gpu):
    """Let vLLM in this process, which is the user of that GPU, share memory with the other one by a file."""
    from torch.multiprocessing import reductions
    from vllm.distributed.weight_transfer import packed_tensor

    def rebuild(path, size, *rest):
        shared = torch.from_file(path, shared=True, size=size, dtype=torch.uint8)
        if Communicator.flips:
            Communicator.flips -= 1
            shared[0] ^= 1
        return shared

    packed_tensor.torch = Shared(folder)
    packed_tensor.reduce_tensor = lambda buffer: (
        None,
        (str(folder / f"{os.getpid()}"), len(buffer), *"cuda's"[:5]),
    )
    reductions.rebuild_cuda_tensor = rebuild
    torch.cuda.get_device_properties = lambda index: SimpleNamespace(uuid=f"GPU-{gpu}")
    torch.cuda.current_stream = lambda: Stream()
    torch.cuda.synchronize = torch.cuda.ipc_collect = lambda: None


class WiredRank(LearnerRank):
    """A learner rank that sends without GPUs."""

    def __init__(self, index, size, folder):
        super().__init__(index, size)
        over_tcp()
        over_shared_memory(Path(folder), index)

    def change(self, factor):
        """What learning does, in short."""
        with torch.no_grad():
            for weight in self._learner.policy.parameters():
                weight *= factor


class WiredEngine(EngineActor):
    """An engine that receives without GPUs and writes down the steps of transfers.

    Ordered so before one, it dies, skips it, or has a bit flipped in what comes next; it may also be wrong once about
    the probe.
    """

    def __init__(self, settings, folder, index):
        over_tcp()
        over_shared_memory(Path(folder), index)
        self._folder, self._index = Path(folder), index
        super().__init__(settings)
        (runner,) = super().call("transfer", runner_of)
        (self._folder / f"runner_{index}").write_text(runner)

    def call(self, method, *arguments):
        told = method
        if method == "transfer":
            told, *rest = arguments
            offset = rest[0].get("rank_offset", "") if told.startswith("init") else ""
            with (self._folder / f"steps_{self._index}").open("a") as steps:
                steps.write(f"{told}{offset}\n")
        order = self._folder / f"{told}_{self._index}"
        kind = order.read_text() if order.exists() else ""
        order.unlink(missing_ok=True)
        if kind == "skip":
            return [{}]
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "flip":
            Communicator.flips = 1
        answer = super().call(method, *arguments)
        return [logp - 1 for logp in answer] if kind == "lie" else answer
