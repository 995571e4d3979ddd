"""What the benchmarks of whole steps share: a recipe's parts, one step as the loop makes it, tables and JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from prorl import build
from prorl.algo.dynamic_sampling import wave_size
from prorl.config.recipe import load_recipe
from prorl.config.schema import RunConfig
from prorl.control.events import Stepped
from prorl.control.state import RunState, evolve
from prorl.envs.mixture import KEPT, Mixture
from prorl.envs.seeds import derive
from prorl.lab.watch.console import Console
from prorl.learn.linear import linear
from prorl.learn.parallel import Held
from prorl.rollout.batch import collect, make_batch
from prorl.rollout.pipeline import wait_silently
from prorl.stopwatch import Stopwatch
from prorl.types import HParams

SIZE = 768  # of the square matrices whose product is timed
NO_REFERENCE = ("kl.coef=0", "reset.every=0", "reset.stalled_validations=0", "reset.kl_ceiling=null")


class Stepper:
    """Makes steps with the parts of a run, as `prorl.loop` does, but keeps no journal and no checkpoints."""

    def __init__(self, parts: build.Session, tasks: Mixture, seed: int) -> None:
        self._parts = parts
        self._tasks = tasks
        self._seed = derive(seed, "rollout")
        self._state = RunState()
        parts.backend.sync(0)

    def step(self, hparams: HParams) -> Stepped:
        """One whole step: draw, generate, judge, filter, learn, sync. Its `seconds` cover all of it."""
        state, backend = self._state, self._parts.backend
        share, clock = state.informative_share, Stopwatch()
        problem_at = partial(self._tasks.problem, split="train", weights=hparams.mixture)
        rollout_batch = collect(
            self._parts.sampler(wait_silently),
            problem_at,
            hparams,
            cursor=state.cursor,
            expected_share=share,
            seed=self._seed,
            clock=clock,
        )
        batch = make_batch(rollout_batch.groups, hparams)
        following = rollout_batch.cursor
        with clock.phase("learn"):
            finish_update = backend.learner.begin_update(batch, hparams)
            wave = wave_size(hparams.prompts_per_step, share, hparams.wave_margin)
            for problem in map(problem_at, range(following, following + min(wave, KEPT))):
                self._parts.renderer.encode(problem.prompt, problem.history)
            update = finish_update()
        with clock.phase("sync"):
            backend.sync(state.version + 1)
        event = Stepped(
            step=state.step + 1,
            cursor=rollout_batch.cursor,
            version=state.version + 1,
            rollout_stats=rollout_batch.rollout_stats,
            update=update,
            learning_rate=hparams.learning_rate,
            length_weight=hparams.length_weight,
            kl_coef=hparams.kl_coef,
            seconds=clock.seconds(),
        )
        self._state = evolve(state, event)
        return event


def product_rate(_held: Held | None, seconds: float) -> Iterator[tuple[float, float]]:
    """Multiplications and additions per second of large matrix products, the best of all that fit the time.

    By torch's own product and by prorl's. It is here because workers import it by name, which they cannot from the
    script that is run.
    """
    left, right, best = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE), [0.0, 0.0]
    end = time.perf_counter() + seconds
    with torch.no_grad():
        while time.perf_counter() < end:
            for place, multiply in enumerate((F.linear, linear)):
                begin = time.perf_counter()
                multiply(left, right)
                best[place] = max(best[place], 2 * SIZE**3 / (time.perf_counter() - begin))
    yield best[0], best[1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every benchmark of whole steps has."""
    parser.add_argument("--recipe", default="nano", help="recipe that says model and tasks (default nano)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: one per core)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured to FILE too")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="changes to the recipe")


def load_config(arguments: argparse.Namespace, *overrides: str) -> RunConfig:
    """The recipe on the CPU with the benchmark's own changes and then the user's, which win."""
    threads = f"threads={arguments.threads}"
    return build.settled(
        load_recipe(arguments.recipe, ["device=cpu", threads, *overrides, *arguments.overrides])
    )


def make_base(config: RunConfig) -> str:
    """Where the recipe's base model lies; it is warmed up, visibly, if it is not cached."""
    with Console().progress("warming up the base (cached for the next time)") as progress:
        return build.base_model(config, progress)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column to the left, numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_json(path: Path | None, config: RunConfig, results: Mapping[str, Any]) -> None:
    """Results with what is needed to judge them, if a file was asked for."""
    if path is not None:
        record = {"machine": _machine(), "recipe": config.model_dump(mode="json"), **results}
        path.write_text(json.dumps(record, indent=1) + "\n")


def _machine() -> dict[str, Any]:
    return {
        "cpu": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg(),
        "spin_count": os.environ.get("GOMP_SPINCOUNT", ""),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers")},
    }
