"""The measurement around a run: the model it starts from and the one it ends with, on the same held-out problems.

It is a study like any other, called `measurement`. `test` problems are seen by nothing in the run; `ood` problems are
larger sizes and families never trained.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from prorl.envs.errors import ProrlError
from prorl.lab.evals.evaluation import Subject
from prorl.lab.evals.evaluation_store import (
    BASE,
    MEASUREMENT,
    differing,
    held,
    model_file,
    read_study,
    step_name,
)
from prorl.lab.measurement.work import Work, asked_by, put
from prorl.lab.results import Pair, gain_tables, rate_tables
from prorl.lab.tables import print_tables
from prorl.lab.watch.console import Console
from prorl.run.layout import EVALS
from prorl.run.store import RunStore
from prorl.stopwatch import Pulse, unheard


def measure_base(store: RunStore, work: Work, console: Console, pulse: Pulse) -> None:
    """Measure the model a run starts from, once: a run that is begun again after a kill has it already."""
    folder = _folder(store.folder)
    if model_file(folder, BASE).exists():
        return
    asked = asked_by(work.config, work.tasks)
    if asked.questions:
        with held(folder, asked.rules):
            put(asked, Subject(model=BASE, step=0), folder, work.tasks, work.parts, console, pulse)


def conclude(store: RunStore, step: int, work: Work, console: Console, pulse: Pulse = unheard) -> None:
    """Compare the policy of `step` with the base, and say where everything is.

    The training is done whatever becomes of its measurement, so one that fails is said and fails nothing.
    """
    try:
        _compare_with_base(store, step, work, console, pulse)
    except ProrlError as error:
        console.say(
            f"training is done, but step {step} was not compared with its base: {error}; "
            f"`prorl eval {store.folder} --name other` compares them in a study of its own"
        )
    console.say(f"run directory: {store.folder} (journal.jsonl, samples/, evals/, tb/, checkpoints/)")


def _compare_with_base(store: RunStore, step: int, work: Work, console: Console, pulse: Pulse) -> None:
    """Measure the policy of `step`, keep the results, and print them beside those of the base if it has any."""
    folder = _folder(store.folder)
    asked = asked_by(work.config, work.tasks)
    if not asked.questions:
        return
    base = read_study(model_file(folder, BASE)) if model_file(folder, BASE).exists() else None
    with held(folder, asked.rules):
        subject = Subject(model=step_name(step), step=step)
        trained = put(asked, subject, folder, work.tasks, work.parts, console, pulse)
    ks = (1, asked.rules.samples) if asked.rules.samples > 1 else (1,)
    if base is None:
        print_tables(rate_tables(trained, ks), console.rich)
    else:
        print_tables(gain_tables(Pair(evaluation=MEASUREMENT, base=base, trained=trained), ks), console.rich)


def forget_other_questions(folder: Path, work: Work) -> None:
    """Drop a branch's copy of its parent's measurement where its own recipe asks otherwise."""
    if list(differing(_folder(folder), asked_by(work.config, work.tasks).rules)):
        shutil.rmtree(_folder(folder))


def _folder(run: Path) -> Path:
    return run / EVALS / MEASUREMENT
