"""Where the models of a study come from: a checkpoint of a run, the base of a run, or a model from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from prorl.envs.errors import ProrlError
from prorl.envs.files import StorageError
from prorl.lab.evals.evaluation import Subject
from prorl.lab.evals.evaluation_store import BASE, outsider, step_name
from prorl.lab.measurement.work import newest
from prorl.lab.watch.console import Console
from prorl.run.checkpoint import has_all_files, verify
from prorl.run.layout import CHECKPOINTS, JOURNAL, REFERENCES, TOKENIZER
from prorl.run.store import FIRST_REFERENCE, RunStore

WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model and where it can be loaded from."""

    subject: Subject
    model: str | Path
    tokenizer: Path | None = None  # where it does not lie beside the model
    run: RunStore | None = None


def find(name: str, runs: Path, console: Console) -> Source:
    """RUN, RUN@STEP (the run by directory or by its name below `runs`), or else a model directory or hub id.

    Reads a run's files only, so its trainer may be at work.

    Raises:
        ProrlError: the step is no number.
        StorageError: the run has no such checkpoint, or it is damaged.
    """
    folder, at, step = name.partition("@")
    place = next((path for path in (Path(folder), runs / folder) if (path / JOURNAL).exists()), None)
    if place is None:
        return Source(subject=Subject(model=outsider(name)), model=name)
    if at and not step.isdecimal():
        raise ProrlError(f"{name}: say RUN@STEP, with the number of a step")
    store = RunStore.open(place, report=console.say)
    checkpoint = store.checkpoint(int(step)) if at else newest(store)
    if checkpoint.step == 0:
        return base_of(store)
    return _held(store, checkpoint.path, step_name(checkpoint.step), checkpoint.step)


def base_of(store: RunStore) -> Source:
    """The model that a run started from: its checkpoint of step 0, or its first reference, which is the same weights.

    Raises:
        StorageError: both are gone.
    """
    for path in (store.checkpoint_folder(0), store.folder / REFERENCES / FIRST_REFERENCE):
        if has_all_files(path):
            return _held(store, path, BASE, 0)
    raise StorageError(
        f"the base of {store.folder} is gone ({CHECKPOINTS}/step_000000 and {REFERENCES}/{FIRST_REFERENCE}): "
        "say what to compare with, --against MODEL"
    )


def as_other(source: Source, name: str) -> Source:
    """The model as one from elsewhere, as which it stands in the study of another run."""
    return replace(source, subject=Subject(model=outsider(name), weights=source.subject.weights))


def _held(store: RunStore, path: Path, model: str, step: int) -> Source:
    weights = verify(path).files.get(WEIGHTS, {}).get("sha256", "")
    return Source(
        subject=Subject(model=model, step=step, weights=weights),
        model=path,
        tokenizer=store.folder / TOKENIZER,
        run=store,
    )
