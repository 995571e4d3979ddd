"""The study of the boundary: arms × seeds of the frontier recipe, each trained, then measured level by level.

An arm is the recipe with some changes, and as many problems and tries as the recipe's `evaluation` says are asked of
each. Runs are dealt to the cores, one process of one thread each. The study may be
interrupted at any time: the same command goes on with what is not finished, and what is finished is kept as a small
file. What each arm must show was written down before it ran: docs/results/frontier.md.

    python benchmarks/frontier.py --list
    python benchmarks/frontier.py --arms whole without_resets --seeds 0 1 2
    python benchmarks/frontier.py --table          # of the files alone, a row per arm
    python benchmarks/frontier.py --recipe frontier_long --by-level whole
    python benchmarks/frontier.py --recipe frontier_long --by-level whole --picture docs/pictures/levels.svg
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from common import markdown
from prorl.config.recipe import load_recipe
from prorl.envs.files import encode_json, write_atomic
from prorl.lab.evals.comparison import boundary, paired
from prorl.lab.evals.evaluation_store import BASE, model_file, models, read_evaluation
from prorl.machine import cores
from prorl.rollout.pipeline import grouped
from prorl.run.journal import read_journal

ARMS: dict[str, list[str]] = {
    "whole": [],
    "without_resets": ["reset.every=0", "reset.stalled_validations=0", "reset.kl_ceiling=null"],
    "without_kl": ["kl.coef=0", "reset.every=0", "reset.stalled_validations=0", "reset.kl_ceiling=null"],
    "without_clip_higher": ["clip.high=0.2"],
    "without_dynamic_sampling": ["dynamic_sampling.min_spread=0"],
    "without_adaptive_levels": ["tasks.operator_chain.adaptive=null"],
    "plain": [
        *("advantage.level=group", "dynamic_sampling.min_spread=0", "clip.high=0.2", "kl.coef=0"),
        *("reset.every=0", "reset.stalled_validations=0", "reset.kl_ceiling=null", "truncation.scale=1"),
    ],
    "without_reinforce_baseline": ["advantage.level=group"],
    "with_length_penalty": [
        *("length_penalty.weight=0.1", "length_penalty.on_steps=20", "length_penalty.off_steps=80"),
        "length_penalty.start_step=40",
    ],
    "few_rollouts": ["sampling.samples_per_prompt=8", "sampling.prompts_per_step=16"],
    "many_rollouts": ["sampling.samples_per_prompt=64", "sampling.prompts_per_step=2"],
    "rejection_fine_tuning": [
        *("advantage.level=none", "dynamic_sampling.min_spread=0", "kl.coef=0"),
        *("reset.every=0", "reset.stalled_validations=0", "reset.kl_ceiling=null"),
    ],
    "with_pass_at_4": ["advantage.pass_at_k=4"],
    "with_pass_at_2": ["advantage.pass_at_k=2"],
    "fifty_steps": ["steps=50"],
    "strong_kl": ["kl.coef=1.0e-2"],
    "far": [
        "tasks.operator_chain.adaptive=null",
        *(f"tasks.operator_chain.levels.{level}=1" for level in (10, 11, 12)),
    ],
    "four_updates": ["optimizer.updates_per_step=4"],
    "four_updates_without_clip_higher": ["optimizer.updates_per_step=4", "clip.high=0.2"],
}
"""Changes to the recipe; those of rollouts keep their number in a step."""
MAKE_BASE = """
import sys
from prorl import build
from prorl.config.recipe import load_recipe
build.base_model(build.settled(load_recipe(sys.argv[1], sys.argv[2:])), lambda *_: None)
"""
LEVELS = "levels"  # name of the evaluation
MASTERED = 0.5  # pass@1
COMPARED = (
    "mastered now",
    "sum of pass@1",
    "pass@1, %",
    "new",
    "lost",
    "new per CPU-hour",
    "rollouts, thousands",
)
THINNED = 10  # one step in so many is kept of a journal
RUNNING: set[int] = set()  # processes that train or measure


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="frontier")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["whole"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--tries", type=int, help="at each problem (default: the recipe's evaluation.samples)"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/frontier"), help="where runs are kept")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/results/frontier"), help="where results are kept"
    )
    parser.add_argument("--at-once", type=int, default=cores(), help="runs at a time (default: cores)")
    parser.add_argument("--list", action="store_true", help="say what is to be done and do nothing")
    parser.add_argument("--table", action="store_true", help="only print the table of what is finished")
    parser.add_argument(
        "--against", choices=ARMS, default="whole", help="the arm that others are compared with"
    )
    parser.add_argument(
        "--by-level", choices=ARMS, help="only print what an arm's finished runs did, by level"
    )
    parser.add_argument("--picture", type=Path, help="draw that to an SVG file")
    return parser.parse_args(argv)


def python(*words: object, spent: Path | None = None) -> None:
    """Run Python and add the CPU seconds of it and its children to a file, however it ended.

    Its last lines are told if it fails.
    """
    command = [sys.executable, *map(str, words)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        RUNNING.add(process.pid)
        _, status, used = os.wait4(process.pid, 0)
        RUNNING.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        if spent and spent.parent.is_dir():  # else nothing was begun
            with spent.open("a") as seconds:
                seconds.write(f"{used.ru_utime + used.ru_stime:.1f}\n")
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{' '.join(command)}\n{output.read()[-3000:].decode(errors='replace')}")


def deal(jobs: Sequence[Callable[[], None]], at_once: int) -> None:
    """Do the jobs; an interrupt begins no other, and lets those that run save and tell their CPU time."""
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for future in [pool.submit(job) for job in jobs]:
                future.result()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(RUNNING):
                os.kill(process, signal.SIGTERM)
            raise


def study(arguments: argparse.Namespace, arm: str, seed: int) -> None:
    """Train, measure and keep one run, from where it was left."""
    name = Path(arguments.recipe).stem
    kept, folder = arguments.out / f"{name}-{arm}-{seed}.json", arguments.runs / f"{name}-{arm}-{seed}"
    if kept.exists():
        return
    command = ["-m", "prorl", "resume", folder]
    if not (folder / "journal.jsonl").exists():
        recipe = [arguments.recipe, f"seed={seed}", "workers=1", "threads=1", *ARMS[arm]]
        nothing = [f"evaluation.{asked}=0" for asked in ("per_domain", "ood_per_domain", "per_level")]
        python("-c", MAKE_BASE, *recipe)  # not counted: it is that of all arms
        # measured once all are trained, so that CPU time is that of training and a seed's base is measured once
        command = ["-m", "prorl", "train", *recipe, *nothing, "--run", folder]
    python(*command, spent=folder / "cpu_seconds")
    base = model_file(folder / "evals" / LEVELS, BASE)
    siblings = arguments.runs.glob(f"{name}-*-{seed}/evals/{LEVELS}/{base.name}")
    if not base.exists() and (same := next(siblings, None)):  # one base for all arms of a seed
        base.parent.mkdir(parents=True, exist_ok=True)
        for path in (same, same.parent / "rules.json"):
            shutil.copy(path, base.parent / path.name)
    asked = load_recipe(arguments.recipe).evaluation
    sizes = ("--per-domain", asked.per_domain, "--ood", 0, "--per-level", asked.per_level)
    tries = arguments.tries or asked.samples
    python("-m", "prorl", "eval", folder, "--k", tries, *sizes, "--name", LEVELS)
    write_atomic(kept, encode_json(result(folder, arm, seed), indent=None))
    print(f"finished: {kept}", flush=True)


def result(folder: Path, arm: str, seed: int) -> dict[str, Any]:
    """What is kept of a run: counts per problem and a thinned journal."""
    base, trained = (read_evaluation(path, texts=False) for path in models(folder / "evals" / LEVELS)[:2])
    events = list(read_journal(folder / "journal.jsonl"))
    steps = [event for event in events if event["kind"] == "stepped"]
    return {
        "arm": arm,
        "seed": seed,
        "steps": steps[-1]["step"],
        "cpu_hours": round(sum(map(float, (folder / "cpu_seconds").read_text().split())) / 3600, 6),
        "rollouts": sum(step["rollout_stats"]["rollouts"] for step in steps),
        "samples": base.samples,
        "levels": [
            {
                "task": task,
                "level": level,
                "base": [move.base.solved for move in moves],
                "trained": [move.trained.solved for move in moves],
                "outcomes": dict(boundary(moves).outcomes),
            }
            for (task, level), moves in grouped(
                paired(base.problems, trained.problems), lambda move: (move.base.task, move.base.level)
            ).items()
        ],
        "validations": [[e["step"], e["score"], e["pass_at_n"]] for e in events if e["kind"] == "validated"],
        "raised": [[e["step"], e["task"], e["level"]] for e in events if e["kind"] == "level_raised"],
        "resets": [[e["step"], e["reason"]] for e in events if e["kind"] == "reference_reset"],
        "curve": [
            [step["step"], step["update"]["entropy"], step["update"]["kl"], step["rollout_stats"]["draws"]]
            for step in steps
            if step["step"] % THINNED == 0
        ],
    }


def summary(found: dict[str, Any]) -> dict[str, float]:
    """The figures of a run that are compared."""
    mastered, climbed, lost, new, problems = {"base": 0, "trained": 0}, 0.0, 0, 0, 0
    for level in found["levels"]:
        for side in mastered:
            rate = statistics.fmean(level[side]) / found["samples"]
            mastered[side] += rate >= MASTERED
            climbed += rate * (side == "trained")
        lost += level["outcomes"].get("lost", 0)
        new += level["outcomes"].get("new", 0)
        problems += len(level["base"])
    tries = found["samples"] * problems
    right = {side: sum(sum(level[side]) for level in found["levels"]) / tries * 100 for side in mastered}
    return {
        "levels mastered by the base": mastered["base"],
        "mastered now": mastered["trained"],
        "sum of pass@1": climbed,  # over levels: as the count, but not by a threshold
        "pass@1 of the base, %": right["base"],
        "pass@1, %": right["trained"],
        "new": new,
        "lost": lost,
        "problems": problems,
        "new per CPU-hour": new / found["cpu_hours"],
        "rollouts, thousands": found["rollouts"] / 1000,
    }


def against(results: Sequence[dict[str, Any]], reference: str) -> Iterator[list[str]]:
    """A row per other arm: its mean difference to the reference over their common seeds, as in `table`."""
    whole = {found["seed"]: summary(found) for found in results if found["arm"] == reference}
    others = [found for found in results if found["arm"] != reference and found["seed"] in whole]
    for arm in dict.fromkeys(found["arm"] for found in others):
        pairs = [(summary(found), whole[found["seed"]]) for found in others if found["arm"] == arm]
        cells = [arm, str(len(pairs))]
        for name in COMPARED:
            differences = [mine[name] - its[name] for mine, its in pairs]
            cells.append(f"{statistics.fmean(differences):+.1f}{spread(differences)}")
        yield cells


def table(results: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """A row per arm: means over seeds, with half the width of their 95 % interval by Student's t."""
    arms = dict.fromkeys(found["arm"] for found in results)
    for arm in arms:
        runs = [summary(found) for found in results if found["arm"] == arm]
        cells = [arm, str(len(runs))]
        for name in runs[0]:
            values = [run[name] for run in runs]
            cells.append(f"{statistics.fmean(values):.1f}{spread(values)}")
        yield cells


