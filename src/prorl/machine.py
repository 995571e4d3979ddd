"""What a recipe may use of a machine: cores, worker processes, threads, and where tensors lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prorl.config.recipe import RecipeError
from prorl.config.schema import RunConfig

if TYPE_CHECKING:
    import torch
    from torch import nn

    from prorl.learn.parallel import Runner

FEW_PROCESSES = 32  # that any machine runs
MOST_WORKERS = 16  # that a recipe gets without asking for more
PER_PROCESSOR = 8  # that wait for each processor of a larger one
GPU_THREADS = 8  # of a process that computes on a GPU of a cluster, at most


def threads_of(config: RunConfig, *, on_gpu: bool) -> int:
    """Of each process, where the recipe does not say; the CPUs that those of GPUs leave may judge."""
    if config.backend != "ray" or not on_gpu:
        return cores() // (1 if on_gpu or config.backend == "ray" else worker_count(config))
    from prorl.cluster.settings import places

    if config.cluster.address is None:
        return min(GPU_THREADS, cores() // sum(places(config)))
    from prorl.cluster.cluster import cpus_per_gpu

    there = cpus_per_gpu(config.cluster.address)
    return GPU_THREADS if there is None else min(GPU_THREADS, there)


def cores() -> int:
    """Cores that this process may use: neither the second thread of a core nor what other containers were given."""
    allowed = os.sched_getaffinity(0)
    siblings = {
        path.read_text()
        for cpu in allowed
        if (path := Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).exists()
    }
    share = len(allowed)
    with suppress(OSError, ValueError):  # no quota, which then reads "max"
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        share = max(1, round(int(quota) / int(period)))
    return min(share, len(siblings) or len(allowed))


def worker_count(config: RunConfig) -> int:
    """Processes that compute on a CPU: what the recipe asks for, or one for every core that they leave idle."""
    return config.workers or max(1, min(MOST_WORKERS, cores() // max(1, config.threads)))


@contextmanager
def computing(config: RunConfig, *modules: nn.Module) -> Iterator[Runner]:
    """Computes passes of the modules on as many processes as the recipe asks for, while inside."""
    from prorl.learn.parallel import Here
    from prorl.local.workers import Workers

    if (count := worker_count(config)) == 1:
        yield Here(modules)
        return
    with closing(Workers(modules, count=count, threads=config.threads)) as workers:
        yield workers


def begin_imports(config: RunConfig) -> None:
    """Have the process that workers are forked from import torch while this one goes on: it takes seconds."""
    from prorl.local.children import fork_server

    if config.backend == "local" and config.device == "cpu" and worker_count(config) > 1:
        fork_server()


def require_processors(config: RunConfig) -> None:
    """Raises RecipeError for more processes and threads than this machine could ever run, not a cluster's."""
    here = {"threads": config.threads, "workers": config.workers} if config.backend != "ray" else {}
    if config.backend != "ray" or not config.cluster.judges:
        here["judge.workers"] = config.judge.workers
    processors = os.cpu_count() or 1
    most = max(FEW_PROCESSES, PER_PROCESSOR * processors)
    for key, asked in here.items():
        if asked > most:
            raise RecipeError(
                f"{key} ({asked:,}) is above what this machine with {processors} processors can run: "
                f"set at most {most}"
            )


def device_of(config: RunConfig) -> torch.device:
    """Where tensors lie; raises ClusterError and RecipeError as `settled`."""
    import torch

    if config.device == "auto":
        address = config.cluster.address
        if config.backend != "ray" or address is None:
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        from prorl.cluster.cluster import cpus_per_gpu

        return torch.device("cpu" if cpus_per_gpu(address) is None else "cuda")
    try:
        device = torch.device(config.device)
        if device.type == "meta":  # which computes nothing
            raise RuntimeError
        if config.backend != "ray":  # whose driver computes nothing, and may be a machine without GPUs
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError):  # the latter from a torch that was built without the device
        raise RecipeError(
            f"device {config.device!r} cannot be used on this machine: set device=cpu or device=auto"
        ) from None
    return device
