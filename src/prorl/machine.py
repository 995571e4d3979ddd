"""What computes a run: threads and device of this machine or its cluster, and all else that its bits depend on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch
import transformers

from prorl.cluster.settings import ClusterSettings, require_packages
from prorl.config.recipe import RecipeError
from prorl.config.schema import RunConfig
from prorl.envs.mixture import Mixture
from prorl.run.layout import TOKENIZER
from prorl.run.process import machine_memory
from prorl.run.resume import PROBLEMS, hash_files

FEW_PROBLEMS = 100  # for a check at every start
FEW_PROCESSES, PER_PROCESSOR = (
    32,
    8,
)  # that any machine runs, and that wait for each processor of a larger one


def settled(config: RunConfig) -> RunConfig:
    """The recipe with thread count and device said, as the bits of a result depend on them.

    Raises:
        MissingError: the backend is not installed.
        ClusterError: no cluster answers that could be asked for its GPUs.
        RecipeError: the device cannot be used on this machine.
    """
    if config.backend == "ray":
        require_packages()
    threads = config.threads or os.cpu_count() or 1
    return config.model_copy(update={"threads": threads, "device": str(device_of(config))})


def require_processors(config: RunConfig) -> None:
    """Check the processes and threads of this machine against its processors; those of a cluster are its own matter.

    Raises:
        RecipeError: there are more than it could ever run.
    """
    here = {"threads": config.threads if config.backend == "local" else 0}
    if config.backend == "local" or not config.cluster.judges:
        here["judge.workers"] = config.judge.workers
    processors = os.cpu_count() or 1
    most = max(FEW_PROCESSES, PER_PROCESSOR * processors)
    for key, asked in here.items():
        if asked > most:
            raise RecipeError(
                f"{key} ({asked:,}) is above what this machine with {processors} processors can run: "
                f"set at most {most}"
            )


def set_threads(config: RunConfig) -> None:
    """Fix the number of CPU threads, on which the bits of a result depend."""
    torch.set_num_threads(config.threads)


def cluster_settings(config: RunConfig) -> ClusterSettings:
    """Where a recipe with `backend: ray` wants its processes."""
    places = {"address", "learners", "engines", "judges", "room_deadline", "tensor_parallel", "colocate"}
    return ClusterSettings(
        **config.cluster.model_dump(include=places),
        device="cuda" if device_of(config).type == "cuda" else "cpu",
        threads=config.threads,
        judge_workers=config.judge.workers,
    )


def surroundings(config: RunConfig, tasks: Mixture, tokenizer: Path) -> dict[str, str]:
    """What else the bits of a result depend on; `tokenizer` is the folder it is loaded from on resume."""
    device = device_of(config)
    if device.type == "cuda":
        processor = torch.cuda.get_device_name(device) if torch.cuda.is_available() else "GPUs elsewhere"
    else:
        processor = torch.backends.cpu.get_cpu_capability()
    cluster = config.cluster
    return {
        "backend": f"ray with {cluster.learners} learners and {cluster.engines} engines"
        + (f" of {cluster.tensor_parallel} GPUs" if cluster.tensor_parallel > 1 else "")
        if config.backend == "ray"
        else config.backend,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "processor": processor,
        TOKENIZER: hash_files(tokenizer),
        PROBLEMS: tasks.fingerprint(FEW_PROBLEMS),
    }


def device_of(config: RunConfig) -> torch.device:
    """Where tensors lie.

    Raises:
        ClusterError, RecipeError: as `settled`.
    """
    if config.device == "auto":
        return torch.device("cuda" if _gpus_at_hand(config) else "cpu")
    try:
        device = torch.device(config.device)
        if config.backend != "ray":  # whose driver computes nothing, and may be a machine without GPUs
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError):  # the latter from a torch that was built without the device
        raise RecipeError(
            f"device {config.device!r} cannot be used on this machine: set device=cpu or device=auto"
        ) from None
    return device


def device_memory(device: torch.device) -> int:
    """Bytes that a device of this machine has in all."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return machine_memory()[0]


def _gpus_at_hand(config: RunConfig) -> bool:
    """On this machine, or on the cluster that computes in its place."""
    address = config.cluster.address
    if config.backend != "ray" or address is None:
        return torch.cuda.is_available()
    from prorl.cluster.cluster import has_gpus

    return has_gpus(address)
