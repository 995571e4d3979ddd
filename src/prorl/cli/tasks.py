"""`prorl tasks`: what there is to train on, one problem in full, and whether tasks keep their promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Annotated

import typer
from rich.console import Console as RichConsole
from rich.table import Table

from prorl.cli.outcome import finish
from prorl.envs.check import SPLIT_ORDER, TaskCheck, check_task
from prorl.envs.errors import ProrlError
from prorl.envs.registry import TASKS, make_task
from prorl.envs.types import Task

app = typer.Typer(help="List, show and check the tasks.", no_args_is_help=True, rich_markup_mode="markdown")

Recipe = Annotated[
    str | None, typer.Option(help="Take the tasks of this recipe, its prepared data sets among them.")
]


@app.command("list", epilog="Examples: `prorl tasks list` · `prorl tasks list --recipe prorl_v2`")
def list_tasks(recipe: Recipe = None) -> None:
    """Name every task with its domain, its difficulty levels and its splits."""

    def work() -> None:
        table = Table("task", "domain", "levels", "out of domain", "splits")
        for name, make in _makers(recipe).items():
            task = make()
            levels = ", ".join(map(str, getattr(task, "levels", ())))
            held_out = ", ".join(map(str, getattr(task, "ood_levels", ())))
            splits = " ".join(split for split in ("train", "exam", "test", "ood") if split in task.splits)
            table.add_row(name, task.domain, levels, held_out, splits)
        RichConsole(highlight=False).print(table)

    finish(work)


@app.command(epilog="Examples: `prorl tasks show countdown 3` · `prorl tasks show blicket 0 --split ood`")
def show(
    name: Annotated[str, typer.Argument(metavar="TASK", help="A task by name.")],
    index: Annotated[int, typer.Argument(min=0, help="Which of its problems.")] = 0,
    split: Annotated[
        str | None, typer.Option(help="train, exam, test or ood; default: the first it has.")
    ] = None,
    recipe: Recipe = None,
) -> None:
    """Print one problem: what the model is asked, what the verifier knows, and a known solution."""

    def work() -> None:
        task = _one(_makers(recipe), name)()
        chosen = next(
            (known for known in SPLIT_ORDER if known in task.splits and split in (None, known)), None
        )
        if chosen is None:
            raise ProrlError(f"{name} has no {split} problems; it has {', '.join(sorted(task.splits))}")
        problem = task.problem(index, chosen)
        typer.echo(problem.prompt)
        typer.echo(
            f"\n-- {name} {index}, {chosen}, level {problem.level}; for the verifier: {problem.payload!r}"
        )
        if problem.witness is not None:
            typer.echo(f"-- a solution: {problem.witness.answer!r} by {problem.witness.steps!r}")

    finish(work)


@app.command(epilog="Examples: `prorl tasks check` · `prorl tasks check one_liner countdown`")
def check(
    names: Annotated[list[str] | None, typer.Argument(metavar="[TASK]...", help="Default: all.")] = None,
    problems: Annotated[int, typer.Option(min=1, help="How many problems of each.")] = 10,
    recipe: Recipe = None,
) -> None:
    """See that known solutions pass and tricks do not; report the constant-answer baseline and the speed."""

    def work() -> None:
        from prorl.lab.watch.console import Console

        makers = _makers(recipe)
        chosen = {name: _one(makers, name) for name in names} if names else makers
        checks: list[TaskCheck] = []
        with Console().progress("checking") as progress:
            for done, (name, make) in enumerate(chosen.items(), start=1):
                progress(done, len(chosen), name)
                checks.append(check_task(make(), problems))
        RichConsole(highlight=False).print(_table(checks))
        faults = [f"{found.name}: {fault}" for found in checks for fault in found.faults]
        if faults:
            raise ProrlError("these tasks do not keep their promises\n" + "\n".join(faults))

    finish(work)


def _makers(recipe: str | None) -> Mapping[str, Callable[[], Task]]:
    """Every task by name, not yet built: some take a second."""
    if recipe is None:
        return {name: partial(make_task, name) for name in TASKS}
    from prorl.config.recipe import load_recipe
    from prorl.data import data_folder, data_requests
    from prorl.envs.datasets.store import DatasetTask

    config = load_recipe(recipe)
    datasets, folder = {request.name for request in data_requests(config)}, data_folder(config)
    return {
        name: partial(DatasetTask, name, folder)
        if name in datasets
        else partial(make_task, name, task.levels or None)
        for name, task in config.tasks.items()
    }


def _one(makers: Mapping[str, Callable[[], Task]], name: str) -> Callable[[], Task]:
    if name not in makers:
        near = get_close_matches(name, makers, n=1)
        hint = f"did you mean {near[0]}?" if near else "see `prorl tasks list`"
        raise ProrlError(f"no task {name!r}; {hint}")
    return makers[name]


def _table(checks: Iterable[TaskCheck]) -> Table:
    table = Table("task", "domain", "solved", "best constant answer", "problem, ms", "verdict, ms", "faults")
    for found in checks:
        table.add_row(
            found.name,
            found.domain,
            f"{found.witnessed}/{found.problems}" if not found.faults else "",
            f"{found.baseline.score:.2f}",
            f"{1e3 * found.generate_seconds:.2f}",
            f"{1e3 * found.verify_seconds:.2f}",
            "; ".join(found.faults),
        )
    return table
