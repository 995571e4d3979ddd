"""prorl from Python: load a recipe, train it, evaluate it, read runs as Arrow tables. What `import prorl` offers."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pyarrow
from pyarrow import parquet

from prorl.config.recipe import changed, load_recipe
from prorl.config.schema import RunConfig
from prorl.control.decide import TOLD_TO_STOP
from prorl.control.state import RunState
from prorl.envs.errors import ProrlError
from prorl.envs.files import storable
from prorl.lab.tables import Table
from prorl.lab.watch.console import Console
from prorl.run.history import read_events, read_history
from prorl.run.layout import EVALS, RUNS, run_folder, samples
from prorl.run.process import Interrupt
from prorl.run.store import RunStore
from prorl.run.supervise import NO_MEMORY

__all__ = ["ProrlError", "RunView", "evaluate", "load_recipe", "open_run", "resume", "train"]


@dataclass(frozen=True, slots=True)
class RunView:
    """A run by its files, read anew at each look, while it trains or after. Tables are Arrow's: `.to_pandas()`."""

    folder: Path

    @property
    def config(self) -> RunConfig:
        """The resolved recipe, every default written out; ProrlError where it cannot be read."""
        return RunStore.open(self.folder).config

    @property
    def health(self) -> str:
        """How it is doing, in words: running, stopped, done, crashed …"""
        return read_history(self.folder).health

    @property
    def steps(self) -> pyarrow.Table:
        """A row per step: `step` and a column per number, as `rollout_stats.score`, `update.kl`, `seconds.total`."""
        found = read_history(self.folder).steps
        return pyarrow.table({"step": list(found.steps), **dict(sorted(found.values.items()))})

    @property
    def events(self) -> pyarrow.Table:
        """A row per event of the journal that is no step: `step`, `kind`, and all it says as JSON."""
        rows = [
            {"step": getattr(event, "step", 0), "kind": str(event.kind), "event": json.dumps(asdict(event))}
            for event in read_events(self.folder)
            if event.kind != "stepped"
        ]
        return pyarrow.Table.from_pylist(rows)

    @property
    def evaluations(self) -> pyarrow.Table:
        """A row per problem, model and evaluation: `evaluation`, `model`, `task`, `level`, `samples`, `solved`, …"""
        tables = []
        for path in sorted((self.folder / EVALS).glob("*/*.parquet")):
            table = parquet.read_table(path).replace_schema_metadata()
            for name, value in (("model", path.stem), ("evaluation", path.parent.name)):
                table = table.add_column(0, name, pyarrow.array([value] * len(table)))
            tables.append(table)
        return pyarrow.concat_tables(tables, promote_options="default") if tables else pyarrow.table({})

    @property
    def rollouts(self) -> pyarrow.Table:
        """A row per rollout that was kept to be read: `step`, `task`, `prompt`, `response`, `score`, …"""
        rows = []
        for step, path in samples(self.folder).items():
            for line in path.read_bytes().splitlines():
                said = json.loads(line).items()
                texts = {name: storable(value) for name, value in said if isinstance(value, str)}
                rows.append({"step": step, **dict(said), **texts})
        return pyarrow.Table.from_pylist(rows)


def open_run(run: str | Path) -> RunView:
    """A run by its directory, or its name below runs/. Raises StorageError: there is no run."""
    folder = run_folder(Path(run))
    read_history(folder)
    return RunView(folder)


def train(recipe: str | Path | RunConfig, *overrides: str, run: str | Path | None = None) -> RunView:
    """Train a recipe from its beginning, in this process and without a supervisor; shows progress.

    Args:
        recipe: by name or file, or resolved; with overrides as on the command line (`"optimizer.lr=1e-4"`).
        run: the run directory; default: runs/ and the recipe's name.

    Raises:
        ProrlError: it cannot begin, or stopped before its end, in one sentence. Ctrl-C saves and returns.
    """
    from prorl.session import start_run

    config = (
        changed(recipe, {}, overrides)
        if isinstance(recipe, RunConfig)
        else load_recipe(str(recipe), overrides)
    )
    folder = Path(run) if run is not None else RUNS / config.name
    return _trained(folder, partial(start_run, config, folder))


def resume(run: str | Path, *overrides: str) -> RunView:
    """Go on with a run from its newest good checkpoint, as `train` does."""
    from prorl.session import resume_run

    folder = run_folder(Path(run))
    return _trained(folder, partial(resume_run, folder, overrides=overrides))


def evaluate(
    subject: str | Path,
    *overrides: str,
    k: int | Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
    against: str | None = None,
    recipe: str | None = None,
    name: str = "evaluation",
) -> list[Table]:
    """Evaluate RUN, RUN@STEP or a model, as `prorl eval` does: the tables that it prints, `prorl.lab.tables.to_json`.

    Overrides are of the recipe (`"evaluation.per_domain=50"`); the results of each problem are in
    `open_run(run).evaluations` afterwards. Raises ProrlError: in one sentence that says what to do.
    """
    from prorl.lab.measurement import evaluate as measure

    ks = sorted({k} if isinstance(k, int) else set(k))
    if not ks or ks[0] < 1:
        raise ProrlError(f"k: say at least one number from 1 up, not {ks}")
    settings = [f"evaluation.samples={ks[-1]}", "evaluation.per_level=20", *overrides]
    return measure(
        str(subject),
        against=against,
        recipe=recipe,
        settings=settings,
        ks=ks,
        name=name,
        out=None,
        console=Console(),
    )


def _trained(folder: Path, trainer: Callable[[Console, Interrupt], RunState]) -> RunView:
    console = Console()
    interrupt = Interrupt(console.say)
    stopped = trainer(console, interrupt).stopped
    if interrupt.status == NO_MEMORY:
        raise ProrlError("stopped, saved, before memory ran out: free some, then go on by `prorl.resume`")
    if stopped not in ("done", "interrupted", TOLD_TO_STOP):
        raise ProrlError(f"the run stopped: {stopped}")
    return RunView(folder)
