"""Step time of the 1.5B recipe against GPUs, by simulation: prints the tables of docs/scaling.md, draws its figure.

Nothing is measured here. `cluster_model.py` computes a step from assumptions; this script reads the recipe, averages
steps over seeds, compares placements, and says how much each assumption matters.

    python benchmarks/simulate.py --figure docs/scaling.svg
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from cluster_model import Assumptions, Setup, Work, colocated, separate, simulate
from common import markdown
from prorl.cluster.capacity import Size
from prorl.cluster.estimate import model_size
from prorl.config.recipe import load_recipe
from prorl.control.plan import hparams_at, make_plan

GPUS = (1, 8, 16, 32, 64)
SPLITS = (0.125, 0.25, 0.375, 0.5)  # shares of the GPUs that learn, tried where placement is separate
COMPILED = 0.43  # `learn_share`: 1.23 times the default, as measured on an H200 (docs/results/gpu.md)
SETTLED = 4  # steps after which as much is in hand as ever
PHASES = ("decode", "tail", "judge", "learn", "sync", "switch", "rest")
COLOURS = ("#4477aa", "#ee6677", "#ccbb44", "#228833", "#66ccee", "#aa3377", "#bbbbbb")
RANGES: dict[str, tuple[float, float]] = {
    "bandwidth_share": (0.4, 0.75),
    "iteration": (2e-3, 8e-3),
    "rows": (128, 512),
    "learn_share": (0.2, 0.45),
    "network": (20e9, 45e9),
    "informative": (0.3, 0.6),
    "median_length": (2000.0, 5000.0),
    "length_sigma": (0.5, 1.0),
    "sibling_correlation": (0.0, 0.8),
    "code_seconds": (0.3, 5.0),
    "switch": (1.0, 15.0),
    "sync": (0.5, 10.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A recipe's step and its model."""

    size: Size
    work: Work
    steps: int
    seeds: int

    def mean(self, setup: Setup, assumptions: Assumptions) -> dict[str, float]:
        """Seconds by phase, waves and total, averaged over the seeds."""
        if self.work.partial:  # once as much is in hand as ever
            steps = [*islice(simulate(setup, self.work, assumptions, seed=0), SETTLED, SETTLED + self.seeds)]
        else:
            steps = [next(simulate(setup, self.work, assumptions, seed=seed)) for seed in range(self.seeds)]
        names = [*PHASES, "hidden", "waves", "tokens", "age", "total"]
        return {name: fmean(float(getattr(step, name)) for step in steps) for name in names}

    def colocated(self, gpus: int, assumptions: Assumptions) -> dict[str, float]:
        """As `mean`, every GPU sampling and learning in turn."""
        return self.mean(colocated(self.size, self.work, gpus, assumptions), assumptions)

    def separate(self, gpus: int, assumptions: Assumptions, *, overlap: bool) -> tuple[int, dict[str, float]]:
        """The number of learner ranks that is fastest, and its means."""
        tried = {
            ranks: self.mean(
                separate(self.size, self.work, gpus, ranks, assumptions, overlap=overlap), assumptions
            )
            for ranks in sorted({max(1, round(gpus * share)) for share in SPLITS})
        }
        return min(tried.items(), key=lambda item: item[1]["total"])


def make_case(recipe: str, seeds: int) -> Case:
    """The first step of a recipe."""
    config = load_recipe(recipe)
    plan = make_plan(config)
    hparams = hparams_at(plan, 0)
    size = model_size(config)
    if size is None:
        raise SystemExit(f"{recipe}: give model.shape and model.parameters")
    work = Work(
        prompts=hparams.prompts_per_step,
        samples=hparams.samples_per_prompt,
        limit=hparams.response_limit,
        updates=hparams.updates_per_step,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        max_draw_factor=hparams.max_draw_factor,
        validation_every=config.validation.every,
        margin=hparams.wave_margin,
    )
    return Case(size=size, work=work, steps=config.steps, seeds=seeds)


