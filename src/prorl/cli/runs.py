"""The commands that look at runs and models: `eval`, `creativity`, `compare`, `report`, `dashboard`, `export`."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console as RichConsole
from typer import Argument, Option, echo

from prorl.cli.outcome import (
    Address,
    AsJson,
    Backend,
    Overrides,
    changes_to,
    fail,
    progress_console,
    say,
    show,
)
from prorl.envs.errors import ProrlError
from prorl.lab.tables import count
from prorl.local.backend import Dtype
from prorl.run.layout import RUNS, run_at, run_folder
from prorl.run.supervise import INTERRUPTED

Runs = Annotated[list[Path], Argument(help="Run directories, or names below runs/.")]
Problems = Annotated[int | None, Option(min=0, help="So many problems per domain; default: the recipe's.")]


def evaluate(
    subject: Annotated[str, Argument(metavar="RUN[@STEP]|MODEL", help="A run's checkpoint, or a model.")],
    overrides: Overrides = None,
    against: Annotated[str | None, Option(help="A checkpoint or model; default: the run's base.")] = None,
    recipe: Annotated[str | None, Option(help="Whose problems are asked; default: the run's own.")] = None,
    k: Annotated[
        str | None,
        Option(help="A list 1,4,16, or the largest of the powers of two; default: 256, or fewer --samples."),
    ] = None,
    samples: Annotated[
        int | None, Option(min=1, help="Responses per problem; default: the largest k.")
    ] = None,
    per_domain: Problems = None,
    ood: Problems = None,
    per_level: Annotated[int, Option(min=0, help="Problems per difficulty level of each task.")] = 20,
    name: Annotated[str, Option(help="One evaluation asks every model the same.")] = "evaluation",
    out: Annotated[Path | None, Option(help="Default: evals/ of the run, or evals/MODEL.")] = None,
    backend: Backend = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a checkpoint or model: pass@k against the base, problem by problem, to see if the boundary moved.

    Goes on where an earlier call was interrupted. A run may be training meanwhile.

    Examples: `prorl eval nano` · `prorl eval nano@300 --json` · `prorl eval nano --k 16 --per-domain 50` ·
    `prorl eval path/to/model --recipe nano --against other/model` · `prorl eval big --backend local`
    """
    from prorl.lab.evals.statistics import read_ks

    ks = read_ks(str(min(samples or 256, 256)) if k is None else k)
    options = {"per_domain": per_domain, "ood_per_domain": ood, "per_level": per_level}
    options |= {"samples": samples or ks[-1]}
    settings = [f"evaluation.{key}={value}" for key, value in options.items() if value is not None]
    try:
        # takes seconds, in which there may be a Ctrl-C as well
        from prorl.lab.measurement import evaluate as measure

        tables = measure(
            subject,
            against=against,
            recipe=recipe,
            settings=[*settings, *changes_to(overrides, backend, address)],
            ks=ks,
            name=name,
            out=out,
            console=progress_console(as_json),
        )
    except KeyboardInterrupt:
        fail(
            "interrupted; what was measured is kept: give the same command again to go on "
            "(with the step, RUN@STEP, if the run trains on meanwhile)",
            INTERRUPTED,
        )
    show(tables, as_json)


