"""What a recipe says of its data: the sets it asks for, where they lie prepared, what keeps their programs in."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from prorl.config import RunConfig
from prorl.sandbox.sandbox import Policy, Sandbox
from prorl.tasks.datasets.catalogue import SOURCES, resolve
from prorl.tasks.datasets.records import SourceRequest
from prorl.tasks.registry import make_task
from prorl.tasks.verifiers.programs import NeedsSandbox


def cache_folder() -> Path:
    """Where bases and data sets are kept between runs: `$XDG_CACHE_HOME/prorl` or `~/.cache/prorl`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prorl"


def data_requests(config: RunConfig) -> tuple[SourceRequest, ...]:
    """The data sets among a recipe's tasks: those of the catalogue, and the recipe's own."""
    return tuple(
        SourceRequest(
            name=name,
            kind=task.kind,
            path=task.path,
            columns=task.columns,
            limit=task.limit,
            revision=task.revision,
        )
        for name, task in config.tasks.items()
        if task.kind is not None or name in SOURCES
    )


def data_folder(config: RunConfig) -> Path:
    """Where the recipe's prepared data sets lie: as it says, or in the cache under what it asks for."""
    if config.data is not None:
        return Path(config.data)
    requests = sorted(map(repr, data_requests(config)))
    return cache_folder() / "data" / blake2b("\n".join(requests).encode(), digest_size=8).hexdigest()


def sandbox_policy(config: RunConfig) -> Policy:
    """Which sandbox the recipe's programs run in."""
    return Policy(tier=config.sandbox.tier, unsafe=config.sandbox.unsafe)


def check_sandbox(config: RunConfig) -> str:
    """See that the recipe's programs can be run here; what the tier leaves open, in words, "" for nothing.

    Raises:
        SandboxError: there is no sandbox that the recipe allows; the sentence says how to get one.
    """
    datasets = {request.name: resolve(request) for request in data_requests(config)}
    programs = any(source.domain == "code" for source in datasets.values()) or any(
        isinstance(make_task(name), NeedsSandbox) for name in config.tasks if name not in datasets
    )
    if not programs:
        return ""
    with Sandbox.open(sandbox_policy(config)) as sandbox:
        return sandbox.warning