def by_level(results: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """A row per level: over all seeds the rates at the first try and with all tries, and each seed's pass@1."""
    for at, first in enumerate(results[0]["levels"]):
        levels = [found["levels"][at] for found in results]
        cells = [str(first["level"])]
        for side in ("base", "trained"):
            solved = [[count / found["samples"] for count in found["levels"][at][side]] for found in results]
            rates = [statistics.fmean(rates) for rates in solved]
            ever = statistics.fmean(rate > 0 for rates in solved for rate in rates)
            seeds = f" ({' '.join(f'{rate:.0%}' for rate in rates)})" if len(rates) > 1 else ""
            cells += [f"{statistics.fmean(rates):.0%}{seeds}", f"{ever:.0%}"]
        for outcome in ("new", "lost"):
            cells.append(str(sum(level["outcomes"].get(outcome, 0) for level in levels)))
        yield [*cells, str(sum(len(level["base"]) for level in levels))]


def picture(results: Sequence[dict[str, Any]], shown: int) -> str:
    """An SVG: pass@1 by level, base against trained, a dot for every seed; `shown`: the levels that the base saw."""
    levels = [level["level"] for level in results[0]["levels"]]
    drawn = max(level for found in results for _, _, level in found["raised"])
    step, left, top, height = 44, 52, 46, 230
    bottom, width = top + height, left + step * len(levels) + 12

    def x(level: float) -> float:
        return left + step * (level - levels[0] + 0.5)

    def y(share: float) -> float:
        return bottom - height * share

    def rates(side: str) -> list[list[float]]:
        return [
            [statistics.fmean(level[side]) / found["samples"] for level in found["levels"]]
            for found in results
        ]

    parts = []
    regions = [
        (levels[0], shown, "#e8e8e8", "shown to the base"),
        (shown + 1, drawn, "#dcebf7", "trained, never shown"),
        (drawn + 1, levels[-1], "#fbead7", "never drawn"),
    ]
    for first, last, colour, name in regions:
        at, wide = x(first - 0.5), step * (last - first + 1)
        parts.append(f'<rect x="{at}" y="{top}" width="{wide}" height="{height}" fill="{colour}"/>')
        parts.append(f'<text x="{at + 6}" y="{top - 8}">{name}</text>')
    for share in (0.0, 0.5, 1.0):
        parts.append(f'<path d="M{left} {y(share)}H{width - 12}" stroke="#999" stroke-width="0.6"/>')
        parts.append(f'<text x="{left - 8}" y="{y(share) + 4}" text-anchor="end">{share:.0%}</text>')
    for side, colour, name, where in (
        ("base", "#777777", "base", (1.0, 0.30)),
        ("trained", "#1f6fb2", "trained", (9.2, 0.62)),
    ):
        runs = rates(side)
        means = [statistics.fmean(values) for values in zip(*runs, strict=True)]
        line = "L".join(f"{x(level):.0f} {y(mean):.1f}" for level, mean in zip(levels, means, strict=True))
        parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [
            f'<circle cx="{x(level):.0f}" cy="{y(rate):.1f}" r="3.5" fill="{colour}" fill-opacity="0.55"/>'
            for run in runs
            for level, rate in zip(levels, run, strict=True)
        ]
        parts.append(
            f'<text x="{x(where[0]):.0f}" y="{y(where[1]):.0f}" fill="{colour}" font-weight="bold">{name}</text>'
        )
    parts += [
        f'<text x="{x(level):.0f}" y="{bottom + 16}" text-anchor="middle">{level}</text>' for level in levels
    ]
    parts.append(f'<text x="{left}" y="{bottom + 36}">level: how many operators follow one another</text>')
    parts.append(
        f'<text x="6" y="{top - 26}">right at the first try; a dot is a seed, the line their mean</text>'
    )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 46}" '
        f'font-family="sans-serif" font-size="13" fill="#222">\n'
        f'<rect width="{width}" height="{bottom + 46}" fill="white"/>\n{body}\n</svg>\n'
    )


def spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    quantile = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}.get(len(values), 2.0)
    return f" ± {quantile * statistics.stdev(values) / len(values) ** 0.5:.1f}"


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    planned = [(arm, seed) for seed in arguments.seeds for arm in arguments.arms]
    name = Path(arguments.recipe).stem
    if arguments.list:
        for arm, seed in planned:
            kept = (arguments.out / f"{name}-{arm}-{seed}.json").exists()
            print(f"{arm:28} seed {seed}  {'finished' if kept else 'to do':9} {' '.join(ARMS[arm])}")
        return
    if not (arguments.table or arguments.by_level):
        arguments.out.mkdir(parents=True, exist_ok=True)
        deal([partial(study, arguments, arm, seed) for arm, seed in planned], arguments.at_once)
    paths = sorted(arguments.out.glob(f"{name}-*.json"))
    results = [json.loads(path.read_bytes()) for path in paths]
    if arguments.by_level:
        mine = [found for found in results if found["arm"] == arguments.by_level]
        if mine and arguments.picture:
            ((_, shown),) = load_recipe(arguments.recipe).model.warmup.levels.items()
            arguments.picture.write_text(picture(mine, max(shown)))
        tries = f"in {mine[0]['samples']}" if mine else ""
        columns = [
            "level",
            "base at once",
            f"base {tries}",
            "trained at once",
            f"trained {tries}",
            "new",
            "lost",
        ]
        print(markdown([*columns, "problems"], list(by_level(mine)) if mine else []))
    elif results:
        columns = ["arm", "seeds", *summary(results[0])]
        print(markdown(columns, list(table(results))))
        differences = list(against(results, arguments.against))
        print(f"\nless those of {arguments.against}\n\n{markdown(['arm', 'seeds', *COMPARED], differences)}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("stopped, runs are saved: the same command goes on")