def creativity(
    evaluations: Annotated[list[Path], Argument(metavar="RUN|FILE...", help="A run, or evaluation files.")],
    corpus: Annotated[
        list[Path] | None,
        Option(
            help=".txt, .jsonl or .parquet (field text), or a folder; default: what the base was warmed up on."
        ),
    ] = None,
    name: Annotated[str | None, Option(help="Which evaluation of the run.")] = None,
    shortest: Annotated[int, Option(help="Shortest word sequence that counts as taken.")] = 5,
    longest: Annotated[int, Option(help="Longest one.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Compute the creativity index of kept responses: how much of them cannot be pieced together from a corpus.

    Examples: `prorl creativity nano` · `prorl creativity nano --corpus books/ --corpus wiki.jsonl` ·
    `prorl creativity a.parquet b.parquet --corpus pages.parquet`
    """
    from prorl.lab.creativity import Lengths, measure_creativity

    lengths = Lengths(shortest=shortest, longest=longest)
    show(measure_creativity(evaluations, corpus, name, lengths, progress_console(as_json)), as_json)


def compare(
    runs: Runs,
    step: Annotated[int | None, Option(min=0, help="Compare the runs as they were after this step.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: recipes, cost, validations, decisions, evaluations; with intervals over seeds.

    Reads files only, so the runs may be training. Runs that differ only in their seed share a column, which holds
    mean ± half of the 95 % interval, and below it the runs in the order of their names.

    Examples: `prorl compare nano grpo_plain` · `prorl compare runs/seed* --step 300 --json`
    """
    from prorl.lab.report.compare import comparison
    from prorl.lab.results import gains, newest_pairs
    from prorl.run.history import read_history

    folders = list(dict.fromkeys(map(run_folder, runs)))
    histories = [read_history(folder, up_to=step) for folder in folders]
    for one in histories:
        if step is not None and one.step < step:
            raise ProrlError(
                f"{one.folder} has only {count(one.step, 'step')}: give --step {one.step} or less"
            )
    found = [
        [gain for pair in newest_pairs(folder, up_to=step, report=say) for gain in gains(pair)]
        for folder in folders
    ]
    show(comparison(histories, found), as_json, aligned=True)


def report(
    runs: Runs,
    out: Annotated[Path | None, Option(help="Default: report.html in the run, or here for several.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write what there is to know about runs as one HTML file that fetches nothing; several are overlaid.

    Each figure has a button that saves it as SVG. With --json the tables of the page are printed, and no file is
    written.

    Examples: `prorl report nano` · `prorl report seed1 seed2 seed3 --out seeds.html` · `prorl report nano --json`
    """
    from prorl.lab.report.sections import sections, tables, write_report
    from prorl.run.history import read_history

    folders = list(dict.fromkeys(map(run_folder, runs)))
    with RichConsole(stderr=True).status("report"):
        if as_json and out is not None:
            raise ProrlError("--json writes no file: leave out --out, or --json")
        if as_json:
            show(tables(sections([read_history(folder) for folder in folders])), as_json)
        else:
            echo(write_report(folders, out))


def report_at_the_end(folder: Path) -> None:
    """Write the report of a run that has just ended. The run does not fail if its report does."""
    from prorl.lab.report.sections import write_report

    try:
        path = write_report([folder])
    except Exception as error:
        say(f"the report could not be written ({error}); the run is complete, try `prorl report {folder}`")
    else:
        echo(f"report: {path}")


def dashboard(
    runs: Annotated[Path, Argument(help="A folder of runs, or one run, also by its name.")] = RUNS,
    host: Annotated[str, Option(help="The default is reached from this machine only.")] = "127.0.0.1",
    port: Annotated[int | None, Option(min=0, max=65535, help="Default: 8787, or the next free one.")] = None,
    read_only: Annotated[bool, Option("--read-only", help="Take no commands from anybody.")] = False,
) -> None:
    """Show runs live in a browser: curves, rollouts, health; and take commands from whoever has the printed token.

    Examples: `prorl dashboard` · `prorl dashboard /mnt/cluster/runs --read-only`
    """
    from prorl.lab.dashboard.app import serve

    with suppress(KeyboardInterrupt):  # this is how it is meant to end
        serve(run_folder(runs), host=host, port=port, read_only=read_only)


def export(
    run: Annotated[str, Argument(metavar="RUN[@STEP]", help="Without @STEP: its newest whole checkpoint.")],
    target: Annotated[Path, Argument(metavar="DIR", help="The new folder.")],
    dtype: Annotated[Dtype | None, Option(help="Of the weights; default: as stored.")] = None,
    to_hub: Annotated[str | None, Option("--push", metavar="ORG/NAME", help="Upload it to the hub.")] = None,
    public: Annotated[bool, Option("--public", help="With --push: for everybody to see.")] = False,
) -> None:
    """Write a checkpoint for transformers, vLLM and the hub: weights, tokenizer, sampling settings, model card.

    The run may be training meanwhile.

    Examples: `prorl export nano model/` · `prorl export nano@300 model/ --dtype bfloat16` ·
    `prorl export nano model/ --push me/nano`
    """
    from prorl.lab.export import export as write
    from prorl.lab.export import push

    if public and to_hub is None:
        fail("--public is about --push: say where, --push ORG/NAME")
    folder, wanted = run_at(run)
    step = write(folder, target, step=wanted, dtype=dtype, say=say)
    echo(f"step {step} of {folder} is exported to {target}: see {target / 'README.md'}")
    if to_hub is not None:
        echo(f"pushed to {push(target, to_hub, public=public)}")


def log(
    run: Annotated[Path, Argument(help="A run directory, or its name below runs/.")],
    to: Annotated[
        Literal["wandb", "trackio", "mlflow"], Option(help="Which tracker; TensorBoard's is RUN/tb.")
    ],
    project: Annotated[str, Option(help="Project, or experiment of mlflow.")] = "prorl",
    follow: Annotated[bool, Option("--follow/--once", help="Go on until the run ends.")] = True,
) -> None:
    """Send a run's numbers to a tracker, from its files: the trainer neither waits for it nor knows of it.

    Goes on where an earlier call ended. Where the tracker writes to is its own setting: WANDB_MODE=offline,
    MLFLOW_TRACKING_URI=http://….

    Examples: `prorl log nano --to wandb` · `prorl log nano --to mlflow --once`
    """
    from prorl.lab.loggers import log_run

    try:
        sent = log_run(run_folder(run), to, project=project, follow=follow, say=say)
    except KeyboardInterrupt:
        fail("interrupted; give the same command again to go on", INTERRUPTED)
    echo(f"{count(sent, 'step')} sent to {to}")
