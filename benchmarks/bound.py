"""How far a step is from the time that its matrix products alone would take, on one core and on all.

Counted are the multiplications and additions that a step needs: every weight once for every token of a prompt, which
is computed once for its whole group, and for every sampled token; attention to what lies before; the output head
where a token is predicted, but no embedding table, which is only read. Learning needs a forward pass and two more for
its gradient, and one by the reference. Padding and repeated work are not needed, so they are not counted. The bound
is that number at the rate of large square products, which is measured on the same cores between the steps: torch's
own (MKL) and prorl's (oneDNN).

    python benchmarks/bound.py --workers 2 --steps 6 --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from common import Stepper, add_arguments, load_config, make_base, markdown, product_rate, write_json
from prorl import build
from prorl.control.plan import hparams_at, make_plan
from prorl.machine import cores
from prorl.types import Batch, Completion, HParams, Request

WARM = 3  # steps before anything is counted
PARTS = ("generate", "learn", "total")


class Counter:
    """Counts the operations that a model needs."""

    def __init__(self, config: Any, inner: int, head: int) -> None:
        """`inner` weights in the layers, `head` in the output head."""
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._pair = 4 * config.num_hidden_layers * config.num_attention_heads * width
        self._inner, self._head = 2 * inner, 2 * head
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self.done = dict.fromkeys(PARTS, 0.0)

    def add(self, part: str, *, prompt: int, responses: Sequence[int], passes: int = 1) -> None:
        """A prompt and what is written after it, in tokens; the last token of each response is not read again."""
        read = prompt + sum(length - 1 for length in responses)
        pairs = prompt**2 / 2 + sum((length - 1) * (prompt + length / 2) for length in responses)
        operations = passes * (self._inner * read + self._head * sum(responses) + self._pair * pairs)
        self.done[part] += operations
        self.done["total"] += operations


class CountedEngine:
    """An engine whose prompts and responses are counted."""

    def __init__(self, engine: Any, counter: Counter) -> None:
        self._engine, self._counter = engine, counter
        self._lengths: dict[int, tuple[int, list[int]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: Request) -> None:
        """As the engine's."""
        self._lengths[request.draw] = (len(request.prompt), [])
        self._engine.submit(request)

    def poll(self) -> list[Completion]:
        """As the engine's."""
        completions: list[Completion] = self._engine.poll()
        for completion in completions:
            self._lengths[completion.draw][1].append(len(completion.tokens))
        if not completions:
            for prompt, responses in self._lengths.values():
                self._counter.add("generate", prompt=prompt, responses=responses)
            self._lengths = {}
        return completions


class CountedLearner:
    """A learner whose batches are counted."""

    def __init__(self, learner: Any, counter: Counter) -> None:
        self._learner, self._counter = learner, counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def begin_update(self, batch: Batch, hparams: HParams, *beat: Any) -> Any:
        """As the learner's."""
        for group in batch:
            lengths = [len(action.tokens) for action in group.actions]
            passes = 3 + (hparams.kl_coef != 0)
            self._counter.add("learn", prompt=len(group.prompt), responses=lengths, passes=passes)
        return self._learner.begin_update(batch, hparams, *beat)


class Side:
    """A run on so many processes, and how fast these multiply."""

    def __init__(self, arguments: argparse.Namespace, workers: int, stack: ExitStack) -> None:
        config = load_config(arguments, f"workers={workers}")
        tasks = build.build_tasks(config)
        parts = build.build_session(config, make_base(config), tasks=tasks)
        backend: Any = stack.enter_context(parts).backend
        self.workers = workers
        self._runner = backend.learner.runner
        policy = backend.learner.policy
        ends = {id(policy.get_input_embeddings().weight), id(policy.get_output_embeddings().weight)}
        inner = sum(weight.numel() for weight in policy.parameters() if id(weight) not in ends)
        self._counter = Counter(policy.config, inner, policy.get_output_embeddings().weight.numel())
        backend.engine = CountedEngine(backend.engine, self._counter)
        backend.learner = CountedLearner(backend.learner, self._counter)
        self._stepper = Stepper(parts, tasks, config.seed)
        self._hparams = hparams_at(make_plan(config), 0)

    def rates(self, seconds: float) -> tuple[float, float]:
        """Operations per second that all processes reach together, by torch's own products and by prorl's."""
        if self.workers == 1:
            return next(product_rate(None, seconds))
        own, ours = zip(*self._runner.everywhere(product_rate, seconds), strict=True)
        return sum(own), sum(ours)

    def steps(self, count: int) -> tuple[dict[str, float], dict[str, float]]:
        """Operations and seconds of so many steps, by part."""
        self._counter.clear()
        events = [self._stepper.step(self._hparams) for _ in range(count)]
        return dict(self._counter.done), {
            part: sum(event.seconds[part] for event in events) for part in PARTS
        }


def measure(side: Side, steps: int) -> dict[str, dict[str, float]]:
    """One turn: operations, seconds at the bound and seconds taken, by part, for one step."""
    before = side.rates(0.5)
    operations, seconds = side.steps(steps)
    own, ours = map(max, zip(before, side.rates(0.5), strict=True))
    return {
        part: {
            "operations": operations[part] / steps,
            "torch": operations[part] / own / steps,
            "bound": operations[part] / ours / steps,
            "seconds": seconds[part] / steps,
        }
        for part in PARTS
    }


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--workers", type=int, default=cores(), help="cores to use (default: all)")
    parser.add_argument("--steps", type=int, default=6, help="steps of a turn (default 6)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default 3)")
    arguments = parser.parse_args(argv)
    arguments.threads = arguments.threads or 1
    return arguments


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    found: dict[int, list[dict[str, dict[str, float]]]] = {}
    with ExitStack() as stack:
        sides = [Side(arguments, workers, stack) for workers in sorted({1, arguments.workers})]
        for side in sides:
            side.steps(WARM)
        for number in range(arguments.rounds):
            for side in sides:
                turn = measure(side, arguments.steps)
                found.setdefault(side.workers, []).append(turn)
                share = turn["total"]["bound"] / turn["total"]["seconds"]
                print(f"round {number + 1}/{arguments.rounds}, {side.workers} cores: {share:.0%}", flush=True)
    rows = []
    for workers, turns in found.items():
        for part, name in zip(PARTS, ("generation", "learning", "whole step"), strict=True):

            def middle(key: str, turns: Any = turns, part: str = part) -> float:
                return statistics.median(turn[part][key] for turn in turns)

            def percent(key: str, turns: Any = turns, part: str = part) -> str:
                return f"{statistics.median(turn[part][key] / turn[part]['seconds'] for turn in turns):.0%}"

            rows.append(
                (
                    f"{name}, {workers} core{'s' if workers > 1 else ''}",
                    f"{middle('operations') / 1e9:.1f}",
                    f"{middle('seconds'):.3f}",
                    f"{middle('torch'):.3f}",
                    percent("torch"),
                    f"{middle('bound'):.3f}",
                    percent("bound"),
                )
            )
    print("\nmedians of the turns, for one step\n")
    header = ("", "10⁹ operations", "seconds", "by torch's products", "share", "by oneDNN's", "share")
    print(markdown(header, rows))
    write_json(arguments.json, load_config(arguments), {"turns": found})


if __name__ == "__main__":
    main(sys.argv[1:])
