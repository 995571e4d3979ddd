"""The program and its commands about runs. Commands import what they need when they run: `--help` answers at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from prorl import __version__
from prorl.cli import data, doctor, tasks
from prorl.cli.outcome import finish
from prorl.errors import ProrlError

RUNS = Path("runs")

app = typer.Typer(
    name="prorl",
    help="ProRL v2: prolonged reinforcement learning of language models with verifiable rewards.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

app.add_typer(tasks.app, name="tasks")
app.add_typer(data.app, name="data")
app.command(epilog="Example: `prorl doctor`")(doctor.doctor)

Recipe = Annotated[str, typer.Argument(help="A recipe by name (nano, prorl_v2, …) or a YAML file.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Changes to the recipe, as in optimizer.lr=1e-4 steps=500.")
]
RunFolder = Annotated[Path, typer.Argument(help="A run directory, or its name below runs/.")]


@app.command(epilog="Examples: `prorl train nano` · `prorl train prorl_v2 optimizer.lr=2e-6 --dry-run`")
def train(
    recipe: Recipe,
    overrides: Overrides = None,
    run: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/ and the name of the recipe.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Print the resolved recipe and estimates, then stop.")
    ] = False,
) -> None:
    """Train a model by a recipe, from its beginning."""
    from prorl.recipe import load_recipe

    def work() -> str | None:
        config = load_recipe(recipe, overrides or ())
        if dry_run:
            from prorl.estimate import dry_run as describe

            typer.echo(describe(config))
            return None
        from prorl.launch import start_run
        from prorl.watch.console import Console

        return start_run(config, run or RUNS / config.name, Console()).stopped

    finish(work)


@app.command(epilog="Examples: `prorl resume nano` · `prorl resume nano --branch nano_hot kl.coef=1e-2`")
def resume(
    run: RunFolder,
    overrides: Overrides = None,
    branch: Annotated[
        str | None, typer.Option(help="Go on under a changed recipe, as a new run of this name.")
    ] = None,
) -> None:
    """Go on with a run from its newest good checkpoint, exactly where it was."""

    def work() -> str | None:
        from prorl.launch import branch_run, resume_run
        from prorl.watch.console import Console

        folder = _folder(run)
        if branch is None:
            return resume_run(folder, Console(), overrides=overrides or ()).stopped
        return branch_run(folder, folder.parent / branch, overrides or (), Console()).stopped

    finish(work)


@app.command("eval", epilog="Examples: `prorl eval nano` · `prorl eval path/to/model --recipe nano`")
def evaluate(
    subject: Annotated[
        str, typer.Argument(help="A run (directory or name), or a model directory or hub id.")
    ],
    recipe: Annotated[
        str | None, typer.Option(help="For a model: the recipe whose held-out problems are asked.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Measure pass@k on held-out and out-of-domain problems, for a run against its base."""

    def work() -> None:
        from prorl.launch import evaluate_model, evaluate_run
        from prorl.recipe import load_recipe
        from prorl.run.store import JOURNAL
        from prorl.watch.console import Console

        folder = _folder(Path(subject))
        if recipe is not None:
            evaluate_model(subject, load_recipe(recipe, overrides or ()), Console())
        elif (folder / JOURNAL).exists():
            evaluate_run(folder, Console())
        else:
            raise ProrlError(
                f"{subject} is no run; for a model, say whose problems it is asked: --recipe NAME"
            )

    finish(work)


@app.command(
    epilog="Examples: `prorl tell nano kl.coef=5e-4 optimizer.lr=1e-4` · `prorl tell nano kl.coef=plan` · "
    '`prorl tell nano pause` · `prorl tell nano note "new verifier from here on"`'
)
def tell(
    run: RunFolder,
    order: Annotated[
        list[str],
        typer.Argument(
            help="KNOB=VALUE …, pause, resume, stop, save, exam, reset-reference, or note TEXT. "
            "The value `plan` gives a knob back to the recipe."
        ),
    ],
) -> None:
    """Give an order to a run, from any shell: it is obeyed at the next step boundary, once, and journalled."""

    def work() -> None:
        from prorl.steering import tell as give

        folder = _folder(run)
        given = give(folder, order)
        typer.echo(
            f"order {given.id} is in the inbox of {folder}: obeyed at the next boundary between two steps"
        )

    finish(work)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Options of the program itself."""
    if show:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point of the `prorl` command."""
    # Read by OpenMP when torch loads. Threads that spin while they wait are ten times slower as soon as anything
    # else, the judge for one, wants a core; threads that sleep at once are half as fast on an idle machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    app()


def _folder(run: Path) -> Path:
    """A run directory as given, or by name below runs/."""
    return run if run.exists() or not (RUNS / run).exists() else RUNS / run
