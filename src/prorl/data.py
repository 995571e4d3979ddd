"""What a recipe says of its data: sets and tasks, where sets lie prepared, what keeps programs in. Without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from prorl.config.recipe import RecipeError
from prorl.config.schema import RunConfig, WarmupConfig
from prorl.envs.datasets.catalogue import SOURCES, SourceRequest, resolve
from prorl.envs.datasets.store import DatasetTask
from prorl.envs.mixture import Mixture
from prorl.envs.registry import VerifierSpec, make_task
from prorl.envs.sandbox.sandbox import Policy, Sandbox
from prorl.envs.seeds import derive
from prorl.envs.types import Task
from prorl.envs.verifiers.programs import NeedsSandbox


def cache_folder() -> Path:
    """Where bases and data sets are kept between runs: `$XDG_CACHE_HOME/prorl` or `~/.cache/prorl`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prorl"


def data_requests(config: RunConfig) -> tuple[SourceRequest, ...]:
    """The data sets among a recipe's tasks: those of the catalogue, and the recipe's own."""
    keys = {"kind", "path", "columns", "limit", "revision"}
    return tuple(
        SourceRequest(name=name, **task.model_dump(include=keys))
        for name, task in config.tasks.items()
        if task.kind is not None or name in SOURCES
    )


def data_folder(config: RunConfig) -> Path:
    """Where the recipe's prepared data sets lie: as it says, or in the cache under what it asks for."""
    if config.data is not None:
        return Path(config.data)
    requests = sorted(map(repr, data_requests(config)))
    return cache_folder() / "data" / blake2b("\n".join(requests).encode(), digest_size=8).hexdigest()


def verifier_spec(config: RunConfig) -> VerifierSpec:
    """How the responses to a recipe's problems are judged."""
    datasets = tuple(request.name for request in data_requests(config))
    return VerifierSpec(
        tasks=tuple(name for name in config.tasks if name not in datasets),
        datasets=datasets,
        data=data_folder(config).absolute(),
        policy=Policy(tier=config.sandbox.tier, unsafe=config.sandbox.unsafe),
        strict=config.format == "strict",
    )


def check_sandbox(config: RunConfig) -> str:
    """Check that the recipe's programs can be run here; what the tier leaves open, in words, "" for nothing.

    Raises:
        SandboxError: there is no sandbox that the recipe allows; the sentence says how to get one.
    """
    spec = verifier_spec(config)
    if not any(resolve(request).domain == "code" for request in data_requests(config)) and not any(
        isinstance(make_task(name), NeedsSandbox) for name in spec.tasks
    ):
        return ""
    with Sandbox.open(spec.policy) as sandbox:
        return sandbox.warning


def warmup_mixture(config: RunConfig, warmup: WarmupConfig) -> Mixture:
    """What the recipe's tiny base is warmed up on, without instructions."""
    levels = {name: task.levels for name, task in config.tasks.items()} | warmup.levels
    return mixture(config, levels, derive(config.seed, "warm-up"))


def mixture(
    config: RunConfig, levels: Mapping[str, Mapping[int, float]], seed: int, instruction: str = ""
) -> Mixture:
    """The recipe's tasks; rows of data sets already say how to answer, problems of the others are told to.

    Raises:
        RecipeError: an unknown task, or a level that it does not have.
    """
    datasets, folder = {request.name for request in data_requests(config)}, data_folder(config)
    tasks: list[tuple[Task, float]] = []
    for name, task in config.tasks.items():
        if name in datasets:
            tasks.append((DatasetTask(name, folder), task.weight))
            continue
        try:
            made = make_task(name, levels[name] or None)
        except ValueError as error:
            raise RecipeError(str(error)) from None
        made.instruction = instruction
        tasks.append((made, task.weight))
    return Mixture(tasks, seed=seed)
