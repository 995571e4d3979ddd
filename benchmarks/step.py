"""One whole RL step of prorl against TRL's GRPOTrainer: same base, same tasks, rollouts per update, sampling, CPU.

What counts is *informative rollouts trained on per second*: rollouts of groups whose scores differ by at least
`min_spread`, for the others have no gradient. Every second counts on both sides: drawing, generating, verifying,
learning, publishing weights. prorl samples until it has its groups and counts only those it trains on; TRL trains
on whatever it sampled and counts only the groups with spread, and is spared the making of problems (done before
the clock starts) and the processes that guard a verifier (it calls ours directly).

Both take turns inside one process, a few steps each, TRL's trainer being held in its own callback meanwhile; the
verdict is the median of the per-turn ratios, which a machine that is busy now and then hardly moves.

    pip install -e ".[bench]"
    GOMP_SPINCOUNT=1000 python benchmarks/step.py --pairs 8 --burst 4
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from common import NO_REFERENCE, Stepper, add_arguments, load_config, make_base, markdown, write_json
from prorl import build
from prorl.algo.dynamic_sampling import is_informative
from prorl.config.schema import RunConfig
from prorl.control.events import Stepped
from prorl.control.plan import Plan, hparams_at, make_plan
from prorl.envs.mixture import Mixture
from prorl.envs.registry import VerifierSpec, make_verifier
from prorl.envs.types import Problem
from prorl.machine import cores
from prorl.rollout.pipeline import ChatRenderer
from prorl.types import HParams

# rows that TRL learns from at a time: the fastest on a CPU; all 256 of a step at once cost it a fifth more
TRL_MICRO_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one side did in its turn of `steps` steps."""

    steps: int
    informative: int  # rollouts of groups with spread that were trained on
    rollouts: int  # sampled
    tokens: int  # sampled
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One turn of each side, one after the other."""

    ours: Turn
    theirs: Turn


class Rewards:
    """TRL's reward function: judges as prorl does, and keeps the books of what TRL sampled."""

    def __init__(self, problems: Sequence[Problem], renderer: ChatRenderer, min_spread: float) -> None:
        self._problems = problems
        self._renderer = renderer
        self._min_spread = min_spread
        self._verify = make_verifier(VerifierSpec(tasks=tuple({problem.task for problem in problems})))
        self.clear()

    def clear(self) -> None:
        """Begin a new turn."""
        self.steps = self.informative = self.rollouts = self.tokens = 0

    def score(self, completion_ids: list[list[int]], draw: list[int], **_: Any) -> list[float]:
        """Rewards of one step's rollouts; `draw` is the column that names each rollout's problem."""
        scores: defaultdict[int, list[float]] = defaultdict(list)
        broken: set[int] = set()
        rewards = []
        for tokens, number in zip(completion_ids, draw, strict=True):
            # TRL's own text has lost the tags of thinking and answer, which are special tokens here
            verdict = self._verify(self._problems[number], self._renderer.decode(tokens))
            if verdict.status == "error":
                broken.add(number)
            scores[number].append(verdict.score)
            rewards.append(verdict.score)
        teaching = [
            group
            for number, group in scores.items()
            if number not in broken and is_informative(group, self._min_spread)
        ]
        self.steps += 1
        self.informative += sum(map(len, teaching))
        self.rollouts += len(rewards)
        self.tokens += sum(map(len, completion_ids))
        return rewards

    def turn(self, seconds: float) -> Turn:
        """What TRL did since `clear`."""
        return Turn(
            steps=self.steps,
            informative=self.informative,
            rollouts=self.rollouts,
            tokens=self.tokens,
            seconds=seconds,
        )


