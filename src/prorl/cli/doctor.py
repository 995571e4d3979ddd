"""`prorl doctor`: what this machine or a Ray cluster can do for a run, and where a recipe would go on GPUs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Exit, Option, echo

from prorl.cli.outcome import AsJson, fail, show
from prorl.cluster.capacity import GIB, GPU_MEMORY, Placement
from prorl.envs.sandbox.sandbox import Finding, probe
from prorl.lab.tables import Number, Table
from prorl.run.layout import RUNS
from prorl.run.supervise import FAILED

PLACED = tuple(f"cluster.{key}=" for key in ("learners", "engines", "colocate", "tensor_parallel"))
MOST = 4096  # GPUs and nodes, as many processes as a recipe may ask for


def doctor(
    overrides: Annotated[list[str] | None, Argument(help="Changes to the recipe of --recipe.")] = None,
    backend: Annotated[Literal["local", "ray"], Option(help="This machine, or a cluster.")] = "local",
    address: Annotated[str | None, Option(help="A Ray cluster, or auto; default: one started here.")] = None,
    run: Annotated[Path, Option(help="Run directory that all nodes must see; need not exist.")] = RUNS,
    recipe: Annotated[
        str | None, Option(help="Plan this recipe on GPUs, and see if its data are there.")
    ] = None,
    gpus: Annotated[
        int | None, Option(min=1, max=MOST, help="Over all nodes; default: the recipe's, or 8.")
    ] = None,
    nodes: Annotated[
        int | None, Option(min=1, max=MOST, help="That hold them; default: one for every eight.")
    ] = None,
    gpu_memory: Annotated[float, Option(min=1, max=1e6, help="Memory of each of them in GiB.")] = GPU_MEMORY,
    separate: Annotated[bool, Option(help="Engines and learner on GPUs of their own.")] = False,
    as_json: AsJson = False,
) -> None:
    """Probe this machine or a Ray cluster for what a run needs; plan a recipe on GPUs, there or not.

    Examples: `prorl doctor --json` · `prorl doctor --recipe prorl_v2 --gpus 32 --nodes 4` ·
    `prorl doctor --backend ray --address auto --recipe prorl_v2 cluster.learners=32 cluster.engines=32
    cluster.colocate=true`
    """
    changes = overrides or []
    if backend == "local" and address is not None:
        fail("--address names a Ray cluster: add --backend ray")
    asked = {
        "--gpus": gpus,
        "--nodes": nodes,
        "--separate": separate,
        "--gpu-memory": gpu_memory != GPU_MEMORY,
    }
    options = [option for option, said in asked.items() if said]
    if recipe is None and (planning := [*changes, *options]):
        fail(f"{planning[0]} is about a recipe: name one with --recipe")
    if backend == "ray" and gpus is None and options:
        fail(f"{options[0]} is about GPUs that may not be there: add --gpus, or leave it out")
    placed = next((change for change in changes if change.startswith(PLACED)), None)
    if gpus is not None and placed is not None:
        fail(f"--gpus chooses the placement itself: leave out {placed}, or leave out --gpus")
    if backend == "local" and recipe is None:
        _machine(as_json)
        return
    config = planned = None
    if recipe is not None:
        from prorl.cluster.estimate import plan_gpus
        from prorl.config.recipe import load_recipe

        where = [] if address is None else [f"cluster.address={address}"]
        told = ["backend=ray", *where, *changes]
        # What else a recipe says of its cluster, as that it offloads, may suit only several.
        several = [f"cluster.{role}={gpus}" for role in ("learners", "engines")] if gpus else []
        config = load_recipe(recipe, [*told, *several])
        if backend == "local" or gpus is not None:
            planned = plan_gpus(config, gpus, nodes=nodes, gpu_memory=gpu_memory, separate=separate)
            load_recipe(recipe, [*told, *planned.settings.split()])  # what does not suit those is refused
    found: list[Finding] = []
    if backend == "ray":
        from prorl.cluster.estimate import examine

        found, there = examine(config, recipe, address, run, place=planned is None)
        planned = planned or there
    if as_json:
        show(_tables(found, planned), as_json)
    else:
        for one in found:
            echo(f"{'ok' if one.works else 'does not fit'}: {one.name}: {one.detail}")
        for line in planned.describe() if planned else ():
            echo(line)
    if any(not one.works for one in found) or (planned and planned.problems):
        raise Exit(FAILED)


def _machine(as_json: bool) -> None:
    from prorl.cluster.estimate import machine_findings

    findings, tier = probe()
    notes = (f"programs of models run at tier {tier} (docs/sandbox.md)",) if tier else ()
    show([_pieces("speed", machine_findings()), _pieces("sandbox", findings, notes)], as_json)
    if tier is None:
        fail("programs of models cannot be run safely here; docs/sandbox.md says how to change that")


def _pieces(title: str, found: Iterable[Finding], notes: tuple[str, ...] = ()) -> Table:
    rows = tuple((one.name, "ok" if one.works else "missing", one.detail, one.cost) for one in found)
    return Table(
        title=title, columns=("piece", "state", "found", "what its lack costs"), rows=rows, notes=notes
    )


def _tables(found: list[Finding], planned: Placement | None) -> list[Table]:
    tables = []
    if found:
        rows = tuple((one.name, "ok" if one.works else "does not fit", one.detail) for one in found)
        tables.append(Table(title="cluster", columns=("piece", "state", "found"), rows=rows))
    if planned:
        parts = {
            "sampling, per GPU": {**planned.sampling, "key-value cache": planned.cache},
            "learning, per GPU": planned.learning,
            "host, per node": planned.node,
        }
        memory = tuple(
            (where, what, Number(value=size / GIB, form=".2f"))
            for where, sizes in parts.items()
            for what, size in sizes.items()
        )
        notes = tuple(line.strip() for line in planned.describe())
        tables.append(Table(title="placement", columns=("memory", "part", "GiB"), rows=memory, notes=notes))
    return tables
