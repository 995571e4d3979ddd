"""How commands are told about a run, its checkpoints, and where to compute.

A run is a directory, or a name below runs/; RUN@STEP is one of its checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from prorl.envs.errors import ProrlError
from prorl.run.layout import run_folder

RunFolder = Annotated[Path, typer.Argument(help="A run directory, or its name below runs/.")]
Backend = Annotated[
    str | None, typer.Option(help="Where it is computed, local or ray; the same as backend=….")
]
Address = Annotated[
    str | None, typer.Option(help="A running Ray cluster, or auto; the same as cluster.address=….")
]


def changes_to(overrides: Sequence[str] | None, backend: str | None, address: str | None) -> list[str]:
    """All changes to a recipe, the options among them."""
    options = {"backend": backend, "cluster.address": address}
    return [*(overrides or ()), *(f"{key}={value}" for key, value in options.items() if value is not None)]


def run_at(origin: str) -> tuple[Path, int | None]:
    """The run directory and the step of `RUN@STEP`; no step where only RUN is said.

    Raises:
        ProrlError: what follows the @ is no number.
    """
    name, at, step = origin.rpartition("@")
    if not at:
        return run_folder(Path(step)), None
    if not step.isdecimal():
        raise ProrlError(f"{origin}: say RUN@STEP, with the number of a step")
    return run_folder(Path(name)), int(step)
