"""`prorl creativity`: how much of what models write is not in a corpus, base and checkpoints side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prorl.cli.outcome import finish
from prorl.envs.errors import ProrlError
from prorl.run.layout import EVALS, JOURNAL, run_folder

if TYPE_CHECKING:
    from rich.table import Table

    from prorl.lab.evals.corpus import Corpus
    from prorl.lab.evals.creativity import Creativity, Estimate
    from prorl.lab.evals.evaluation_store import Study

EXAMPLES = (
    "Examples: `prorl creativity nano` · `prorl creativity nano --corpus books/ --corpus wiki.jsonl` · "
    "`prorl creativity a.parquet b.parquet --corpus pages.parquet`"
)
RESULT = "creativity.json"
PREFERRED = ("study", "measurement")  # the studies of a run, the more thorough one first


def creativity(
    studies: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|STUDY...", help="A run, or study files (.parquet) of one or more models."
        ),
    ],
    corpus: Annotated[
        list[Path] | None,
        typer.Option(
            help="What to compare with: .txt, .jsonl (field text), .parquet (column text), or a folder of these; "
            "may be repeated. Default: what the run's tiny base was warmed up on."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Which study of the run.")] = None,
    shortest: Annotated[int, typer.Option(help="Shortest word sequence that counts as taken.")] = 5,
    longest: Annotated[int, typer.Option(help="Longest one.")] = 12,
) -> None:
    """Compute the creativity index of kept responses: how much of them cannot be pieced together from a corpus."""

    def work() -> None:
        from prorl.lab.evals.creativity import Lengths, compare_creativity, write_creativity
        from prorl.lab.evals.evaluation_store import read_study
        from prorl.lab.watch.console import Console

        lengths, console = Lengths(shortest=shortest, longest=longest), Console()
        paths = _study_files(studies, name)
        read = _in_order(map(read_study, paths))
        reference = _corpus(corpus, paths[0])
        with console.counting("corpus:") as advance:
            found = compare_creativity(read, reference, lengths=lengths, advance=advance)
        for part in dict.fromkeys(row.part for row in found.rows):
            console.rich.print(_table(found, part))
        for line in _notes(found):
            console.say(line)
        target = paths[0].parent / RESULT
        write_creativity(target, found)
        console.say(f"stored in {target}")

    finish(work)


def _study_files(given: Sequence[Path], name: str | None) -> list[Path]:
    """The files given, or those of a study of the run given."""
    run = run_folder(given[0])
    if not run.is_dir():
        for path in given:
            if not path.is_file():
                raise ProrlError(f"there is no run and no study file {path}; check the name")
        return list(given)
    if len(given) > 1:
        raise ProrlError("give one run, or files of studies")
    stored = sorted({path.parent.name for path in (run / EVALS).glob("*/*.parquet")})
    chosen = name or next((known for known in (*PREFERRED, *stored) if known in stored), None)
    if chosen not in stored:
        has = f"it has {', '.join(stored)}" if stored else "measure it first, with `prorl eval`"
        raise ProrlError(f"{run} has no study{f' {name}' if name else ''}: {has}")
    return sorted((run / EVALS / chosen).glob("*.parquet"))


def _in_order(studies: Iterable[Study]) -> list[Study]:
    """The base first, then checkpoints by step, then models from elsewhere."""
    return sorted(studies, key=lambda study: (study.model != "base", study.step is None, study.step or 0))


def _corpus(given: Sequence[Path] | None, study: Path) -> Corpus:
    """The corpus that the user names, or what the base of the run around a study's file was warmed up on."""
    from prorl.config.recipe import check
    from prorl.data import warmup_texts
    from prorl.lab.evals.corpus import corpus_of_files, corpus_of_texts
    from prorl.run.store import RunStore

    if given:
        return corpus_of_files(given)
    run = next((folder for folder in study.absolute().parents if (folder / JOURNAL).is_file()), None)
    if run is None:
        raise ProrlError(f"{study} lies in no run, so there is no default corpus: name one with --corpus")
    return corpus_of_texts(
        "the warm-up of its base", warmup_texts(check(RunStore.open(run).config, str(run)))
    )


def _table(found: Creativity, part: str) -> Table:
    """A row per domain; per model its index, and from the second one on the gain over the first."""
    from rich.table import Table

    from prorl.lab.evals.statistics import MEAN

    lengths = found.lengths
    title = f"creativity index ({lengths.shortest} to {lengths.longest} words), {part} problems"
    table = Table("domain", title=title, title_justify="left")
    for position, responses in enumerate(found.models):
        table.add_column(f"{responses.model} [95 % interval]", justify="right")
        if position:
            table.add_column("gain [95 % interval]", justify="right")
    rows = [row for row in found.rows if row.part == part]
    for domain in dict.fromkeys(row.domain for row in rows):
        of_model = {row.model: row for row in rows if row.domain == domain}
        cells: list[str] = []
        for position, responses in enumerate(found.models):
            row = of_model.get(responses.model)
            cells.append(_cell(row.index if row else None, sign=""))
            if position:
                cells.append(_cell(row.gain if row else None, sign="+"))
        table.add_row(domain, *cells, style="bold" if domain == MEAN else None)
    return table


def _cell(estimate: Estimate | None, *, sign: str) -> str:
    if estimate is None:
        return ""
    return f"{estimate.mean:{sign}.2f} [{estimate.low:{sign}.2f}, {estimate.high:{sign}.2f}]"


def _notes(found: Creativity) -> Iterator[str]:
    """What the numbers rest on."""
    yield f"corpus: {found.corpus}, {found.corpus_words:,} words, documents: {found.corpus_documents:,}"
    shortest = found.lengths.shortest
    for responses in found.models:
        yield (
            f"{responses.model}: {responses.counted} responses of {responses.words:.1f} words on average, left out "
            f"{responses.short} of fewer than {shortest}; if the corpus held them all, the index would be "
            f"{responses.floor:.2f}"
        )
