"""A boundary study: a checkpoint or a model against its base, on the same questions, many responses each.

It takes no run's lock, so a run can be studied while it trains; what it writes lies below the run's `evals/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from prorl import compose, machine
from prorl.config.recipe import RecipeError, changed, check, load_recipe
from prorl.config.schema import RunConfig
from prorl.envs.errors import ProrlError
from prorl.envs.files import StorageError
from prorl.envs.mixture import Mixture
from prorl.lab.evals.evaluation_store import (
    Study,
    check_name,
    held,
    model_file,
    models,
    read_study,
    slug,
    step_of,
)
from prorl.lab.measurement.sources import Source, as_other, base_of, find
from prorl.lab.measurement.work import Asked, asked_by, build_tasks, put
from prorl.lab.results import Pair, evaluation_tables, rate_tables
from prorl.lab.tables import Table
from prorl.lab.watch.console import Console
from prorl.run.layout import EVALS, holder


def study(
    model: str,
    *,
    against: str | None,
    recipe: str | None,
    settings: Sequence[str],
    ks: Sequence[int],
    name: str,
    out: Path | None,
    runs: Path,
    console: Console,
) -> list[Table]:
    """Measure `model` and what it is compared with as far as that is not stored yet; returns what it says.

    `settings` are changes to the recipe, which is the run's own unless one is named. A model from elsewhere has no
    base unless `against` names one.

    Raises:
        ProrlError: with one sentence that says what to do.
    """
    check_name(name)
    source = find(model, runs, console)
    config = _config(source, model, recipe, settings)
    if ks[-1] > config.evaluation.samples:
        raise RecipeError(
            f"pass@{ks[-1]} needs as many responses per problem, not {config.evaluation.samples}: raise --samples, "
            "or lower --k"
        )
    _require_free_gpus(source, config)
    tasks = build_tasks(config, console)
    asked = asked_by(config, tasks)
    if not asked.questions:
        raise RecipeError("this asks nothing: say --per-domain, --ood or --ladder-per-level above 0")
    folder = _shelf(source, out) / name
    with held(folder, asked.rules):
        base = _base(source, against, runs, console)
        after = _taken(source, asked, folder, tasks, config, console)  # first: its trainer may delete it soon
        before = None if base is None else _taken(base, asked, folder, tasks, config, console)
    if before is None:
        tables = rate_tables(after, ks)
    else:
        pair = Pair(evaluation=name, base=before, trained=after)
        tables = evaluation_tables(pair, between(folder, before, after), ks)
    console.say(f"kept in {folder}: {', '.join(path.name for path in models(folder))}")
    if source.run is not None:
        console.say(f"to see it in pictures: prorl report {source.run.folder}")
    return tables


def between(folder: Path, base: Study, trained: Study) -> Study | None:
    """Of the checkpoints in a study that lie on the way from `base` to `trained`, the one nearest to half of it.

    None as well where there is no such way, as from a model from elsewhere.
    """
    start, end = base.step, trained.step
    if start is None or end is None:
        return None
    steps = {step: path for path in models(folder) if (step := step_of(path)) and start < step < end}
    return read_study(steps[min(steps, key=lambda step: abs(2 * step - start - end))]) if steps else None


def _config(source: Source, name: str, recipe: str | None, settings: Sequence[str]) -> RunConfig:
    if recipe is not None:
        return machine.settled(load_recipe(recipe, settings))
    if source.run is None:
        raise ProrlError(f"{name} is no run; for a model, say whose problems it is asked: --recipe NAME")
    return machine.settled(changed(check(source.run.config, str(source.run.folder)), {}, settings))


def _require_free_gpus(source: Source, config: RunConfig) -> None:
    """A Ray of the study's own would count the GPUs of this machine as free, whoever uses them."""
    own = config.backend == "ray" and config.cluster.address is None and config.device == "cuda"
    if own and source.run is not None and holder(source.run.folder) is not None:
        raise ProrlError(
            f"{source.run.folder} is being trained, and the study would take its GPUs: wait until it has ended, or "
            "name another cluster with --address"
        )


def _shelf(source: Source, out: Path | None) -> Path:
    if out is not None:
        return out
    return source.run.folder / EVALS if source.run is not None else Path(EVALS) / slug(source.subject.model)


def _base(source: Source, against: str | None, runs: Path, console: Console) -> Source | None:
    if against is not None:
        base = find(against, runs, console)
        same = base.run is not None and source.run is not None and base.run.folder == source.run.folder
        return base if same else as_other(base, against)
    if source.run is None or source.subject.step == 0:
        return None
    return base_of(source.run)


def _taken(
    source: Source, asked: Asked, folder: Path, tasks: Mixture, config: RunConfig, console: Console
) -> Study:
    """The stored results of this very model, or new ones."""
    path = model_file(folder, source.subject.model)
    if path.exists() and source.subject.is_of(stored := read_study(path)):
        console.say(f"{source.subject.model} was measured before")
        return stored
    if source.run is not None and not Path(source.model).exists():
        raise StorageError(
            f"{source.model} was deleted meanwhile, as its trainer keeps the newest checkpoints (save.keep_last): "
            "give the same command again for one that is still there"
        )
    parts = compose.build_parts(config, source.model, tokenizer=source.tokenizer, with_reference=False)
    with closing(parts.backend):
        parts.backend.sync(0)
        return put(asked, source.subject, folder, tasks, parts, console)