def by_phase(case: Case) -> tuple[str, dict[int, dict[str, float]]]:
    """Colocated placement, the recipe's own: seconds by phase."""
    found = {gpus: case.colocated(gpus, Assumptions()) for gpus in GPUS}
    rows = [
        [
            str(gpus),
            *(f"{mean[phase]:,.0f}" for phase in ("decode", "tail", "learn")),
            f"{mean['judge'] + mean['sync'] + mean['switch'] + mean['rest']:,.0f}",
            f"**{mean['total']:,.0f}**",
            f"{mean['waves']:.1f}",
            f"{mean['total'] * case.steps / 86_400:,.0f}",
            f"{mean['total'] * case.steps * gpus / 3600:,.0f}",
        ]
        for gpus, mean in found.items()
    ]
    header = ["GPUs", "decode", "tail", "learn", "other", "s/step", "waves", "days", "GPU-hours"]
    return markdown(header, rows), found


def by_placement(case: Case, found: dict[int, dict[str, float]]) -> str:
    """Colocated against separate, without and with overlap; and what both are without larger waves."""
    plain = replace(case, work=replace(case.work, margin=0.0))
    rows = []
    for gpus in GPUS[1:]:
        ranks, apart = case.separate(gpus, Assumptions(), overlap=False)
        ranks_overlapped, overlapped = case.separate(gpus, Assumptions(), overlap=True)
        falling_short = plain.colocated(gpus, Assumptions())
        _, neither = plain.separate(gpus, Assumptions(), overlap=False)
        rows.append(
            [
                str(gpus),
                f"{found[gpus]['total']:,.0f}",
                f"{apart['total']:,.0f} ({ranks})",
                f"{overlapped['total']:,.0f} ({ranks_overlapped})",
                f"{falling_short['total']:,.0f}",
                f"{neither['total']:,.0f}",
            ]
        )
    header = [
        "GPUs",
        "colocated",
        "separate",
        "separate, overlap",
        "colocated, plain waves",
        "separate, plain",
    ]
    return markdown(header, rows)


def by_part(case: Case, numbers: Sequence[int]) -> str:
    """What each part of the design brings, one after the other, colocated."""
    small = {"logits_elements": 2**24, "entropy_passes": 4}
    ways: dict[str, tuple[float, dict[str, Any]]] = {
        "rows at full length; 2^24 logits, entropy in all passes": (0.0, {"by_cache": False, **small}),
        "rows as the cache holds them": (0.0, small),
        "and entropy only where there is a gradient": (0.0, {"logits_elements": 2**24}),
        "and 2^27 logits: the tables above": (0.0, {}),
        "and entropy estimated, `learner.fused_head`": (0.0, {"entropy_passes": 0}),
        "and layers and log-probs compiled, `learner.compile`": (0.0, {"learn_share": COMPILED}),
        "and engines share a queue": (0.0, {"shared_queue": True}),
    }
    ways |= {
        f"the tables above, `sampling.partial: {partial:g}`": (partial, {})
        for partial in (0.25, 0.5, 1.0, 2.0)
    }
    rows = []
    for name, (partial, changed) in ways.items():
        found = [
            replace(case, work=replace(case.work, partial=partial)).colocated(
                gpus, replace(Assumptions(), **changed)
            )
            for gpus in numbers
        ]
        cells = [
            f"{mean['decode']:,.0f} + {mean['tail']:,.0f} + {mean['learn']:,.0f}, **{mean['total']:,.0f}**"
            for mean in found
        ]
        rows.append([name, *cells, f"{found[0]['age']:.1f}"])
    header = [f"{gpus} GPUs: decode + tail + learn, step" for gpus in numbers]
    return markdown(["", *header, "steps old"], rows)


