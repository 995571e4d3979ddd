"""The program and its commands about runs. Commands import what they need when they run: `--help` answers at once."""

import errno
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer
from rich.console import Console as RichConsole
from typer import Argument, Exit, Option, echo

from prorl import __version__
from prorl.cli import doctor, runs, tasks
from prorl.cli.outcome import (
    Address,
    AsJson,
    Backend,
    Overrides,
    Program,
    RunFolder,
    changes_to,
    outlive_readers,
    say,
    show,
)
from prorl.cli.runs import report_at_the_end
from prorl.envs.errors import ProrlError
from prorl.run.layout import RUNS, is_born, run_at, run_folder, runs_below
from prorl.run.supervise import CRASHED, ENDED

if TYPE_CHECKING:
    from prorl.config.schema import RunConfig
    from prorl.control.state import RunState
    from prorl.lab.watch.console import Console
    from prorl.run.process import Interrupt

STATUSES = (
    "Exit status: 0 done · 1 failed, with a sentence · 70 crashed again and again · 71 by --no-supervise: saved, as "
    "memory ran out · 75 stopped by SIGUSR1, saved: start again with `prorl resume` · 129 terminal closed (SIGHUP), "
    "saved · 130 stopped by Ctrl-C, saved · 131 stopped by Ctrl-\\\\, unsaved · 143 stopped by SIGTERM, saved"
)

LASTING = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
LASTING |= {errno.ENAMETOOLONG}
"""What a trainer that cannot begin would meet again."""

