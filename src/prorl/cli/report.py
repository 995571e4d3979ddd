"""`prorl report`: runs as one page to open in a browser, and its figures as pictures."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console as RichConsole

from prorl.cli.outcome import finish, say
from prorl.run.layout import run_folder

EXAMPLES = (
    "Examples: `prorl report nano` · `prorl report seed1 seed2 seed3 --out seeds.html` · "
    "`prorl report nano --figures pictures --format png`"
)


class Format(StrEnum):
    """File formats of pictures."""

    PNG = "png"
    SVG = "svg"


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or their names below runs/.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The file; default: report.html in the run's directory, or here for several runs."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write every figure as a picture into this folder, too.")
    ] = None,
    format: Annotated[Format, typer.Option(help="Of the pictures.")] = Format.SVG,
) -> None:
    """Write what there is to know about runs as one HTML file that fetches nothing; several are overlaid."""

    def work() -> None:
        from prorl.lab.report.pictures import export_figures
        from prorl.lab.report.sections import figures as figures_of
        from prorl.lab.report.sections import write_report

        folders = list(dict.fromkeys(map(run_folder, runs)))
        with RichConsole(stderr=True).status("report") as status:
            path, parts = write_report(folders, out, progress=lambda what: status.update(f"report: {what}"))
            typer.echo(path)
            if figures is not None:
                status.update("report: drawing pictures")
                found = export_figures(figures_of(parts), figures, format.value)
                typer.echo(f"{len(found)} pictures in {figures}")

    finish(work)


def report_at_the_end(folder: Path) -> None:
    """Write the report of a run that has just ended. What a report is about must not fail for want of one."""
    from prorl.lab.report.sections import write_report

    try:
        path, _ = write_report([folder])
    except Exception as error:
        say(f"the report could not be written ({error}); the run is whole, try `prorl report {folder}`")
    else:
        typer.echo(f"report: {path}")
