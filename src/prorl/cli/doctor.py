"""`prorl doctor`: what this machine or a Ray cluster can do for a run, and where a recipe would go on GPUs."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.table import Table

from prorl.cli.outcome import FAILED, fail, finish
from prorl.cluster.capacity import GIB, GPU_MEMORY
from prorl.envs.errors import ProrlError
from prorl.run.layout import RUNS

if TYPE_CHECKING:
    from prorl.cluster.capacity import Placement
    from prorl.cluster.survey import Finding
    from prorl.config.schema import RunConfig

EXAMPLES = (
    "Examples: `prorl doctor` · `prorl doctor --recipe prorl_v2 --gpus 32 --nodes 4` · "
    "`prorl doctor --backend ray --address auto --recipe prorl_v2 cluster.learners=32 cluster.engines=32 "
    "cluster.colocate=true threads=8`"
)
PLACED = tuple(f"cluster.{key}=" for key in ("learners", "engines", "colocate", "tensor_parallel"))


def doctor(
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes to the recipe of --recipe.")] = None,
    backend: Annotated[
        str, typer.Option(help="What to look at: local, this machine; ray, a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="A running Ray cluster, or auto; default: one started here.")
    ] = None,
    run: Annotated[
        Path, typer.Option(help="Run directory that all nodes of the cluster must see; need not exist.")
    ] = RUNS,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Plan this recipe on GPUs; with --backend ray also see whether its data are prepared."
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Plan for so many GPUs, over all nodes; default: as many as the recipe asks for, or 8.",
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes that hold them; default: one for every eight.")
    ] = None,
    gpu_memory: Annotated[float, typer.Option(min=1, help="Memory of each of them in GiB.")] = GPU_MEMORY,
    separate: Annotated[bool, typer.Option(help="Engines and learner on GPUs of their own.")] = False,
) -> None:
    """Probe this machine or a Ray cluster for what a run needs; plan a recipe on GPUs, there or not."""
    changes = overrides or []
    if backend not in ("local", "ray"):
        fail(f"--backend is local or ray, not {backend!r}", FAILED)
    if backend == "local" and address is not None:
        fail("--address names a Ray cluster: add --backend ray", FAILED)
    if recipe is None and (changes or gpus is not None):
        fail(f"{changes[0] if changes else '--gpus'} is about a recipe: name one with --recipe", FAILED)
    placed = next((change for change in changes if change.startswith(PLACED)), None)
    if gpus is not None and placed is not None:
        fail(f"--gpus chooses the placement itself: leave out {placed}, or leave out --gpus", FAILED)
    if backend == "local" and recipe is None:
        _probe()
        return

    def work() -> int:
        from prorl.config.recipe import load_recipe

        where = [] if address is None else [f"cluster.address={address}"]
        config = None if recipe is None else load_recipe(recipe, ["backend=ray", *where, *changes])
        status = 0 if backend == "local" else _examine(config, recipe, address, run, asked=gpus is None)
        if config is None or (backend == "ray" and gpus is None):
            return status
        from prorl.cluster.estimate import plan_gpus

        planned = plan_gpus(config, gpus, nodes=nodes, gpu_memory=gpu_memory, separate=separate)
        return _described(planned) or status

    finish(work)


def _probe() -> None:
    from prorl.envs.sandbox.probe import probe

    report = probe()
    table = Table("piece", "", "found", "what its lack costs", title="sandbox", title_justify="left")
    for finding in report.findings:
        table.add_row(finding.name, "ok" if finding.works else "missing", finding.detail, finding.cost)
    RichConsole(highlight=False).print(table)
    if report.tier is None:
        fail("programs of models cannot be run safely here; docs/sandbox.md says how to change that", FAILED)
    typer.echo(f"programs of models run at tier {report.tier} (docs/sandbox.md)")


def _examine(
    config: RunConfig | None, recipe: str | None, address: str | None, run: Path, *, asked: bool
) -> int:
    """Check a cluster, and what a recipe needs of it, its placement too if `asked`; the exit status."""
    from prorl.cluster.settings import require_packages

    require_packages()
    from prorl.build import cluster_settings, settled
    from prorl.cluster import survey
    from prorl.cluster.estimate import asked_placement

    nodes = survey.survey(config.cluster.address if config else address, run)
    found = list(survey.findings(nodes, survey.installed()))
    planned = None
    if config is not None and recipe is not None:
        found += _data(config, recipe)
    if config is not None and asked:
        config = settled(config)
        wanted = cluster_settings(config)
        found.append(survey.room(nodes, wanted, claimed=config.cluster.address is not None))
        memory = [gpu for node in nodes for gpu in node.devices]
        if wanted.device == "cuda" and memory:
            largest = max(node.gpus for node in nodes)
            needed = ceil(sum(wanted.places) / largest) if largest else 1
            planned = asked_placement(config, nodes=needed, gpu_memory=min(memory), node_gpus=largest or None)
            beside = min(largest, sum(wanted.places))
            found.append(survey.host_memory(nodes, sum(planned.node.values()) / GIB, gpus=beside))
    for finding in found:
        typer.echo(str(finding))
    status = FAILED if any(not finding.fits for finding in found) else 0
    return status if planned is None else _described(planned) or status


def _data(config: RunConfig, recipe: str) -> list[Finding]:
    """Whether the recipe's data sets, if any, are prepared where this machine looks for them."""
    from prorl.cluster.survey import Finding
    from prorl.data import data_folder, data_requests
    from prorl.envs.datasets.prepare import require_prepared

    requests, folder = data_requests(config), data_folder(config)
    detail = f"{len(requests)} data sets, prepared in {folder}"
    fits = True
    try:
        require_prepared(requests, folder, recipe)
    except ProrlError as error:
        fits, detail = False, str(error)
    return [Finding(name="data", fits=fits, detail=detail)] if requests else []


def _described(planned: Placement) -> int:
    """Print a placement; the exit status."""
    for line in planned.describe():
        typer.echo(line)
    return FAILED if planned.problems else 0
