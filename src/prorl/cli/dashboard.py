"""`prorl dashboard`: the runs of a folder in a browser, live."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from prorl.cli.outcome import finish
from prorl.run.layout import RUNS

EXAMPLES = "Examples: `prorl dashboard` · `prorl dashboard /mnt/cluster/runs --read-only`"


def dashboard(
    runs: Annotated[Path, typer.Argument(help="The folder that holds the runs, or one run.")] = RUNS,
    host: Annotated[
        str, typer.Option(help="Where to listen; the default is reached from this machine only.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: 8787, or the next one that is free.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Take no orders from anybody.")] = False,
) -> None:
    """Show runs live in a browser: curves, rollouts, health; and take orders from whoever has the printed token."""

    def work() -> None:
        from prorl.lab.dashboard.app import serve

        with suppress(KeyboardInterrupt):  # this is how it is meant to end
            serve(runs, host=host, port=port, read_only=read_only)

    finish(work)
