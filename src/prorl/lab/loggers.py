"""A run's numbers in somebody else's tracker: wandb, trackio or mlflow, read from the journal and not by the trainer.

The trainer knows nothing of it: a tracker that is slow, down or broken costs no step. What was logged is remembered
in the run directory, so that logging can stop and go on at any time, while the run trains or after.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from prorl.config.recipe import flat
from prorl.envs.errors import ProrlError
from prorl.envs.files import encode_json, write_atomic
from prorl.run.history import RunHistory, read_history

Tracker = Literal["wandb", "trackio", "mlflow"]

LOGGED, SAID = "logged.json", "log.txt"  # of a run directory: tracker → last step; what a logger says
POLL_SECONDS = 5.0
OVER = ("done", "stopped", "crashed")  # first words of the health of a run that adds nothing
LAST_SECONDS = 20.0  # that a logger has at the end of the trainer that started it

Log = Callable[..., object]
"""Takes the numbers of a step, as `log(numbers, step=…)`; steps never fall."""


def _wandb(history: RunHistory, project: str, module: Any) -> tuple[Log, Callable[[], object]]:
    """How to log to wandb, or to trackio, which has the same interface; and how to end."""
    settings = {"id": run_id(history)} if module.__name__ == "wandb" else {}
    run = module.init(
        project=project, name=history.name, config=dict(history.config), resume="allow", **settings
    )
    return run.log, run.finish


def _mlflow(history: RunHistory, project: str, module: Any) -> tuple[Log, Callable[[], object]]:
    """How to log to mlflow, and how to end; a run that is logged on is found again by its tag."""
    tag = run_id(history)
    module.set_experiment(project)
    found = module.search_runs(filter_string=f"tags.prorl = '{tag}'", output_format="list")
    module.start_run(run_id=found[0].info.run_id if found else None, run_name=history.name)
    module.set_tag("prorl", tag)
    if not found:
        module.log_params(dict(flat(history.config)))
    return module.log_metrics, module.end_run


TRACKERS = {"wandb": _wandb, "trackio": _wandb, "mlflow": _mlflow}


def log_run(
    folder: Path, tracker: Tracker, *, project: str, follow: bool, say: Callable[[str], None] = lambda _: None
) -> int:
    """Send what a tracker has not been sent yet; with `follow`, until the run ends. Returns how many steps it was.

    A roll back writes steps anew that were logged before: the first telling stays, as trackers take no step back.
    So the newest step waits until it is validated or followed by another, or the run is done.
    Raises ProrlError: the tracker is not installed, or cannot be reached; what was sent is remembered; StorageError:
    there is no run.
    """
    history, sent = read_history(folder), 0
    log: Log | None = None
    last = _logged(folder).get(tracker, -1)
    try:
        while True:
            before, over = last, history.stopped is not None or history.health.startswith(OVER)
            for step, numbers in rows(history, after=last):
                validated = history.stopped == "done" or step in history.validations.steps
                if step == history.step and not validated:
                    break  # its validation may still come, and trackers take no step back
                if log is None:
                    log, end = TRACKERS[tracker](history, project, _module(tracker))
                log(numbers, step=step)
                last, sent = step, sent + 1
            if last > before:
                _remember(folder, tracker, last)
                say(f"{tracker} has {folder.name} up to step {last}")
            if not follow or over:
                return sent
            time.sleep(POLL_SECONDS)
            history.refresh()
    except (OSError, ProrlError):
        raise
    except Exception as error:  # each tracker has its own
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        place = f" after step {last}" if last >= 0 else ""
        raise ProrlError(f"{tracker} failed{place}: {reason}; give the command again to go on") from error
    finally:
        if log is not None:
            try:
                _remember(folder, tracker, last)
            finally:
                end()


def _remember(folder: Path, tracker: Tracker, last: int) -> None:
    write_atomic(folder / LOGGED, encode_json(_logged(folder) | {tracker: last}))


@contextmanager
def logging(folder: Path, tracker: Tracker | None) -> Iterator[None]:
    """A process of its own that logs a run while inside; what it says is in `log.txt` of the run directory.

    It is ended some seconds after the block at the latest: what it did not send, `prorl log` sends later.
    """
    if tracker is None:
        yield
        return
    command = [sys.executable, "-m", "prorl", "log", str(folder), "--to", tracker]
    with (folder / SAID).open("ab") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        yield
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LAST_SECONDS)
        process.kill()
        process.wait()


def rows(history: RunHistory, *, after: int) -> Iterator[tuple[int, dict[str, float]]]:
    """The numbers of every step and validation after a step, as `update/kl`, in order."""
    merged: dict[int, dict[str, float]] = {}
    for prefix, columns in (("", history.steps), ("validation/", history.validations)):
        for place, step in enumerate(columns.steps):
            for name, values in columns.values.items() if step > after else ():
                if math.isfinite(values[place]):
                    merged.setdefault(step, {})[prefix + name.replace(".", "/")] = values[place]
    yield from sorted(merged.items())


def run_id(history: RunHistory) -> str:
    """The same for a run directory whenever it is logged, and another for every other one."""
    return blake2b(str(history.folder.resolve()).encode(), digest_size=6).hexdigest()


def _logged(folder: Path) -> dict[str, int]:
    try:
        return dict(json.loads((folder / LOGGED).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def require_tracker(tracker: Tracker | None) -> None:
    """Raises ProrlError: it is not installed."""
    if tracker is not None:
        _module(tracker)


def _module(tracker: Tracker) -> Any:
    try:
        return import_module(tracker)
    except ImportError:
        raise ProrlError(f"{tracker} is not installed: pip install {tracker}") from None
