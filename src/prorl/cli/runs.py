"""The commands that look at runs and models: `eval`, `creativity`, `compare`, `report`, `dashboard`, `export`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console as RichConsole
from typer import Argument, Option, echo

from prorl.cli.outcome import (
    INTERRUPTED,
    Address,
    AsJson,
    Backend,
    Overrides,
    changes_to,
    fail,
    run_at,
    say,
    show,
)
from prorl.envs.errors import ProrlError
from prorl.run.layout import JOURNAL, RUNS, run_folder

if TYPE_CHECKING:
    from prorl.lab.evals.creativity import Corpus

DIGITS = 9  # of a k at most; Python refuses to read a number of thousands of them
INDEX = "creativity.json"
PREFERRED = ("evaluation", "measurement")  # the evaluations of a run, the more thorough one first

Runs = Annotated[list[Path], Argument(help="Run directories, or names below runs/.")]
Problems = Annotated[int | None, Option(min=0, help="So many problems per domain; default: the recipe's.")]


def evaluate(
    subject: Annotated[str, Argument(metavar="RUN[@STEP]|MODEL", help="A run's checkpoint, or a model.")],
    overrides: Overrides = None,
    against: Annotated[str | None, Option(help="A checkpoint or model; default: the run's base.")] = None,
    recipe: Annotated[str | None, Option(help="Whose problems are asked; default: the run's own.")] = None,
    k: Annotated[str, Option(help="A list 1,4,16, or the largest of the powers of two.")] = "256",
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

    Examples: `prorl eval nano` · `prorl eval nano@160 --json` · `prorl eval nano --k 16 --per-domain 50` ·
    `prorl eval path/to/model --recipe nano --against other/model` · `prorl eval big --backend local`
    """
    ks = read_ks(k)
    options = {"per_domain": per_domain, "ood_per_domain": ood, "per_level": per_level}
    options |= {"samples": samples or ks[-1]}
    settings = [f"evaluation.{key}={value}" for key, value in options.items() if value is not None]
    try:
        # takes seconds, in which there may be a Ctrl-C as well
        from prorl.lab.measurement import evaluate as measure
        from prorl.lab.watch.console import Console

        tables = measure(
            subject,
            against=against,
            recipe=recipe,
            settings=[*settings, *changes_to(overrides, backend, address)],
            ks=ks,
            name=name,
            out=out,
            console=Console(RichConsole(stderr=as_json, highlight=False, soft_wrap=True)),
        )
    except KeyboardInterrupt:
        fail(
            "interrupted; what was measured is kept: give the same command again to go on "
            "(with the step, RUN@STEP, if the run trains on meanwhile)",
            INTERRUPTED,
        )
    show(tables, as_json)


def read_ks(text: str) -> tuple[int, ...]:
    """`1,4,16` as it stands, or `16` as the powers of two up to it.

    Raises:
        ProrlError: not numbers from 1 up to MOST, in ascending order.
    """
    from prorl.config.fields import MOST
    from prorl.lab.evals.statistics import powers_up_to

    parts = [part.strip() for part in text.split(",")]
    ks = tuple(int(part) for part in parts if part.isdecimal() and len(part) <= DIGITS)
    if len(ks) < len(parts) or list(ks) != sorted(set(ks)) or ks[0] < 1 or ks[-1] > MOST:
        raise ProrlError(
            f"--k {text[:20]}: say one number, or several in ascending order, as in --k 1,4,16, and none above {MOST}"
        )
    return ks if len(ks) > 1 else powers_up_to(ks[0])


