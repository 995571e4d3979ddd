"""Whole RL steps of a model of Qwen3-0.6B's shape on a CPU: the row that projects for laptops publish.

The weights are random and no token ends a response, so every step samples `--samples` responses of `--limit` tokens
to a prompt of `--prompt` tokens, learns from all of them with the advantages +1 and -1 in turn, without a reference,
and publishes the weights. Weights, moments and decoding are float32; `--dtype` is that of the learner's matrix
products.

    python benchmarks/laptop.py --dtype float32 --steps 3
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Sequence

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from common import NO_REFERENCE, markdown
from prorl.build import learner_settings
from prorl.config.recipe import load_recipe
from prorl.control.plan import hparams_at, make_plan
from prorl.learn.learner import TorchLearner
from prorl.local.engine import LocalEngine
from prorl.machine import cores
from prorl.types import Action, PromptActions, Request, Sampling


def build_model(layers: int, width: int) -> Qwen3ForCausalLM:
    """Qwen3-0.6B but for `layers` and `width`, with random weights."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config)


def step(
    engine: LocalEngine, learner: TorchLearner, arguments: argparse.Namespace, number: int
) -> tuple[float, float]:
    """Seconds of generation and of the whole step."""
    hparams = hparams_at(make_plan(load_recipe("nano", ["device=cpu", *NO_REFERENCE])), 0)
    begin = time.perf_counter()
    prompt = tuple(range(100, 100 + arguments.prompt))
    sampling = Sampling(temperature=1.0, top_p=1.0, limit=arguments.limit)
    engine.publish(number)
    engine.submit(Request(draw=0, prompt=prompt, samples=arguments.samples, seed=number, sampling=sampling))
    completions = []
    while fresh := engine.poll():
        completions += fresh
    generated = time.perf_counter()
    actions = tuple(
        Action(tokens=done.tokens, engine_logps=done.logps, advantage=(-1.0) ** done.sample)
        for done in completions
    )
    learner.begin_update((PromptActions(prompt=prompt, actions=actions),), hparams)()
    return generated - begin, time.perf_counter() - begin


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--steps", type=int, default=3, help="counted steps, after one that is not (default 3)"
    )
    parser.add_argument("--threads", type=int, default=cores(), help="default: one for each core")
    parser.add_argument("--samples", type=int, default=4, help="responses of a step (default 4)")
    parser.add_argument("--limit", type=int, default=256, help="tokens of each response (default 256)")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt (default 64)")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--width", type=int, default=1024)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    torch.set_num_threads(arguments.threads)
    model = build_model(arguments.layers, arguments.width)
    print(f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.0f}M parameters", flush=True)
    settings = learner_settings(load_recipe("nano", ["device=cpu"]))
    settings = settings.model_copy(update={"dtype": arguments.dtype, "micro_batch_tokens": 2048})
    learner = TorchLearner(model, settings, with_reference=False, pad_id=0)
    engine = LocalEngine(learner.policy, eos_ids=(), pad_id=0)
    times = []
    for number in range(arguments.steps + 1):
        times.append(step(engine, learner, arguments, number))
        name = f"step {number}/{arguments.steps}" if number else "warm-up"
        print(f"{name:>9}: {times[-1][0]:.1f} s of generation, {times[-1][1]:.1f} s in all", flush=True)
    generation, whole = (statistics.median(column) for column in zip(*times[1:], strict=True))
    tokens = arguments.samples * arguments.limit
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    header = ("dtype", "tokens/s sampled", "tokens/s of a step", "samples/s", "steps/s", "peak memory")
    row = (
        arguments.dtype,
        f"{tokens / generation:.1f}",
        f"{tokens / whole:.1f}",
        f"{arguments.samples / whole:.3f}",
        f"{1 / whole:.4f}",
        f"{memory:.1f} GiB",
    )
    print(markdown(header, [row]))


if __name__ == "__main__":
    main(sys.argv[1:])