def sensitivity(case: Case, gpus: int) -> str:
    """What the two ends of each range do to a colocated step, largest swing first."""
    middle = case.colocated(gpus, Assumptions())["total"]
    swings = []
    for name, ends in RANGES.items():
        low, high = (
            case.colocated(gpus, replace(Assumptions(), **{name: type(getattr(Assumptions(), name))(end)}))[
                "total"
            ]
            for end in ends
        )
        swings.append((abs(high - low), name, ends, low, high))
    rows = [
        [
            f"`{name}`",
            f"{ends[0]:g} … {ends[1]:g}",
            f"{low:,.0f}",
            f"{high:,.0f}",
            f"{low / middle - 1:+.0%} … {high / middle - 1:+.0%}",
        ]
        for _, name, ends, low, high in sorted(swings, reverse=True)
    ]
    return markdown(["assumption", "range", "s/step, low end", "high end", f"to {middle:,.0f} s"], rows)


def published(case: Case) -> str:
    """Steps that NVIDIA timed, beside what the model says of them."""
    known = [
        ("v1, 8k, 256 prompts, 32 GPUs", 32, 256, 8192, 16_000 * 3600 / 32 / 2450),
        ("v2 continued, 16k, 512 prompts, 64 GPUs", 64, 512, 16_384, 56.3 * 3600 / 225),
    ]
    rows = []
    for name, gpus, prompts, limit, seconds in known:
        work = replace(case.work, prompts=prompts, limit=limit, margin=0.0)  # as such systems draw
        mean = replace(case, work=work).colocated(gpus, Assumptions())
        rows.append([name, f"{seconds:,.0f}", f"{mean['total']:,.0f}", f"{seconds / mean['total']:.1f}×"])
    return markdown(["run", "published s/step", "this model", "ratio"], rows)


def figure(found: dict[int, dict[str, float]]) -> str:
    """GPU-hours of a step by phase as an SVG: what more GPUs cost is what makes a bar longer."""
    left, top, width, height, gap = 70, 46, 560, 26, 14
    longest = max(mean["total"] * gpus for gpus, mean in found.items()) / 3600
    parts = [*_legend(left)]
    for number, (gpus, mean) in enumerate(found.items()):
        y, x = top + number * (height + gap), float(left)
        parts.append(
            f'<text x="{left - 8}" y="{y + 18}" text-anchor="end">{gpus} GPU{"s" * (gpus > 1)}</text>'
        )
        for phase, colour in zip(PHASES, COLOURS, strict=True):
            length = mean[phase] * gpus / 3600 / longest * width
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{height}" fill="{colour}">'
                f"<title>{phase}: {mean[phase]:,.1f} s</title></rect>"
            )
            x += length
        hours = mean["total"] * gpus / 3600
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 18}">{hours:.2f} GPU-h, {mean["total"]:,.0f} s</text>')
    bottom = top + len(found) * (height + gap)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {bottom}" font-family="sans-serif" '
        'font-size="12">\n'
        f'<rect width="800" height="{bottom}" fill="white"/>\n{body}\n</svg>\n'
    )


def _legend(left: int) -> Iterator[str]:
    for number, (phase, colour) in enumerate(zip(PHASES, COLOURS, strict=True)):
        x = left + number * 80
        yield f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 17}" y="24">{phase}</text>'


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="prorl_v2", help="recipe with a model's shape (default prorl_v2)")
    parser.add_argument("--seeds", type=int, default=12, help="steps to average over (default 12)")
    parser.add_argument("--gpus", type=int, default=32, help="GPUs of the sensitivity table (default 32)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write the figure as SVG")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    case = make_case(arguments.recipe, arguments.seeds)
    table, found = by_phase(case)
    print(f"seconds per step, colocated\n\n{table}\n", flush=True)
    print(f"seconds per step by placement (learner ranks)\n\n{by_placement(case, found)}\n", flush=True)
    print(f"what each part brings\n\n{by_part(case, [32, 64])}\n", flush=True)
    print(f"sensitivity on {arguments.gpus} GPUs\n\n{sensitivity(case, arguments.gpus)}\n", flush=True)
    print(f"against published steps\n\n{published(case)}")
    if arguments.figure is not None:
        arguments.figure.write_text(figure(found))


if __name__ == "__main__":
    main(sys.argv[1:])
