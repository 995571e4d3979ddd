"""Setting aside what a run's files say of steps that it gave up: it moves to `discarded/` and is lost to nobody.

Once a run has gone back, no file under its own name tells of a training that the journal does not tell of.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from prorl.envs.files import StorageError
from prorl.run import sealed
from prorl.run.layout import CHECKPOINTS, DISCARDED, EVALS, LOCK, REFERENCES
from prorl.run.lock import hold_lock

_MEASURED = re.compile(r"step_(\d+)\.(?:parquet|parts)")


def discard_sealed(folder: Path, position: int, report: Callable[[str], None]) -> None:
    """Set aside the checkpoints and references that are damaged, or later than this position in the journal."""
    for kind in (CHECKPOINTS, REFERENCES):
        for path in sorted((folder / kind).glob("[!.]*")):
            if not sealed.sealed_by(path, position):
                _discard(path, folder / DISCARDED / kind, report)


def discard_measured(folder: Path, step: int, report: Callable[[str], None]) -> None:
    """Set aside what studies measured, or began to measure, of checkpoints later than `step`.

    A study that somebody measures at this moment is left whole, and said.
    """
    for study in sorted((folder / EVALS).glob("[!.]*")):
        later = [path for path in sorted(study.glob("step_*")) if _step_measured(path) > step]
        if not later:
            continue
        try:
            with hold_lock(study / LOCK, used="measured"):
                for path in later:
                    _discard(path, folder / DISCARDED / EVALS / study.name, report)
        except StorageError as error:
            names = ", ".join(path.name for path in later)
            report(f"{error}, and delete {names}: the run gave up the training that this is of")


def _step_measured(path: Path) -> int:
    found = _MEASURED.fullmatch(path.name)
    return int(found[1]) if found else 0


def _discard(path: Path, into: Path, report: Callable[[str], None]) -> None:
    into.mkdir(parents=True, exist_ok=True)
    target = into / path.name
    if target.is_dir():
        shutil.rmtree(target)
    path.replace(target)
    report(f"{path} is not part of what the run continues from; moved to {target}")
