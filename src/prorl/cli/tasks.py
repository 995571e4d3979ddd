"""`prorl tasks`: the tasks, one problem in full, and checks of tasks; `prorl data`: the data sets of a recipe."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option, echo

from prorl.cli.outcome import AsJson, Overrides, progress_console, show
from prorl.envs.check import SPLIT_ORDER, check_task
from prorl.envs.datasets.prepare import SourceReport
from prorl.envs.datasets.prepare import prepare as prepare_data
from prorl.envs.errors import ProrlError, nearest
from prorl.envs.extensions import absolute
from prorl.envs.registry import make_task, task_names
from prorl.envs.types import Split, Task
from prorl.envs.verifiers.programs import OwnSandbox
from prorl.lab.tables import Cell, Number, Table

LOOK: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": "markdown"}
data = typer.Typer(help="Prepare the data sets that a recipe names.", **LOOK)
app = typer.Typer(help="List, show and check the tasks.", **LOOK)

Recipe = Annotated[str | None, Option(help="Take the tasks of this recipe, prepared data sets too.")]


@app.command("list")
def list_tasks(recipe: Recipe = None, as_json: AsJson = False) -> None:
    """Name every task with its domain, its difficulty levels and its splits.

    Examples: `prorl tasks list` · `prorl tasks list --recipe nano --json`
    """
    rows = []
    for name, make in _makers(recipe).items():
        task = make()
        levels, beyond = (", ".join(map(str, getattr(task, which, ()))) for which in ("levels", "ood_levels"))
        splits = " ".join(split for split in ("train", "validation", "test", "ood") if split in task.splits)
        rows.append((name, task.domain, levels, beyond, splits))
    columns = ("task", "domain", "levels", "out of domain", "splits")
    show([Table(title="", columns=columns, rows=tuple(rows))], as_json)


@app.command("show")
def show_problem(
    name: Annotated[str, Argument(metavar="TASK", help="A task by name, or FILE.py:NAME.")],
    index: Annotated[int, Argument(min=0, help="Which of its problems.")] = 0,
    split: Annotated[str | None, Option(help="train, validation, test or ood; default: the first.")] = None,
    recipe: Recipe = None,
) -> None:
    """Print one problem: what the model is asked, what the verifier knows, and a known solution.

    Examples: `prorl tasks show countdown 3` · `prorl tasks show blicket 0 --split ood`
    """
    task = _one(_makers(recipe), name)()
    chosen = next((known for known in SPLIT_ORDER if known in task.splits and split in (None, known)), None)
    if chosen is None:
        raise ProrlError(f"{name} has no {split} problems; it has {', '.join(sorted(task.splits))}")
    problem = task.problem(index, chosen)
    for role, said in problem.history:
        echo(f"[{role}] {said}")
    echo(problem.prompt)
    echo(f"\n-- {name} {index}, {chosen}, level {problem.level}; for the verifier: {problem.payload!r}")
    if problem.solution is not None:
        echo(f"-- a solution: {problem.solution.answer!r} by {problem.solution.steps!r}")


@app.command()
def check(
    names: Annotated[list[str] | None, Argument(metavar="[TASK]...", help="Default: all.")] = None,
    problems: Annotated[int, Option(min=1, help="How many problems of each.")] = 10,
    recipe: Recipe = None,
    as_json: AsJson = False,
) -> None:
    """Check that known solutions pass and tricks do not; report the constant-answer baseline and the speed.

    Examples: `prorl tasks check` · `prorl tasks check one_liner countdown --json` ·
    `prorl tasks check my_tasks.py:ReverseSentence harbor:my-tasks`
    """
    makers = _makers(recipe)
    chosen = {name: _one(makers, name) for name in names} if names else makers
    rows: list[tuple[Cell, ...]] = []
    broken = 0
    with progress_console(as_json).progress("checking") as progress:
        for done, (name, make) in enumerate(chosen.items(), start=1):
            progress(done, len(chosen), name)
            task = make()
            found = check_task(task, problems)
            solved = (None, None) if found.faults else (found.with_solution, problems)
            measured = (found.baseline, 1e3 * found.generate_seconds, 1e3 * found.verify_seconds)
            numbers = (Number(value=value, form=".2f") for value in measured)
            rows.append((task.name, task.domain, *solved, *numbers, "; ".join(found.faults)))
            broken += bool(found.faults)
    titles = ("best constant answer", "problem, ms", "verdict, ms")
    columns = ("task", "domain", "solved", "of", *titles, "faults")
    show([Table(title="", columns=columns, rows=tuple(rows))], as_json)
    if broken:
        raise ProrlError(f"{broken} of {len(rows)} tasks do not keep their promises: see their faults above")


def _makers(recipe: str | None) -> Mapping[str, Callable[[], Task]]:
    """Every task by name, not yet built: some take a second."""
    if recipe is None:
        return {name: partial(make_task, name) for name in task_names()}
    from prorl.build import task_makers
    from prorl.config.recipe import load_recipe

    return task_makers(load_recipe(recipe))


def _one(makers: Mapping[str, Callable[[], Task]], name: str) -> Callable[[], Task]:
    if ":" in name:
        return partial(make_task, absolute(name, Path()))
    if name not in makers:
        known = "see `prorl tasks list`; one of your own is FILE.py:NAME"
        raise ProrlError(f"no task {name!r}; {nearest(name, makers, known)}")
    return makers[name]


@data.command()
def prepare(
    recipe: Annotated[str, Argument(help="A recipe by name or a YAML file.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Read every data set of a recipe from the hub or a local file, clean it, and store it as Parquet.

    What is prepared already and unchanged is not done again. Says what was kept and what was dropped, and why.

    Examples: `prorl data prepare prorl_v2 --json` ·
    `prorl data prepare prorl_v2 tasks.deepscaler.path=deepscaler.parquet`
    """
    from prorl.build import data_folder, data_requests, verifier_spec
    from prorl.config.recipe import load_recipe

    config = load_recipe(recipe, overrides or ())
    requests, folder = data_requests(config), data_folder(config)
    reports: tuple[SourceReport, ...] = ()
    notes: tuple[str, ...] = (f"{recipe} names no data sets: its tasks are all procedural",)
    if requests:
        with progress_console(as_json).counting("preparing") as progress:
            reports = prepare_data(requests, folder, progress, run=OwnSandbox(verifier_spec(config).policy))
        notes = (f"prepared in {folder}",)
        if all(report.use == "train" for report in reports):
            notes = ("no evaluation set is listed: overlap with them was not looked for", *notes)
    show(_prepared(reports, notes), as_json)


def _prepared(reports: Iterable[SourceReport], notes: tuple[str, ...]) -> list[Table]:
    """What became of every data set, and why rows of it were dropped, with the first of them."""
    kept: list[tuple[Cell, ...]] = []
    dropped: list[tuple[Cell, ...]] = []
    splits: tuple[Split, ...] = ("train", "validation", "test")
    for report in reports:
        counts = (report.rows, *(report.kept.get(split, 0) for split in splits), sum(report.dropped.values()))
        kept.append((report.name, *counts, "yes" if report.redone else "no"))
        for reason, count in sorted(report.dropped.items(), key=lambda item: (-item[1], item[0])):
            dropped.append((report.name, reason, count, report.examples[reason]))
    columns = ("data set", "rows", *splits, "dropped", "redone")
    reasons = ("data set", "reason", "rows", "first of them")
    return [
        Table(title="", columns=columns, rows=tuple(kept), notes=notes),
        *([Table(title="dropped rows", columns=reasons, rows=tuple(dropped))] if dropped else []),
    ]