app = typer.Typer(
    name="prorl",
    cls=Program,
    help="ProRL v2: prolonged reinforcement learning of language models with verifiable rewards.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(tasks.app, name="tasks")
app.add_typer(tasks.data, name="data")

Recipe = Annotated[str | None, Argument(help="A recipe by name (nano, …) or a YAML file; none for a branch.")]
Supervise = Annotated[bool, Option("--supervise/--no-supervise", help="Restart it when it crashes or hangs.")]
Trainer = Callable[["Console", "Interrupt"], "RunState"]


@app.command(epilog=STATUSES)
def train(
    recipe: Recipe = None,
    overrides: Overrides = None,
    run: Annotated[Path | None, Option(help="Run directory; default: runs/ and the recipe's name.")] = None,
    branch: Annotated[str | None, Option(help="Go on from RUN[@STEP] as a new run.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print estimates and the recipe, then stop.")] = False,
    full: Annotated[bool, Option("--full", help="In a dry run: every default, too.")] = False,
    backend: Backend = None,
    address: Address = None,
    supervise: Supervise = True,
) -> None:
    """Train a model by a recipe from its beginning, or as a branch of another run.

    Examples: `prorl train nano` · `prorl train prorl_v2 optimizer.lr=2e-6 --dry-run` ·
    `prorl train --branch nano@300 kl.coef=1e-2 --run runs/hot`
    """
    changes = changes_to(overrides, backend, address)
    if full and not dry_run:
        raise ProrlError("--full belongs to --dry-run: it prints every default, too")
    from prorl.config.recipe import changed, load_recipe
    from prorl.run.store import RunStore

    if branch is not None:
        changes, what = [*([] if recipe is None else [recipe]), *changes], ["--branch", branch]
        if wrong := next((change for change in changes if "=" not in change), None):
            raise ProrlError(
                f"{wrong!r}: a branch has its parent's recipe; give changes as section.key=value"
            )
        parent, step = run_at(branch)
        config = changed(RunStore.open(parent).config, {}, changes)
        default = f"{parent.name}_{'branch' if step is None else step}"
        folder = run or RUNS / (config.name if any(one.startswith("name=") for one in changes) else default)
    elif recipe is not None:
        config, what = load_recipe(recipe, changes), [recipe]
        folder = run or RUNS / config.name
    else:
        raise ProrlError("say what to train: the name of a recipe, or --branch RUN@STEP")
    if dry_run:
        if branch is not None and step is not None:
            RunStore.open(parent).checkpoint(step)  # or it says which there are
        from prorl.cluster import estimate

        echo(estimate.dry_run(config, full=full))
        return
    if supervise:
        first, again = ["train", *what, *changes, "--run", str(folder)], ["resume", str(folder)]
        _supervise(first, again, folder, config)
    from prorl.session import branch_run, start_run

    if branch is not None:
        _train(folder, partial(branch_run, parent, folder, changes, step=step))
    _train(folder, partial(start_run, config, folder))


@app.command(epilog=STATUSES)
def resume(
    run: RunFolder,
    overrides: Annotated[
        list[str] | None,
        Argument(help="Changes to save, deadlines, guards, log, workers, backend or cluster."),
    ] = None,
    backend: Backend = None,
    address: Address = None,
    supervise: Supervise = True,
) -> None:
    """Go on with a run from its newest good checkpoint, exactly where it was.

    Examples: `prorl resume nano` · `prorl resume nano save.minutes=10`
    """
    folder, changes = run_folder(run), changes_to(overrides, backend, address)
    if supervise:
        from prorl.config.recipe import changed
        from prorl.run.store import RunStore

        config = changed(RunStore.open(folder).config, {}, changes)
        # A trainer that dies before it has stored the changes leaves them to the next.
        again = ["resume", str(folder), *changes]
        _supervise(again, again, folder, config)
    from prorl.session import resume_run

    _train(folder, partial(resume_run, folder, overrides=changes, after=os.environ.get(ENDED, "")))


@app.command()
def status(
    run: Annotated[Path | None, Argument(help="A run, or its name below runs/; default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how runs are doing, from their files: progress, last validation, last decisions, health.

    Examples: `prorl status` · `prorl status nano` · `prorl status --json`
    """
    from prorl.lab.watch.console import overview
    from prorl.run.history import read_history

    folders = [run_folder(run)] if run else runs_below(RUNS)
    found = [read_history(folder, brief=True) for folder in folders]
    if found or as_json:
        show(overview(found), as_json)
    else:
        echo(f"there are no runs below {RUNS}/")


@app.command()
def tell(
    run: RunFolder,
    command: Annotated[
        list[str],
        Argument(
            help="KEY=VALUE …, pause, resume, stop, save, validation, reset-reference, roll-back, roll-back=STEP, or "
            "note TEXT. The value `plan` gives a hyperparameter back to the recipe."
        ),
    ],
    yes: Annotated[bool, Option("--yes", help="Do not ask before a move by more than 10 times.")] = False,
) -> None:
    """Give a command to a run, from any shell: it is obeyed when the current step ends, once, and journalled.

    Examples: `prorl tell nano kl.coef=5e-4 optimizer.lr=1e-4` · `prorl tell nano kl.coef=plan` ·
    `prorl tell nano pause` · `prorl tell nano note "new verifier from here on"`
    """
    from prorl.commands import OBEYED
    from prorl.commands import tell as give

    def confirm(move: str) -> bool:
        return yes or (sys.stdin.isatty() and typer.confirm(f"{move}: give this command?"))

    folder = run_folder(run)
    give(folder, command, confirm=confirm)
    echo(f"the command is in the inbox of {folder}: {OBEYED}")


@app.command()
def new(
    what: Annotated[
        Literal["task", "recipe", "data"], Argument(help="A task, a recipe, a recipe for rows of data.")
    ],
    path: Annotated[Path, Argument(help="The file to write.")],
) -> None:
    """Write a commented file to start from.

    Examples: `prorl new task my_tasks.py` · `prorl new recipe my_recipe.yaml` · `prorl new data my_data.yaml`
    """
    suffixes = (".py",) if what == "task" else (".yaml", ".yml")
    if path.suffix not in suffixes:
        raise ProrlError(f"{path}: a {what} needs a file that ends in {' or '.join(suffixes)}")
    text = Path(__file__).with_name("templates").joinpath(f"{what}.txt").read_text("utf-8").format(path=path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ProrlError(f"{path} exists: choose another name, or delete it") from None
    echo(f"wrote {path}: see its first lines")


app.command("eval")(runs.evaluate)
for one in (runs.report, runs.dashboard, runs.creativity, runs.export, runs.compare, runs.log, doctor.doctor):
    app.command()(one)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Options of the program itself."""
    if show:
        echo(__version__)
        raise Exit


def main() -> None:
    """Entry point of the `prorl` command."""
    # Read by OpenMP when torch loads. Threads that spin while they wait are ten times slower as soon as anything
    # else, the judge for one, wants a core; threads that sleep at once are half as fast on an idle machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # Where whoever began this ignores its children, the system would forget how ours end: all would seem well.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    outlive_readers()
    try:
        app()
    except Exception:
        # A bug: the supervisor tells it from an expected failure by the status, and tries again.
        traceback.print_exc()
        sys.exit(CRASHED)
    finally:
        gc.freeze()  # or the interpreter would look through all of torch's objects as it ends: a second


def _supervise(first: Sequence[str], again: Sequence[str], folder: Path, config: "RunConfig") -> NoReturn:
    """Run a trainer under a supervisor: by the `first` arguments, `again` once there is something to resume."""
    from prorl.run.supervise import TAKING_UP, Patience, Supervisor

    patience = Patience(taking_up=TAKING_UP + config.cluster.room_deadline)
    first, again = ([sys.executable, "-m", "prorl", *said, "--no-supervise"] for said in (first, again))
    try:
        raise Exit(Supervisor(first, again, folder, say=say, patience=patience).run())
    finally:
        RichConsole().show_cursor()  # a trainer that was killed has left it hidden


def _train(folder: Path, trainer: Trainer) -> NoReturn:
    """Train in this process and report on a run that is over; the exit status says how it ended."""
    from prorl.control.decide import TOLD_TO_STOP
    from prorl.lab.watch.console import Console
    from prorl.run.process import Interrupt

    console = Console()
    interrupt = Interrupt(console.say)
    try:
        stopped = trainer(console, interrupt).stopped
    except OSError as error:
        if interrupt.begun or error.errno not in LASTING:
            raise
        raise ProrlError(f"the system refused: {error}; mend this, then run the command again") from error
    except (MemoryError, RuntimeError) as error:  # the latter from torch, on a CPU as on a GPU
        if is_born(folder) or not (isinstance(error, MemoryError) or "memory" in str(error)):
            raise  # what was saved goes on in a process that starts afresh
        raise ProrlError(
            "there is not enough memory to begin this run: free some, or take a smaller model"
        ) from error
    if stopped in ("done", TOLD_TO_STOP):
        report_at_the_end(folder)
        raise Exit
    if stopped == "interrupted":
        raise Exit(interrupt.status)
    raise ProrlError(f"the run stopped: {stopped}")
