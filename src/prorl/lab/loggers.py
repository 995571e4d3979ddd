"""A run's numbers in somebody else's tracker: wandb, trackio or mlflow, read from the journal and not by the trainer.

The trainer knows nothing of it: a tracker that is slow, down or broken costs no step. What was logged is remembered
in the run directory, so that logging can stop and go on at any time, while the run trains or after.
"""

import json
import math
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from prorl.config.recipe import flat
from prorl.envs.errors import ProrlError
from prorl.envs.files import encode_json, write_atomic
from prorl.run.history import RunHistory, read_history
from prorl.run.layout import hold_lock

Tracker = Literal["wandb", "trackio", "mlflow"]

LOGGED, SAID = "logged.json", "log.txt"  # of a run directory: tracker → last step; what a logger says
POLL_SECONDS = 5.0
GRACE = 120.0  # seconds in which a supervisor has started a crashed trainer again
RETRY = 60.0  # seconds until a tracker that could not be reached is tried again
LAST_SECONDS = 20.0  # that a logger has at the end of the trainer that started it

_REFUSED = re.compile(r"[^\w\-. :/]")  # by mlflow in names, as in a domain `c++`

Log = Callable[..., object]
"""Takes the numbers of a step, as `log(numbers, step=…)`; steps never fall."""


def _wandb(history: RunHistory, project: str, module: Any) -> tuple[Log, Callable[[], object]]:
    """How to log to wandb, or to trackio, which has the same interface; and how to end."""
    told = {"id": tracker_id(history), "name": history.name}
    if module.__name__ == "trackio":  # which knows runs by their names alone
        told = {"name": f"{told['name']}-{told['id']}"}
    run = module.init(project=project, config=dict(history.config), resume="allow", **told)
    return run.log, run.finish


def _mlflow(history: RunHistory, project: str, module: Any) -> tuple[Log, Callable[[], object]]:
    """How to log to mlflow, and how to end; a run that is logged on is found again by its tag."""
    tag = tracker_id(history)
    module.set_experiment(project)
    found = module.search_runs(filter_string=f"tags.prorl = '{tag}'", output_format="list")
    module.start_run(run_id=found[0].info.run_id if found else None, run_name=history.name)
    try:
        module.set_tag("prorl", tag)
        if not found:
            module.log_params(dict(flat(history.config)))
    except Exception:
        module.end_run()  # or there would be no second try
        raise

    def log(numbers: Mapping[str, float], step: int) -> None:
        module.log_metrics({_REFUSED.sub("_", name): value for name, value in numbers.items()}, step=step)

    return log, module.end_run


TRACKERS = {"wandb": _wandb, "trackio": _wandb, "mlflow": _mlflow}


def log_run(
    folder: Path, tracker: Tracker, *, project: str, follow: bool, say: Callable[[str], None] = lambda _: None
) -> int:
    """Send what a tracker has not been sent yet; with `follow`, until the run ends. Returns how many steps it was.

    A roll back writes steps anew that were logged before: the first telling stays, as trackers take no step back.
    So the newest step waits until it is validated or followed by another, or the run is done.
    Raises ProrlError: the tracker is not installed, or cannot be reached, which is tried again where a run that goes
    on is followed; what was sent is remembered; StorageError: there is no run, or it is being logged already.
    """
    sent, history = 0, read_history(folder)
    require_tracker(tracker)
    with hold_lock(folder / f"{tracker}.lock", used="logged"):
        while True:
            try:
                for _ in _sending(history, tracker, project=project, follow=follow, say=say):
                    sent += 1
                return sent
            except (OSError, ProrlError) as error:
                history.refresh()
                if not follow or history.stopped is not None:
                    raise
                say(f"{error}; trying again in {RETRY:.0f} s")
                time.sleep(RETRY)


def _sending(
    history: RunHistory, tracker: Tracker, *, project: str, follow: bool, say: Callable[[str], None]
) -> Iterator[int]:
    """Send all that is new; yields each step that was sent."""
    folder, log = history.folder, None
    last, alive = _logged(history).get(tracker, -1), time.monotonic()
    try:
        while True:
            before, now = last, time.monotonic()
            kept = now
            alive = alive if history.health == "crashed" else now  # a supervisor may start it again
            over = history.stopped is not None or now - alive > GRACE
            newest, validated = history.step, set(history.validations.steps)
            for step, numbers in rows(history, after=last):
                if step == newest and step not in validated and history.stopped != "done":
                    break  # its validation may still come, and trackers take no step back
                if log is None:
                    log, end = TRACKERS[tracker](history, project, _module(tracker))
                log(numbers, step=step)
                last = step
                if time.monotonic() - kept > POLL_SECONDS:  # who is killed sends little twice
                    _remember(history, {tracker: last})
                    kept = time.monotonic()
                yield step
            if last > before:
                _remember(history, {tracker: last})
                say(f"{tracker} has {folder.name} up to step {last}")
            if not follow or over:
                return
            time.sleep(POLL_SECONDS)
            history.refresh()
    except (OSError, ProrlError):
        raise
    except Exception as error:  # each tracker has its own
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        place = f" after step {last}" if last >= 0 else ""
        raise ProrlError(f"{tracker} failed{place}: {reason}; the next try goes on from there") from error
    finally:
        if log is not None:
            failing = sys.exc_info()[0] is not None
            try:
                _remember(history, {tracker: last})
            finally:
                # An outage is told once, and waited for.
                with suppress(Exception) if failing else nullcontext():
                    end()


def _remember(history: RunHistory, told: dict[str, Any]) -> dict[str, Any]:
    said = _logged(history) | {"run": run_id(history)} | told
    write_atomic(history.folder / LOGGED, encode_json(said))
    return said


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


def tracker_id(history: RunHistory) -> str:
    """What trackers know a run by: another one begun in its place later, or elsewhere, has another."""
    said = _logged(history)
    if "id" not in said:
        said = _remember(history, {"id": run_id(history) if said else secrets.token_hex(6)})
    return str(said["id"])


def run_id(history: RunHistory) -> str:
    """The same for a run directory whenever it is logged, and another for every other place."""
    return blake2b(str(history.folder.resolve()).encode(), digest_size=6).hexdigest()


def _logged(history: RunHistory) -> dict[str, Any]:
    """Tracker → last step, and `id`; nothing of a run that was moved or copied, as trackers know it by its place."""
    try:
        said = dict(json.loads((history.folder / LOGGED).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}
    return said if said.get("run") == run_id(history) else {}


def require_tracker(tracker: Tracker | None) -> None:
    """Raises ProrlError: it is not installed."""
    if tracker is not None:
        _module(tracker)


def _module(tracker: Tracker) -> Any:
    try:
        return import_module(tracker)
    except ImportError:
        raise ProrlError(f"{tracker} is not installed: pip install {tracker}") from None
