"""What a step costs as groups, rollouts per group, or response length double, by phase.

The work of each row is exact: every group is accepted (`min_spread` 0), every response runs to the limit (no token
ends it), and the learning rate is 0, so that the policy of the last row is the policy of the first. Rows are
measured in turn, round after round; a ratio is the median over the rounds of cost against the row above.

    GOMP_SPINCOUNT=1000 python benchmarks/scaling.py --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from common import Stepper, add_arguments, load_config, make_base, markdown, write_json
from prorl import build
from prorl.config.schema import RunConfig
from prorl.control.plan import hparams_at, make_plan
from prorl.local.engine import LocalEngine
from prorl.types import HParams

FACTORS = (0.5, 1, 2)  # of the middle row
# an untrained model costs the same as a trained one where nothing depends on what it writes
UNTRAINED = ("model.warmup.steps=1", "model.warmup.corpus_problems=500")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of one step."""

    prompts: int
    samples: int
    limit: int

    @property
    def tokens(self) -> int:
        """Response tokens of a step."""
        return self.prompts * self.samples * self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of one step."""

    generate: float
    learn: float
    rest: float  # verdicts that were waited for, rendering, advantages, sync

    @property
    def total(self) -> float:
        """The whole step."""
        return self.generate + self.learn + self.rest


def sweeps(middle: Size) -> Mapping[str, list[Size]]:
    """Three sizes per dimension, doubling, `middle` being the second of each."""
    return {
        "groups": [replace(middle, prompts=round(middle.prompts * factor)) for factor in FACTORS],
        "rollouts per group": [replace(middle, samples=round(middle.samples * factor)) for factor in FACTORS],
        "response length": [replace(middle, limit=round(middle.limit * factor)) for factor in FACTORS],
    }


def measure(stepper: Stepper, hparams: HParams, size: Size) -> Cost:
    step = stepper.step(
        replace(
            hparams,
            prompts_per_step=size.prompts,
            samples_per_prompt=size.samples,
            response_limit=size.limit,
        )
    )
    assert step.update.action_tokens == size.tokens, "every response runs to the limit and is trained on"
    generate, learn = step.seconds["generate"], step.seconds["learn"]
    return Cost(generate=generate, learn=learn, rest=step.seconds["total"] - generate - learn)


def measure_all(
    config: RunConfig, base: str, sizes: Sequence[Size], rounds: int
) -> Mapping[Size, list[Cost]]:
    """`rounds` costs of every size, measured in turn after one round to warm up."""
    plan = make_plan(config)
    exact = replace(hparams_at(plan, 0), min_spread=0.0, learning_rate=0.0, truncated_scale=1.0)
    parts = build.build_session(config, base, with_reference=plan.needs_reference)
    parts.backend.engine = LocalEngine(
        parts.backend.learner.policy,
        eos_ids=(),
        pad_id=parts.tokenizer.eos_token_id,
        max_rows=config.engine.max_rows,
    )
    costs: dict[Size, list[Cost]] = {size: [] for size in sizes}
    with parts:
        stepper = Stepper(parts, build.build_tasks(config), config.seed)
        for number in range(rounds + 1):
            for size in costs:
                cost = measure(stepper, exact, size)
                if number:
                    costs[size].append(cost)
            total = sum(series[-1].total for series in costs.values()) if number else 0.0
            print(f"round {number}/{rounds}: {total:.1f} s" if number else "warmed up", flush=True)
    return costs


def table(sizes: Sequence[Size], costs: Mapping[Size, list[Cost]]) -> str:
    """One sweep, a row per size."""
    rows = []
    for above, size in zip([None, *sizes], sizes, strict=False):
        series = costs[size]
        totals = [cost.total for cost in series]
        ratio = "" if above is None else f"{_median_ratio(costs[above], series):.2f}×"
        phases = (
            [cost.generate for cost in series],
            [cost.learn for cost in series],
            [cost.rest for cost in series],
        )
        rows.append(
            [
                f"{size.prompts} × {size.samples} × {size.limit}",
                f"{size.tokens:,}",
                f"{statistics.median(totals):.2f}",
                ratio,
                *(f"{statistics.median(phase):.2f}" for phase in phases),
                f"{size.tokens / statistics.median(totals):,.0f}",
            ]
        )
    header = [
        "groups × rollouts × length",
        "tokens",
        "s/step",
        "to row above",
        "generate",
        "learn",
        "rest",
        "tokens/s",
    ]
    return markdown(header, rows)


def _median_ratio(before: Sequence[Cost], after: Sequence[Cost]) -> float:
    return statistics.median(late.total / early.total for early, late in zip(before, after, strict=True))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds over all sizes (default 5)")
    parser.add_argument("--prompts", type=int, default=16, help="groups of the middle row (default 16)")
    parser.add_argument(
        "--samples", type=int, default=8, help="rollouts per group of the middle row (default 8)"
    )
    parser.add_argument("--limit", type=int, default=64, help="tokens of the middle row (default 64)")
    add_arguments(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    middle = Size(prompts=arguments.prompts, samples=arguments.samples, limit=arguments.limit)
    longest = f"sampling.response_limit={middle.limit * FACTORS[-1]}"
    config = load_config(arguments, *UNTRAINED, longest)
    plans = sweeps(middle)
    sizes = list(dict.fromkeys(chain.from_iterable(plans.values())))
    costs = measure_all(config, make_base(config), sizes, arguments.rounds)
    for name, rows in plans.items():
        print(f"\n{name}\n\n{table(rows, costs)}")
    records = [
        {
            "prompts": size.prompts,
            "samples": size.samples,
            "limit": size.limit,
            "generate": [cost.generate for cost in series],
            "learn": [cost.learn for cost in series],
            "rest": [cost.rest for cost in series],
        }
        for size, series in costs.items()
    ]
    write_json(arguments.json, config, {"costs": records})


if __name__ == "__main__":
    main(sys.argv[1:])
