"""`prorl export`: a run's checkpoint as a transformers directory with a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from prorl.cli.outcome import finish, say
from prorl.cli.places import run_at

EXAMPLES = "Examples: `prorl export nano model/` · `prorl export nano@300 model/ --dtype bfloat16`"


def export(
    run: Annotated[
        str, typer.Argument(metavar="RUN[@STEP]", help="A run; without @STEP its newest whole checkpoint.")
    ],
    target: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder.")],
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None, typer.Option(help="Of the weights; default: as stored.")
    ] = None,
) -> None:
    """Write a checkpoint for transformers, vLLM and the hub: weights, tokenizer, sampling settings, model card.

    The run may be training meanwhile.
    """

    def work() -> None:
        from prorl.lab.export.checkpoint import export as write

        folder, wanted = run_at(run)
        step = write(folder, target, step=wanted, dtype=dtype, say=say)
        typer.echo(f"step {step} of {folder} is exported to {target}: see {target / 'README.md'}")

    finish(work)
