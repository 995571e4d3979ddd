"""The command line. Commands import what they need when they run, so that `--help` answers at once."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole

from prorl import __version__
from prorl.errors import ProrlError

if TYPE_CHECKING:
    from prorl.director.state import RunState
    from prorl.watch.console import Console
    from prorl.watch.interrupt import Interrupt

RUNS = Path("runs")
FAILED = 1
CRASHED = 70  # a bug, or the system refused something
INTERRUPTED = 130
STATUSES = (
    "Exit status: 0 done · 1 failed, with a sentence · 70 crashed again and again · 75 stopped by SIGUSR1, saved: "
    "start again with `prorl resume` · 130 stopped by Ctrl-C, saved · 143 stopped by SIGTERM, saved"
)

app = typer.Typer(
    name="prorl",
    help="ProRL v2: prolonged reinforcement learning of language models with verifiable rewards.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Recipe = Annotated[
    str | None, typer.Argument(help="A recipe by name (nano, prorl_v2, …) or a YAML file; none for a branch.")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Changes to the recipe, as in optimizer.lr=1e-4 steps=500.")
]
RunFolder = Annotated[Path, typer.Argument(help="A run directory, or its name below runs/.")]
Supervise = Annotated[
    bool,
    typer.Option(
        "--supervise/--no-supervise",
        help="Restart the trainer when it crashes or hangs; without, run plainly.",
    ),
]
Trainer = Callable[["Console", "Interrupt"], "RunState"]


@app.command(
    epilog="Examples: `prorl train nano` · `prorl train prorl_v2 optimizer.lr=2e-6 --dry-run` · "
    "`prorl train --branch nano@100 kl.coef=1e-2 --run runs/hot`\n\n" + STATUSES
)
def train(
    recipe: Recipe = None,
    overrides: Overrides = None,
    run: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/ and the name of the recipe.")
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option(help="Go on from RUN@STEP (without @STEP: its newest checkpoint) as a new run."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Print the resolved recipe and estimates, then stop.")
    ] = False,
    supervise: Supervise = True,
) -> None:
    """Train a model by a recipe from its beginning, or as a branch of another run."""

    def work() -> int:
        if branch is not None:
            changes = [*([] if recipe is None else [recipe]), *(overrides or ())]
            return _branch(branch, changes, run, supervise=supervise)
        if recipe is None:
            raise ProrlError("say what to train: the name of a recipe, or --branch RUN@STEP")
        from prorl.recipe import load_recipe

        config = load_recipe(recipe, overrides or ())
        if dry_run:
            from prorl.estimate import dry_run as describe

            typer.echo(describe(config))
            return 0
        folder = run or RUNS / config.name
        if supervise:
            return _supervised(["train", recipe, *(overrides or ()), "--run", str(folder)], folder)
        from prorl.launch import start_run

        return _trained(lambda console, interrupt: start_run(config, folder, console, interrupt))

    _finish(work, refused=CRASHED)


@app.command(epilog="Examples: `prorl resume nano` · `prorl resume nano save.minutes=10`\n\n" + STATUSES)
def resume(
    run: RunFolder,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Changes to save, deadlines or guards; for others there is `train --branch`."),
    ] = None,
    supervise: Supervise = True,
) -> None:
    """Go on with a run from its newest good checkpoint, exactly where it was."""

    def work() -> int:
        folder, changes = _folder(run), overrides or ()
        if supervise:
            return _supervised(["resume", str(folder), *changes], folder)
        from prorl.launch import resume_run

        return _trained(lambda console, interrupt: resume_run(folder, console, interrupt, overrides=changes))

    _finish(work, refused=CRASHED)


@app.command(epilog="Examples: `prorl status` · `prorl status nano`")
def status(
    run: Annotated[
        Path | None, typer.Argument(help="A run directory, or its name below runs/; default: all of them.")
    ] = None,
) -> None:
    """Show how runs are doing, from their files: progress, last exam, last decisions, health."""

    def work() -> int:
        from prorl.run.layout import JOURNAL
        from prorl.run.status import runs_below
        from prorl.run.status import status as look
        from prorl.watch.overview import decisions, overview

        folder = None if run is None else _folder(run)
        if folder is not None and not (folder / JOURNAL).exists():
            raise ProrlError(f"{run} is no run: it has no {JOURNAL}; check the name")
        found = [look(path) for path in (runs_below(RUNS) if folder is None else [folder])]
        if not found:
            typer.echo(f"there are no runs below {RUNS}/")
            return 0
        console = RichConsole(highlight=False, soft_wrap=True)
        console.print(overview(found))
        for one in found:
            for text in decisions(one):
                console.print(text, markup=False)
        return 0

    _finish(work)


@app.command(epilog="Examples: `prorl lineage nano`")
def lineage(run: RunFolder) -> None:
    """Print where a run's references come from: birth, reason, parent, optimizer; and the run's own parent."""

    def work() -> int:
        from prorl.watch.overview import lineage_lines

        for text in lineage_lines(_folder(run)):
            typer.echo(text)
        return 0

    _finish(work)


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

    def work() -> int:
        from prorl.measurement import evaluate_model, evaluate_run
        from prorl.recipe import load_recipe
        from prorl.run.layout import JOURNAL
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
        return 0

    _finish(work)


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
    # Read by OpenMP when torch loads. Spinning threads are faster on an idle machine and ten times slower as soon
    # as anything else, the judge for one, wants a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except Exception:
        # A bug: the supervisor tells it from an expected failure by the status, and tries again.
        traceback.print_exc()
        sys.exit(CRASHED)


def _branch(origin: str, overrides: Sequence[str], run: Path | None, *, supervise: bool) -> int:
    name, at, step = origin.partition("@")
    if at and not step.isdigit():
        raise ProrlError(f"--branch {origin}: say RUN@STEP, with the number of a step")
    for change in overrides:
        if "=" not in change:
            raise ProrlError(
                f"{change!r}: a branch has its parent's recipe; give changes as section.key=value"
            )
    parent = _folder(Path(name))
    target = run or RUNS / f"{parent.name}_{step or 'branch'}"
    if supervise:
        return _supervised(["train", "--branch", origin, *overrides, "--run", str(target)], target)
    from prorl.launch import branch_run

    return _trained(
        lambda console, interrupt: branch_run(
            parent, target, overrides, console, interrupt, step=int(step) if at else None
        )
    )


def _supervised(arguments: Sequence[str], folder: Path) -> int:
    """Run a trainer under a supervisor: by these arguments, and by `resume` once there is something to resume."""
    from prorl.run.supervise import Supervisor

    prorl = [sys.executable, "-m", "prorl"]
    again = [*prorl, "resume", str(folder), "--no-supervise"]
    try:
        return Supervisor([*prorl, *arguments, "--no-supervise"], again, folder, say=_say).run()
    finally:
        RichConsole().show_cursor()  # a trainer that was killed has left it hidden


def _trained(trainer: Trainer) -> int:
    """Train in this process; returns the exit status that goes with how it ended."""
    from prorl.watch.console import Console
    from prorl.watch.interrupt import Interrupt

    console = Console()
    interrupt = Interrupt(console)
    stopped = trainer(console, interrupt).stopped
    if stopped == "done":
        return 0
    if stopped == "interrupted":
        return interrupt.status
    raise ProrlError(f"the run stopped: {stopped}")


def _folder(run: Path) -> Path:
    """A run directory as given, or by name below runs/."""
    return run if run.exists() or not (RUNS / run).exists() else RUNS / run


def _finish(work: Callable[[], int], *, refused: int = FAILED) -> None:
    """Run a command: every expected failure is one sentence on standard error and a non-zero exit status.

    `refused` is the status where the system refused something, which may not happen again.
    """
    try:
        status = work()
    except KeyboardInterrupt:
        _fail("interrupted; what was not in a checkpoint is lost", INTERRUPTED)
    except ProrlError as error:
        _fail(str(error), FAILED)
    except OSError as error:
        _fail(f"the system refused: {error}", refused)
    else:
        if status:
            raise typer.Exit(status)


def _fail(sentence: str, status: int) -> None:
    _say(sentence)
    raise typer.Exit(status)


def _say(sentence: str) -> None:
    RichConsole(stderr=True, highlight=False, soft_wrap=True).print(f"prorl: {sentence}", markup=False)