def creativity(
    evaluations: Annotated[list[Path], Argument(metavar="RUN|FILE...", help="A run, or evaluation files.")],
    corpus: Annotated[
        list[Path] | None,
        Option(
            help="What to compare with: .txt, .jsonl (field text), .parquet (column text), or a folder of these; "
            "may be repeated. Default: what the run's tiny base was warmed up on."
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
    from prorl.lab.evals.creativity import Lengths, compare_creativity, write_creativity
    from prorl.lab.evals.evaluation_store import read_evaluation
    from prorl.lab.results import creativity_tables
    from prorl.lab.watch.console import Console

    lengths = Lengths(shortest=shortest, longest=longest)
    console = Console(RichConsole(stderr=as_json, highlight=False, soft_wrap=True))
    paths = _evaluation_files(evaluations, name)
    read = sorted(  # the base first, then checkpoints by step, then models from elsewhere
        map(read_evaluation, paths), key=lambda one: (one.model != "base", one.step is None, one.step or 0)
    )
    reference = _corpus(corpus, paths[0])
    with console.counting("corpus:") as advance:
        found = compare_creativity(read, reference, lengths=lengths, advance=advance)
    show(creativity_tables(found), as_json)
    target = paths[0].parent / INDEX
    write_creativity(target, found)
    console.say(f"stored in {target}")


def _evaluation_files(given: Sequence[Path], name: str | None) -> Sequence[Path]:
    """The files given, or those of an evaluation of the run given."""
    from prorl.lab.evals.evaluation_store import evaluations

    run = run_folder(given[0])
    if not run.is_dir():
        missing = next((path for path in given if not path.is_file()), None)
        if missing is not None:
            raise ProrlError(f"there is no run and no evaluation file {missing}; check the name")
        return given
    if len(given) > 1:
        raise ProrlError("give one run, or files of evaluations")
    stored = dict(evaluations(run))
    chosen = name or next((known for known in (*PREFERRED, *stored) if known in stored), "")
    if chosen not in stored:
        has = f"it has {', '.join(stored)}" if stored else "make one first, with `prorl eval`"
        raise ProrlError(f"{run} has no evaluation{f' {name}' if name else ''}: {has}")
    return stored[chosen]


def _corpus(given: Sequence[Path] | None, evaluation: Path) -> Corpus:
    """The corpus that the user names, or what the base of the run around an evaluation was warmed up on."""
    from prorl.config.recipe import check
    from prorl.data import warmup_texts
    from prorl.lab.evals.creativity import Corpus, corpus_of_files
    from prorl.run.store import RunStore

    if given:
        return corpus_of_files(given)
    run = next((folder for folder in evaluation.absolute().parents if (folder / JOURNAL).is_file()), None)
    if run is None:
        raise ProrlError(
            f"{evaluation} lies in no run, so there is no default corpus: name one with --corpus"
        )
    texts = warmup_texts(check(RunStore.open(run).config, str(run)))
    return Corpus(name="the warm-up of its base", documents=lambda: texts)


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
            raise ProrlError(f"{one.folder} has only {one.step} steps: give --step {one.step} or less")
    found = [
        [gain for pair in newest_pairs(folder, up_to=step) for gain in gains(pair)] for folder in folders
    ]
    show(comparison(histories, found), as_json, aligned=True)


def report(
    runs: Runs,
    out: Annotated[Path | None, Option(help="Default: report.html in the run, or here for several.")] = None,
    figures: Annotated[Path | None, Option(help="Write every figure into this folder, too.")] = None,
    format: Annotated[Literal["png", "svg"], Option(help="Of the figures.")] = "svg",
    as_json: AsJson = False,
) -> None:
    """Write what there is to know about runs as one HTML file that fetches nothing; several are overlaid.

    With --json the tables of the page are printed, and no file is written.

    Examples: `prorl report nano` · `prorl report seed1 seed2 seed3 --out seeds.html` ·
    `prorl report nano --figures pictures --format png` · `prorl report nano --json`
    """
    from prorl.lab.report.page import export_figures
    from prorl.lab.report.sections import figures as figures_of
    from prorl.lab.report.sections import sections, tables, write_report
    from prorl.run.history import read_history

    folders = list(dict.fromkeys(map(run_folder, runs)))
    with RichConsole(stderr=True).status("report") as status:
        if as_json:
            if out is not None or figures is not None:
                raise ProrlError("--json writes no file: leave out --out and --figures, or --json")
            show(tables(sections([read_history(folder) for folder in folders])), as_json)
            return
        path, parts = write_report(folders, out)
        echo(path)
        if figures is not None:
            status.update("drawing pictures")
            found = export_figures(figures_of(parts), figures, format)
            echo(f"{len(found)} pictures in {figures}")


def report_at_the_end(folder: Path) -> None:
    """Write the report of a run that has just ended. The run does not fail if its report does."""
    from prorl.lab.report.sections import write_report

    try:
        path, _ = write_report([folder])
    except Exception as error:
        say(f"the report could not be written ({error}); the run is complete, try `prorl report {folder}`")
    else:
        echo(f"report: {path}")


def dashboard(
    runs: Annotated[Path, Argument(help="The folder that holds the runs, or one run.")] = RUNS,
    host: Annotated[str, Option(help="The default is reached from this machine only.")] = "127.0.0.1",
    port: Annotated[int | None, Option(min=0, max=65535, help="Default: 8787, or the next free one.")] = None,
    read_only: Annotated[bool, Option("--read-only", help="Take no commands from anybody.")] = False,
) -> None:
    """Show runs live in a browser: curves, rollouts, health; and take commands from whoever has the printed token.

    Examples: `prorl dashboard` · `prorl dashboard /mnt/cluster/runs --read-only`
    """
    from prorl.lab.dashboard.app import serve

    with suppress(KeyboardInterrupt):  # this is how it is meant to end
        serve(runs, host=host, port=port, read_only=read_only)


def export(
    run: Annotated[str, Argument(metavar="RUN[@STEP]", help="Without @STEP: its newest whole checkpoint.")],
    target: Annotated[Path, Argument(metavar="DIR", help="The new folder.")],
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None, Option(help="Of the weights; default: as stored.")
    ] = None,
) -> None:
    """Write a checkpoint for transformers, vLLM and the hub: weights, tokenizer, sampling settings, model card.

    The run may be training meanwhile.

    Examples: `prorl export nano model/` · `prorl export nano@300 model/ --dtype bfloat16`
    """
    from prorl.lab.export import export as write

    folder, wanted = run_at(run)
    step = write(folder, target, step=wanted, dtype=dtype, say=say)
    echo(f"step {step} of {folder} is exported to {target}: see {target / 'README.md'}")
