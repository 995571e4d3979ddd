"""What the processes of a cluster are told before they import anything heavy: plain settings and environment."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from prorl.envs.errors import ProrlError
from prorl.local.engine import RequestError
from prorl.types import Request

Device = Literal["cpu", "cuda"]
Transfer = Literal["host", "nccl"]  # how weights get to engines: through host memory, or from GPU to GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Where a run is computed."""

    address: str | None  # of a running Ray cluster; None: one of its own on this machine
    learners: int
    engines: int
    device: Device  # of every learner rank and every engine
    threads: int  # CPU threads of each of them, and of each GPU's process of an engine
    room_deadline: float  # seconds in which there must be room for everything
    tensor_parallel: int = 1  # GPUs of one engine
    colocate: bool = False  # engine i on the GPU of rank i
    judges: int = 0  # judge actors
    judge_workers: int = 1  # processes of each of those, on a CPU each

    @property
    def places(self) -> tuple[int, ...]:
        """GPUs of every place, none over two nodes; on CPUs, as many times `threads`. The ranks' come first."""
        ranks = (1,) * self.learners
        return ranks if self.colocate else ranks + (self.tensor_parallel,) * self.engines

    def place_of_engine(self, index: int) -> int:
        """Which of the places engine `index` has, alone or in turn with a rank."""
        return index if self.colocate else self.learners + index


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What a run fixes about its engines."""

    config: str  # the model's, as transformers writes it: a replacement starts when the files may be gone
    eos_ids: tuple[int, ...]
    context: int  # tokens, prompt and response together
    dtype: Literal["float32", "bfloat16"] = "float32"
    max_rows: int = 512  # responses that decode at a time
    cache_bytes: int | None = None  # for keys and values, on each GPU; None: what vLLM finds free
    transfer: Transfer = "host"
    tensor_parallel: int = 1  # processes that share every weight, on a GPU each
    colocated: bool = False  # a learner rank is on the same GPU


class MissingError(ProrlError):
    """This Python has not what the backend needs."""


def require_packages() -> None:
    """Raises MissingError where Ray or vLLM is not installed."""
    missing = [name for name in ("ray", "vllm") if find_spec(name) is None]
    if missing:
        raise MissingError(
            f"backend=ray needs {' and '.join(missing)}, which this Python has not: `make cluster-env` makes an "
            "environment that has, for CPUs (for GPUs see docs/cluster.md); or compute it here with --backend local"
        )


class TransferError(ProrlError):
    """The weights cannot get to the engines in the way that the recipe asks for."""


def chosen_transfer(asked: Literal["auto"] | Transfer, device: Device, *, colocate: bool) -> Transfer:
    """How weights get to the engines; `colocate`: they share the learner's GPUs.

    Those that share take them from host memory: they are given weights whenever they wake, when the learner's tensors
    lie there.

    Raises:
        TransferError: not in the way that was asked for.
    """
    apart = device == "cuda" and not colocate
    if asked == "auto":
        return "nccl" if apart else "host"
    if asked == "nccl" and not apart:
        raise TransferError(
            "cluster.transfer=nccl needs GPUs that engines and learners do not share: set cluster.transfer=auto, "
            "which takes what there is"
        )
    return asked


def check_request(request: Request, settings: EngineSettings) -> None:
    """Check that an engine can serve a request.

    Raises:
        RequestError: it does not fit into the context.
    """
    sampling = request.sampling
    if len(request.prompt) + sampling.limit > settings.context:
        raise RequestError(
            f"a prompt of {len(request.prompt)} tokens and a response of up to {sampling.limit} exceed the "
            f"model's {settings.context} positions: lower sampling.response_limit or shorten the prompt"
        )


def learner_environment(threads: int) -> dict[str, str]:
    """For a process that learns."""
    return {"OMP_NUM_THREADS": str(threads)}


def engine_environment(threads: int, device: Device) -> dict[str, str]:
    """For a process that runs vLLM."""
    common = {
        **learner_environment(threads),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the actor is the process
    }
    if device == "cuda":
        return {**common, "TRITON_F32_DEFAULT": "ieee"}  # else attention in float32 is rounded to 10 bits
    return {
        **common,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # left alone it binds one thread and ignores OMP_NUM_THREADS
        # Without it the first log-probs wait half a minute for the compilation of one comparison.
        "TORCHDYNAMO_DISABLE": "1",
    }
