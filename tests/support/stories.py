"""Run directories written by hand: a recipe, a journal, evaluations; read by whatever only reads files."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prorl.config.recipe import load_recipe, to_json
from prorl.control.events import Event, Started, Stopped
from prorl.lab.evals.evaluation_store import Evaluation, write_evaluation
from prorl.lab.evals.problems import ProblemResult
from prorl.run.history import RunHistory, read_history
from support import evaluations
from support.events import evaluated, reset, stepped
from support.journals import run_with

STARTED = Started(config_hash="c0ffee", reference_hash="abc")


def recipe(**settings: Any) -> dict[str, Any]:
    """The resolved nano recipe with other top-level settings."""
    return to_json(load_recipe("nano")) | settings


def history(steps: int = 4) -> tuple[Event, ...]:
    """A run that was validated at both ends and reset its reference once."""
    return (
        STARTED,
        evaluated(0, 0.25),
        *(stepped(step) for step in range(1, steps)),
        reset(steps - 1),
        stepped(steps),
        evaluated(steps, 0.5),
        Stopped(step=steps, reason="done"),
    )


def story(events: Iterable[Event] = (), *, name: str = "nano", **settings: Any) -> RunHistory:
    """A run read from files that are gone again."""
    with TemporaryDirectory() as place:
        return read_history(write_run(Path(place) / name, events, **settings))


def write_run(folder: Path, events: Iterable[Event] | None = None, /, **settings: Any) -> Path:
    return run_with(folder, history() if events is None else events, **recipe(**settings))


def result(index: int, solved: int, *, samples: int = 4, **changes: Any) -> ProblemResult:
    plausible = {"task": "countdown", "prompt": "make 24", "length": 20.0}
    return evaluations.result(solved, samples, index=index, **plausible | changes)


def evaluation(problems: Iterable[ProblemResult], *, step: int | None = 4, samples: int = 4) -> Evaluation:
    model = "base" if step is None else f"step_{step:06d}"
    return Evaluation(model=model, step=step, samples=samples, seconds=1.0, problems=tuple(problems))


def keep(folder: Path, *stored: Evaluation, name: str = "measurement") -> None:
    """Store evaluations of a run's models where its readers look for them."""
    place = folder / "evals" / name
    place.mkdir(parents=True, exist_ok=True)
    for one in stored:
        write_evaluation(place / f"{one.model}.parquet", one)
