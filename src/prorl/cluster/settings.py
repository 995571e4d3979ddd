"""Plain settings that driver and actors share; imports neither Ray nor vLLM nor torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from prorl.config.schema import RunConfig
from prorl.envs.errors import ProrlError

Device = Literal["cpu", "cuda"]
Transfer = Literal["host", "nccl"]  # how weights get to engines: through host memory, or from GPU to GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Processes of a run and the place that each needs; `config/` has the defaults."""

    address: str | None  # of a running Ray cluster; None: one of its own on this machine
    learners: int
    engines: int
    judges: int  # judge actors
    judge_workers: int  # processes of each of those, on a CPU each
    tensor_parallel: int  # GPUs of one engine
    colocate: bool  # engine i on the GPU of rank i
    device: Device  # of every learner rank and every engine
    threads: int  # CPU threads of each of them, and of each GPU's process of an engine
    room_deadline: float  # seconds in which there must be room for everything

    @property
    def places(self) -> tuple[int, ...]:
        """GPUs of every place, none over two nodes; on CPUs, as many times `threads`. The ranks' come first."""
        ranks = (1,) * self.learners
        return ranks if self.colocate else ranks + (self.tensor_parallel,) * self.engines


def cluster_settings(config: RunConfig, device: str) -> ClusterSettings:
    """Where a recipe with `backend: ray` wants its processes; `device` is the type of the one that it settled on."""
    places = {"address", "learners", "engines", "judges", "room_deadline", "tensor_parallel", "colocate"}
    return ClusterSettings(
        **config.cluster.model_dump(include=places),
        device="cuda" if device == "cuda" else "cpu",
        threads=config.threads,
        judge_workers=config.judge.workers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What a run fixes about its engines."""

    config: str  # the model's, as transformers writes it: its files may be gone when an engine is replaced
    eos_ids: tuple[int, ...]
    context: int  # tokens, prompt and response together
    dtype: Literal["float32", "bfloat16"]
    max_rows: int  # responses that decode at a time
    cache_bytes: int | None  # for keys and values, on each GPU; None: what vLLM finds free
    transfer: Transfer
    tensor_parallel: int  # processes that share every weight, on a GPU each
    colocated: bool  # a learner rank is on the same GPU


class MissingError(ProrlError):
    """A package that the backend needs is not installed."""


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
    """How weights get to the engines. Raises TransferError where `asked` cannot be done.

    Colocated engines take them from host memory: they need weights whenever they wake, when the learner's lie there.
    """
    own_gpus = device == "cuda" and not colocate
    if asked == "auto":
        return "nccl" if own_gpus else "host"
    if asked == "nccl" and not own_gpus:
        raise TransferError(
            "cluster.transfer=nccl needs GPUs that engines and learners do not share: set cluster.transfer=auto, "
            "which takes what there is"
        )
    return asked


def learner_environment(threads: int) -> dict[str, str]:
    """Environment of a process that learns."""
    return {"OMP_NUM_THREADS": str(threads)}


def engine_environment(threads: int, device: Device) -> dict[str, str]:
    """Environment of a process that runs vLLM, which reads it when it is imported."""
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
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # by default it binds one thread and ignores OMP_NUM_THREADS
        # Without it the first log-probs wait half a minute for the compilation of one comparison.
        "TORCHDYNAMO_DISABLE": "1",
    }


class GpuSharing:
    """GPUs of a colocated run, used by the learner or by the engines, never by both at a time.

    `leave` of either frees the GPUs' memory until it acquires them again; meanwhile it computes nothing.
    """

    def __init__(self) -> None:
        self._user: Any = None

    def acquire(self, user: Any) -> None:
        """Let a user have the GPUs, after the other has left, which raises RuntimeError with work in flight."""
        if self._user is not None and user is not self._user:
            self._user.leave()
        self._user = user
