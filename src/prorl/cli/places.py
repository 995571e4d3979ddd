"""How commands are told about a run: a directory, or a name below runs/; RUN@STEP for one of its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prorl.errors import ProrlError
from prorl.run.layout import run_folder

RunFolder = Annotated[Path, typer.Argument(help="A run directory, or its name below runs/.")]


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