class TakeTurns(TrainerCallback):
    """Holds TRL after every `burst` of its steps while prorl makes as many."""

    def __init__(self, rewards: Rewards, our_turn: Callable[[], Turn], burst: int, pairs: int) -> None:
        self._rewards = rewards
        self._our_turn = our_turn
        self._burst = burst
        self._count = pairs
        self._pairs: list[Pair] = []
        self._started = 0.0

    @property
    def pairs(self) -> list[Pair]:
        """All pairs but the first, in which both warm up."""
        return self._pairs[1:]

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """TRL's first turn begins."""
        self._started = time.perf_counter()

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Where TRL's turn is over, prorl has its own; TRL's next one begins when this returns."""
        if state.global_step % self._burst:
            return
        theirs = self._rewards.turn(time.perf_counter() - self._started)
        self._pairs.append(Pair(ours=self._our_turn(), theirs=theirs))
        self._show()
        self._rewards.clear()
        self._started = time.perf_counter()

    def _show(self) -> None:
        pair, number = self._pairs[-1], len(self._pairs) - 1
        ours, theirs = informative_rate(pair.ours), informative_rate(pair.theirs)
        name = f"pair {number}/{self._count}" if number else "warm-up"
        ratio = f"{ours / theirs:.2f}×" if theirs else "TRL found no informative group"
        print(
            f"{name:>10}: informative rollouts/s: prorl {ours:6.1f}, TRL {theirs:6.1f}, {ratio}", flush=True
        )


def informative_rate(turn: Turn) -> float:
    return turn.informative / turn.seconds


def token_rate(turn: Turn) -> float:
    return turn.tokens / turn.seconds


def rollout_rate(turn: Turn) -> float:
    return turn.rollouts / turn.seconds


def step_seconds(turn: Turn) -> float:
    return turn.seconds / turn.steps


def informative_share(turn: Turn) -> float:
    return turn.informative / turn.rollouts


def take_turn(stepper: Stepper, plan: Plan, burst: int) -> Turn:
    """`burst` steps of prorl, by a clock around them all, as TRL has it."""
    started = time.perf_counter()
    steps: list[Stepped] = [stepper.step(hparams_at(plan, 0)) for _ in range(burst)]
    seconds = time.perf_counter() - started
    return Turn(
        steps=burst,
        informative=sum(step.rollout_stats.accepted for step in steps)
        * hparams_at(plan, 0).samples_per_prompt,
        rollouts=sum(step.rollout_stats.rollouts for step in steps),
        tokens=sum(step.rollout_stats.sampled_tokens for step in steps),
        seconds=seconds,
    )


def make_trainer(
    base: str, config: RunConfig, hparams: HParams, rewards: Rewards, dataset: Dataset, folder: str
) -> GRPOTrainer:
    """TRL at its cheapest: one generation and one update per step, no reference, nothing recomputed or logged."""
    rollouts = hparams.prompts_per_step * hparams.samples_per_prompt
    micro_batch = math.gcd(rollouts, TRL_MICRO_BATCH)
    settings = GRPOConfig(
        output_dir=folder,
        model_init_kwargs={"dtype": "float32"},
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=rollouts // micro_batch,
        num_generations=hparams.samples_per_prompt,
        max_steps=len(dataset) // hparams.prompts_per_step,
        shuffle_dataset=False,
        max_completion_length=hparams.response_limit,
        temperature=hparams.temperature,
        top_p=hparams.top_p,
        beta=0.0,
        epsilon=hparams.clip_low,
        epsilon_high=hparams.clip_high,
        learning_rate=hparams.learning_rate,
        lr_scheduler_type="constant",
        adam_beta1=config.optimizer.betas[0],
        adam_beta2=config.optimizer.betas[1],
        weight_decay=config.optimizer.weight_decay,
        max_grad_norm=hparams.grad_clip,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=config.seed,
    )
    trainer = GRPOTrainer(model=base, reward_funcs=rewards.score, args=settings, train_dataset=dataset)
    trainer.remove_callback(PrinterCallback)
    return trainer


def make_dataset(problems: Sequence[Problem]) -> Dataset:
    """The problems as chats, so that TRL renders them by the model's own template, as prorl does."""
    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": problem.prompt}], "draw": draw}
            for draw, problem in enumerate(problems)
        ]
    )


def compare(config: RunConfig, tasks: Mixture, base: str, burst: int, pairs: int) -> list[Pair]:
    """Let both sides take turns and return what each did, warm-up excluded."""
    plan = make_plan(config)
    hparams = hparams_at(plan, 0)
    draws = (pairs + 1) * burst * hparams.prompts_per_step
    problems = [tasks.problem(draw, "train") for draw in range(draws)]
    parts = build.build_session(config, base, with_reference=plan.needs_reference)
    torch.set_num_threads(cores())  # TRL's: prorl computes in workers of one thread each
    with parts, tempfile.TemporaryDirectory() as folder:
        stepper = Stepper(parts, tasks, config.seed)
        rewards = Rewards(problems, parts.renderer, hparams.min_spread)
        dataset = make_dataset(problems)
        trainer = make_trainer(base, config, hparams, rewards, dataset, folder)
        turns = TakeTurns(rewards, lambda: take_turn(stepper, plan, burst), burst, pairs)
        trainer.add_callback(turns)
        trainer.train()
    return turns.pairs


def summary(pairs: Sequence[Pair]) -> str:
    """The table: medians of each side, and medians of the ratios inside the pairs."""
    measures: list[tuple[str, Callable[[Turn], float], str]] = [
        ("informative rollouts trained on per second", informative_rate, ".1f"),
        ("sampled tokens per second", token_rate, ",.0f"),
        ("sampled rollouts per second", rollout_rate, ".1f"),
        ("informative share of sampled rollouts", informative_share, ".2f"),
        ("seconds per step", step_seconds, ".2f"),
    ]
    rows = []
    for name, measure, style in measures:
        ours = [measure(pair.ours) for pair in pairs]
        theirs = [measure(pair.theirs) for pair in pairs]
        ratios = [mine / other if other else float("inf") for mine, other in zip(ours, theirs, strict=True)]
        median = statistics.median
        rows.append(
            [
                name,
                format(median(ours), style),
                format(median(theirs), style),
                f"{median(ratios):.2f}×",
                f"{min(ratios):.2f}–{max(ratios):.2f}",
            ]
        )
    return markdown(["", "prorl", f"TRL {version('trl')}", "median ratio", "range"], rows)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=8, help="counted pairs of turns (default 8)")
    parser.add_argument("--burst", type=int, default=4, help="steps per turn (default 4)")
    add_arguments(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    warnings.simplefilter("ignore", FutureWarning)  # transformers is renaming what TRL's settings are called
    config = load_config(arguments, *NO_REFERENCE, "length_penalty.weight=0")
    base = make_base(config)
    tasks = build.build_tasks(config)
    pairs = compare(config, tasks, base, arguments.burst, arguments.pairs)
    sampling = config.sampling
    print(
        f"\n{sampling.prompts_per_step} groups × {sampling.samples_per_prompt} rollouts per update, "
        f"responses of at most {sampling.response_limit} tokens; {arguments.pairs} pairs of {arguments.burst} steps\n"
    )
    print(summary(pairs))
    write_json(arguments.json, config, {"trl": version("trl"), "pairs": [asdict(pair) for pair in pairs]})


if __name__ == "__main__":
    main(sys.argv[1:])
