"""What tests of the cluster share: Ray, learners, and what engines are asked."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from prorl.cluster.settings import EngineSettings
from prorl.cluster.weights import Weights, crc
from prorl.config.schema import RunConfig
from prorl.learn.learner import TorchLearner
from prorl.learn.model import load_model
from prorl.types import Completion, Request, Sampling
from support.learners import learner
from support.recipes import recipe
from support.tiny import CONTEXT, ENDS

PROBE = tuple(range(0, 264, 33))
SECOND_RUNNER = os.environ.get("TRITON_INTERPRET") == "1"  # `support/second_runner`
RUNNER = f"vllm.v1.worker.{'cpu.model_runner' if SECOND_RUNNER else 'cpu_model_runner'}"


def runner_of(worker: Any) -> str:
    """Which of vLLM's model runners a worker has."""
    return type(worker.model_runner).__module__


@contextmanager
def local_ray(cpus: int) -> Iterator[None]:
    """Ray on this machine, with so many CPUs to give."""
    import ray

    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def ray_nodes(head: dict[str, Any], *others: dict[str, Any]) -> Iterator[Any]:
    """A cluster whose nodes, all on this machine, have so many CPUs and say that they have so many GPUs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=head | {"include_dashboard": False})
    try:
        for node in others:
            cluster.add_node(**node)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()


def write_nvidia_smi(folder: Path, *rows: str) -> Path:
    """A program that says so of the GPUs of a machine."""
    program = folder / "nvidia-smi"
    asked = '[ "$1" = --query-gpu=memory.total,driver_version ] || exit 1'
    program.write_text("\n".join(["#!/bin/sh", asked, *(f"echo '{row}'" for row in rows), ""]))
    program.chmod(0o755)
    return program


def cluster_recipe(
    *, device: str = "cpu", threads: int = 1, judge_workers: int = 1, **cluster: Any
) -> RunConfig:
    """A settled recipe with the defaults of `cluster`, one CPU a process."""
    workers = {"workers": judge_workers}
    return recipe(backend="ray", device=device, threads=threads, judge=workers, cluster=cluster)


def engine_settings(**changes: Any) -> EngineSettings:
    """A small engine in float32 that takes its weights from host memory."""
    small: dict[str, Any] = {
        "config": "",
        "eos_ids": tuple(ENDS),
        "context": CONTEXT,
        "dtype": "float32",
        "max_rows": 64,
        "cache_gib": 0.0625,
        "transfer": "host",
    }
    return EngineSettings(**(small | changes))


def config_of(model: Path) -> str:
    """What engines are told of it."""
    return (model / "config.json").read_text()


def without_head(weights: Weights) -> Weights:
    """As if a learner had left out the output head, which is tied, and sealed the rest."""
    arrays = {name: array for name, array in weights.arrays.items() if name != "lm_head.weight"}
    return dataclasses.replace(weights, arrays=arrays, checksum=crc(arrays))


def noisy_learner(model: Path, seed: int, **settings: Any) -> TorchLearner:
    """A learner whose weights are not those of the checkpoint."""
    one = learner(load_model(model, dtype=torch.float32, device="cpu"), with_reference=False, **settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in one.policy.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return one


def change(one: TorchLearner, factor: float = 1.05) -> None:
    """Other weights, as after an update."""
    with torch.no_grad():
        for weight in one.policy.parameters():
            weight *= factor


def ask(
    draw: int = 0,
    prompt: tuple[int, ...] = (5, 6, 7),
    samples: int = 4,
    seed: int = 11,
    temperature: float = 1.0,
    limit: int = 12,
    top_p: float = 1.0,
) -> Request:
    """A request."""
    sampling = Sampling(temperature=temperature, top_p=top_p, limit=limit)
    return Request(draw=draw, prompt=prompt, samples=samples, seed=seed, sampling=sampling)


def answers(
    engine: Any, requests: Iterable[Request], *, after_the_first: Callable[[], Any] = lambda: None
) -> dict[tuple[int, int], Completion]:
    """All responses by draw and sample."""
    for request in requests:
        engine.submit(request)
    done = engine.poll()
    after_the_first()
    found = []
    while done:
        found += done
        done = engine.poll()
    by_name = {(completion.draw, completion.sample): completion for completion in found}
    assert len(by_name) == len(found)
    return by_name


def assert_log_probs(one: TorchLearner, request: Request, completions: Iterable[Completion]) -> None:
    """Those of the distribution that was sampled from, as the learner's policy gives it."""
    for completion in completions:
        with torch.no_grad():
            logits = one.policy(torch.tensor([[*request.prompt, *completion.tokens]])).logits
        table = (logits[0, len(request.prompt) - 1 : -1] / request.sampling.temperature).log_softmax(-1)
        expected = table.gather(1, torch.tensor(completion.tokens)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(completion.logps), expected, rtol=1e-5, atol=1e-4)


def actors(kind: str, pid: int | None = None) -> list[Any]:
    """The processes of a class of actors, oldest first, below a process that started Ray; by default this one."""
    import psutil

    below = psutil.Process(pid).children(recursive=True)
    return sorted(
        (process for process in below if _name(process).startswith(f"ray::{kind}")),
        key=lambda process: process.create_time(),
    )


def _name(process: Any) -> str:
    import psutil

    try:
        return (process.cmdline() or [""])[0]
    except psutil.NoSuchProcess:
        return ""
