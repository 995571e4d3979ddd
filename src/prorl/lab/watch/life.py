"""Signs of life of a trainer: its heartbeat, where its threads are when asked, and what it died of."""

from __future__ import annotations

import faulthandler
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from prorl.envs.errors import ProrlError
from prorl.run.heartbeat import Deadlines, Heart
from prorl.run.layout import HEARTBEAT, LOG, STACKS
from prorl.run.supervise import AT_ONCE, WHERE


@contextmanager
def alive(folder: Path, deadlines: Deadlines, *, step: int = 0) -> Iterator[Heart]:
    """Beat in a run directory while inside; a bug that ends it is written to the supervisor's log."""
    heart = Heart(folder / HEARTBEAT, deadlines, step=step)
    try:
        with _stacks(folder / STACKS):
            yield heart
    except ProrlError:
        raise
    except Exception:
        with suppress(OSError), (folder / LOG).open("a") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {traceback.format_exc()}")
        raise
    finally:
        heart.close()


@contextmanager
def _stacks(path: Path) -> Iterator[None]:
    """Write all stacks to a file when asked by signal, and on a fault of the interpreter itself."""
    try:
        with path.open("w") as file, _dumping(file):
            yield
    finally:
        if path.exists() and not path.stat().st_size:
            path.unlink()


@contextmanager
def _dumping(file: TextIO) -> Iterator[None]:
    faulthandler.register(WHERE, file=file, all_threads=True)
    faulthandler.register(AT_ONCE, file=file, all_threads=True, chain=True)  # and then dies of it
    ours = not faulthandler.is_enabled()
    if ours:
        faulthandler.enable(file)
    try:
        yield
    finally:
        faulthandler.unregister(WHERE)
        faulthandler.unregister(AT_ONCE)
        if ours:
            faulthandler.disable()
