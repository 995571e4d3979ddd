"""Plain settings that driver and actors share, and addresses; Ray, vLLM and torch are not needed to import it."""

import os
import socket
from importlib.util import find_spec
from typing import Any, Literal

from packaging.version import Version

from prorl.config.fields import Length
from prorl.config.schema import ClusterConfig, RunConfig
from prorl.envs.errors import ProrlError

Device = Literal["cpu", "cuda"]
DIRECT_SINCE = "0.32"  # the first version of vLLM, of those tested, with a trainer's side of weight transfers
# How weights get to engines: through host memory, from GPU to GPU, or within the GPU that both use.
Transfer = Literal["host", "nccl", "ipc"]


class ClusterError(ProrlError):
    """The cluster of a recipe cannot be used: it lacks packages, room or a way for weights, or does not answer."""


def device_kind(config: RunConfig) -> Device:
    """Of every learner rank and every engine of a settled recipe."""
    return "cuda" if config.device.startswith("cuda") else "cpu"


def places(config: RunConfig) -> tuple[int, ...]:
    """GPUs of every place, none over two nodes; on CPUs, as many times `threads`. The ranks' come first."""
    asked = config.cluster
    ranks = (1,) * asked.learners
    return ranks if asked.colocate else ranks + (asked.tensor_parallel,) * asked.engines


class EngineSettings(ClusterConfig):
    """What a run fixes about its engines: what the recipe says of its cluster, with what it leaves open."""

    config: str  # the model's, as transformers writes it: its files may be gone when an engine is replaced
    eos_ids: tuple[int, ...]
    context: Length
    dtype: Literal["float32", "bfloat16"]
    transfer: Transfer


def require_packages() -> None:
    """Raises ClusterError where Ray or vLLM is not installed."""
    missing = [name for name in ("ray", "vllm") if find_spec(name) is None]
    if missing:
        raise ClusterError(
            f"backend=ray needs {' and '.join(missing)}, which this Python has not: `make cluster-env` makes an "
            "environment that has, for CPUs (for GPUs see docs/cluster.md); or compute it here with --backend local"
        )


def chosen_transfer(
    asked: Literal["auto"] | Transfer, device: Device, *, colocate: bool, vllm: str
) -> Transfer:
    """How weights get to the engines of this version of vLLM. Raises ClusterError where `asked` cannot be done.

    Colocated engines take them from host memory by default: they need weights whenever they wake, when the learner's
    lie there, and no GPU has been seen to take them within itself.
    """
    direct = Version(vllm) >= Version(DIRECT_SINCE)
    there = ("ipc" if colocate else "nccl") if device == "cuda" else "host"
    if asked == "auto":
        return "nccl" if there == "nccl" and direct else "host"
    if asked != "host" and not direct:
        raise ClusterError(
            f"cluster.transfer={asked} needs vLLM {DIRECT_SINCE} or newer, and this is {vllm}: set "
            "cluster.transfer=auto"
        )
    if asked not in ("host", there):
        raise ClusterError(
            f"cluster.transfer={asked} needs GPUs that engines and learners {'' if asked == 'ipc' else 'do not '}"
            "share: set cluster.transfer=auto, which takes what there is"
        )
    return asked


def engine_environment(threads: int, device: Device) -> dict[str, str]:
    """Environment of a process that runs vLLM, which reads it when it is imported."""
    common = {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the actor is the process
    }
    if device == "cuda":
        # Else attention in float32 is rounded to 10 bits, and a sampler is built at every start that gives no
        # log-probs, so that no rollout uses it.
        return {**common, "TRITON_F32_DEFAULT": "ieee", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    return {
        **common,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # by default it binds one thread and ignores OMP_NUM_THREADS
        # Without it the first log-probs wait half a minute for the compilation of one comparison.
        "TORCHDYNAMO_DISABLE": "1",
    }


def free_address() -> tuple[str, int]:
    """The address at which Ray's other nodes reach this process's machine, and a port that is free."""
    import ray

    with socket.socket() as free:
        free.bind(("", 0))
        return str(ray.util.get_node_ip_address()), int(free.getsockname()[1])


def use_interface_of(address: str) -> None:
    """Have gloo and NCCL in this process talk over the network interface that has this address.

    By default gloo takes what the host's name resolves to, which other machines often cannot reach. What the
    environment says already stays.
    """
    import psutil  # comes with Ray and vLLM

    for name, addresses in psutil.net_if_addrs().items():
        if address in {each.address for each in addresses}:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            # Without the sign NCCL takes it for the beginning of names.
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")


class GpuSharing:
    """GPUs of a colocated run, used by the learner or by the engines, never by both at a time.

    `leave` of either frees the GPUs' memory until it acquires them again; meanwhile it computes nothing. Only while
    weights go from one to the other within a GPU are they on it together.
    """

    def __init__(self) -> None:
        self._user: Any = None

    def acquire(self, user: Any) -> None:
        """Let a user have the GPUs, after the other has left, which raises RuntimeError with work in flight."""
        if self._user is not None and user is not self._user:
            self._user.leave()
        self._user = user
