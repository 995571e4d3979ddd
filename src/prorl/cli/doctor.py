"""`prorl doctor`: what this machine can do for a run, and what each missing piece costs."""

from __future__ import annotations

import typer
from rich.console import Console as RichConsole
from rich.table import Table

from prorl.cli.outcome import FAILED, fail


def doctor() -> None:
    """Probe this machine: how safely it can run the programs that models write."""
    from prorl.sandbox.probe import probe

    report = probe()
    table = Table("piece", "", "found", "what its lack costs", title="sandbox", title_justify="left")
    for finding in report.findings:
        table.add_row(finding.name, "ok" if finding.works else "missing", finding.detail, finding.cost)
    RichConsole(highlight=False).print(table)
    if report.tier is None:
        fail("programs of models cannot be run safely here; docs/sandbox.md says how to change that", FAILED)
    typer.echo(f"programs of models run at tier {report.tier} (docs/sandbox.md)")
