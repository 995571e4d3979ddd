"""`prorl doctor`: what this machine or a Ray cluster can do for a run, and where a recipe would go on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.table import Table

from prorl.cli.outcome import FAILED, fail, finish
from prorl.envs.errors import ProrlError
from prorl.run.layout import RUNS

if TYPE_CHECKING:
    from prorl.cluster.checks import Node
    from prorl.cluster.placement import Cluster, Placement
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
    gpu_memory: Annotated[float, typer.Option(min=1, help="Memory of each of them in GiB.")] = 80.0,
    separate: Annotated[bool, typer.Option(help="Engines and learner on GPUs of their own.")] = False,
) -> None:
    """Probe this machine or a Ray cluster for what a run needs; plan a recipe on GPUs, there or not."""
    if overrides and recipe is None:
        fail(f"{overrides[0]!r} changes no recipe: name one with --recipe", FAILED)
    if backend not in ("local", "ray"):
        fail(f"--backend is local or ray, not {backend!r}", FAILED)
    if backend == "local" and address is not None:
        fail("--address names a Ray cluster: add --backend ray", FAILED)
    if gpus is not None and recipe is None:
        fail("--gpus plans a recipe: name one with --recipe", FAILED)
    placed = next((change for change in overrides or () if change.startswith(PLACED)), None)
    if gpus is not None and placed is not None:
        fail(f"--gpus chooses the placement itself: leave out {placed}, or leave out --gpus", FAILED)
    if backend == "local" and recipe is None:
        _probe()
        return

    def work() -> int:
        from prorl.cluster.estimate import cluster_of, placement, usual_placement

        planned = None if gpus is None else cluster_of(gpus, nodes=nodes, gpu_memory=gpu_memory)
        if backend == "ray":
            return _examine(recipe, overrides or (), address, run, planned, separate=separate)
        assert recipe is not None, "else this machine was probed"
        from prorl.config.recipe import load_recipe

        config = load_recipe(recipe, ["backend=ray", *(overrides or ())])
        if planned is not None:
            return _described(placement(config, planned, separate=separate))
        return _described(usual_placement(config, nodes=nodes, gpu_memory=gpu_memory, separate=separate))

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
    recipe: str | None,
    overrides: Sequence[str],
    address: str | None,
    run: Path,
    planned: Cluster | None,
    *,
    separate: bool,
) -> int:
    """Look at a cluster, and at what a recipe asks of it; the exit status."""
    from prorl.cluster.settings import require_packages
    from prorl.config.recipe import load_recipe

    where = [] if address is None else [f"cluster.address={address}"]
    config = None if recipe is None else load_recipe(recipe, ["backend=ray", *where, *overrides])
    require_packages()
    from prorl.cluster.checks import findings, installed
    from prorl.cluster.survey import survey

    address = config.cluster.address if config else address
    found = survey(address, run)
    status = 0
    for finding in findings(found, installed()):
        typer.echo(str(finding))
        status = status if finding.fits else FAILED
    if config is None or recipe is None:
        return status
    status = _data(config, recipe) or status
    if planned is not None:
        from prorl.cluster.estimate import placement

        return _described(placement(config, planned, separate=separate)) or status
    return _asked(config, found, claimed=address is not None) or status


def _data(config: RunConfig, recipe: str) -> int:
    """Whether the recipe's data sets are prepared where this machine looks for them; the exit status."""
    from prorl.cluster.checks import Finding
    from prorl.data import data_folder, data_requests
    from prorl.envs.datasets.prepare import require_prepared

    requests, folder = data_requests(config), data_folder(config)
    if not requests:
        return 0
    try:
        require_prepared(requests, folder, recipe)
    except ProrlError as error:
        typer.echo(str(Finding(name="data", fits=False, detail=str(error))))
        return FAILED
    typer.echo(
        str(Finding(name="data", fits=True, detail=f"{len(requests)} data sets, prepared in {folder}"))
    )
    return 0


def _asked(config: RunConfig, nodes: Sequence[Node], *, claimed: bool) -> int:
    """What a recipe asks of these nodes: room, and memory of GPUs; the exit status."""
    from prorl.build import cluster_settings, settled
    from prorl.cluster.checks import host_memory, room
    from prorl.cluster.estimate import asked_placement
    from prorl.cluster.placement import GIB

    config = settled(config)
    wanted = cluster_settings(config)
    places = room(nodes, wanted, claimed=claimed)
    typer.echo(str(places))
    status = 0 if places.fits else FAILED
    memory = [gpu for node in nodes for gpu in node.devices]
    if wanted.device == "cpu" or not memory:
        typer.echo("no placement: memory is planned for GPUs only")
        return status
    largest = max(node.gpus for node in nodes)
    needed = ceil(sum(wanted.places) / largest) if largest else 1
    planned = asked_placement(config, nodes=needed, gpu_memory=min(memory), node_gpus=largest or None)
    held = host_memory(nodes, planned.host / GIB, gpus=min(largest, sum(wanted.places)))
    typer.echo(str(held))
    return _described(planned) or (status if held.fits else FAILED)


def _described(planned: Placement) -> int:
    """Print a placement; the exit status."""
    from prorl.cluster.placement import describe

    for line in describe(planned):
        typer.echo(line)
    return FAILED if planned.problems else 0
