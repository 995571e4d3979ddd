"""Rollout speed of the local engine against transformers (`generate`, continuous batching) or vLLM.

Same model, same prompts, T = 1.

Each uses all cores, the engine by worker processes, the others by threads. Both decode in turn, several times; the
verdict is the median of the per-pair ratios of generated tokens per second, which a machine that is busy now and then
hardly moves. Two variants: `limit` (no end-of-sequence token: every response runs to the limit) and `eos` (several
tokens end a response, so lengths are near geometric).

    GOMP_SPINCOUNT=1000 python benchmarks/rollout.py --repeats 5 --threads 2
    GOMP_SPINCOUNT=1000 python benchmarks/rollout.py --against continuous
    make cluster-env && .venv-cluster/bin/python benchmarks/rollout.py --against vllm

Without the passive policy, OpenMP threads spin for each other; with any other load on the cores both sides then
become tens of times slower and the ratio means nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from prorl.cluster.settings import engine_environment
from prorl.learn.parallel import Scorer
from prorl.local.engine import LocalEngine, WorkersEngine
from prorl.local.workers import Workers
from prorl.types import Request, Sampling

PAD_ID = 0
# Without flash attention the queries of all rows meet the caches of all rows, masked: 256 at once are slower than 64.
CONTINUOUS_ROWS, CONTINUOUS_PAGE = 64, 32
FIRST_PLAIN_TOKEN = 64  # tokens below are reserved for padding and for ending a response


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What both sides have to generate."""

    prompts: tuple[tuple[int, ...], ...]
    samples: int
    limit: int
    eos_ids: tuple[int, ...]


def build_model(arguments: argparse.Namespace) -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=arguments.vocab,
        hidden_size=arguments.width,
        intermediate_size=arguments.width * 11 // 4,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.heads,
        num_key_value_heads=arguments.kv_heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).eval().to(arguments.device)


def build_work(arguments: argparse.Namespace, variant: str) -> Work:
    rng = random.Random(0)
    shortest = min(arguments.prompt_min, arguments.prompt_max)
    lengths = [rng.randint(shortest, arguments.prompt_max) for _ in range(arguments.prompts)]
    prompts = tuple(
        tuple(rng.randrange(FIRST_PLAIN_TOKEN, arguments.vocab) for _ in range(length)) for length in lengths
    )
    # an untrained model is near uniform: this many stop tokens give a mean length of half the limit
    stops = 2 * arguments.vocab // arguments.limit if variant == "eos" else 0
    eos_ids = tuple(range(1, 1 + min(stops, FIRST_PLAIN_TOKEN - 1)))
    return Work(prompts=prompts, samples=arguments.samples, limit=arguments.limit, eos_ids=eos_ids)


def engine_tokens(
    model: PreTrainedModel, work: Work, seed: int, max_rows: int, workers: Workers | None = None
) -> int:
    alone = LocalEngine(model, eos_ids=work.eos_ids, pad_id=PAD_ID, max_rows=max_rows)
    engine = WorkersEngine(alone, workers) if workers else alone
    sampling = Sampling(temperature=1.0, top_p=1.0, limit=work.limit)
    for draw, prompt in enumerate(work.prompts):
        request_seed = seed * len(work.prompts) + draw
        engine.submit(
            Request(draw=draw, prompt=prompt, samples=work.samples, seed=request_seed, sampling=sampling)
        )
    tokens = 0
    while completions := engine.poll():
        tokens += sum(len(completion.tokens) for completion in completions)
    return tokens


Generate = Callable[[Work, int], int]
"""Does the work, with random numbers from a seed, and returns how many tokens were generated."""


def generate_tokens(model: PreTrainedModel, work: Work, seed: int) -> int:
    torch.manual_seed(seed)
    longest = max(map(len, work.prompts))
    device = model.device
    padded = torch.tensor([[PAD_ID] * (longest - len(prompt)) + list(prompt) for prompt in work.prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in work.prompts])
    output = model.generate(
        padded.to(device),
        attention_mask=mask.to(device),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        num_return_sequences=work.samples,
        max_new_tokens=work.limit,
        eos_token_id=list(work.eos_ids) or None,
        pad_token_id=PAD_ID,
    )
    written = output[:, longest:]
    stops = torch.isin(written, torch.tensor(work.eos_ids, device=device)).long()
    unfinished_before = stops.cumsum(-1) - stops == 0  # the token that stops a response is counted too
    return int(unfinished_before.sum())


def continuous_tokens(model: PreTrainedModel, work: Work, seed: int) -> int:
    """What the continuous batching of transformers generates, in the fastest of the sizes that were tried."""
    longest = max(map(len, work.prompts)) + work.limit
    outputs = model.generate_batch(
        [list(prompt) for prompt in work.prompts],
        generation_config=GenerationConfig(
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=work.samples,
            max_new_tokens=work.limit,
            eos_token_id=list(work.eos_ids) or -1,
            pad_token_id=PAD_ID,
        ),
        continuous_batching_config=ContinuousBatchingConfig(
            page_size=CONTINUOUS_PAGE,
            num_blocks=CONTINUOUS_ROWS * (longest // CONTINUOUS_PAGE + 2),  # by default most of the memory
            max_batch_tokens=2048,
            max_requests_per_batch=CONTINUOUS_ROWS,
            seed=seed,
        ),
        warmup=False,
    )
    return sum(len(output.generated_tokens) for output in outputs.values())


def vllm_generate(model: PreTrainedModel, arguments: argparse.Namespace) -> Generate:
    """What vLLM generates with the same weights, log-probs of the sampled tokens included as ours are."""
    os.environ |= engine_environment(arguments.threads, "cpu" if arguments.device == "cpu" else "cuda")
    from vllm import LLM, SamplingParams, TokensPrompt

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        engine = LLM(
            model=folder,
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=model.config.max_position_embeddings,
            max_num_seqs=arguments.max_rows,
            enforce_eager=arguments.device == "cpu",
            kv_cache_memory_bytes=2 << 30,
            disable_log_stats=True,
        )

    def generate(work: Work, _seed: int) -> int:
        params = SamplingParams(
            n=work.samples,
            temperature=1.0,
            max_tokens=work.limit,
            stop_token_ids=list(work.eos_ids),
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
        )
        prompts = [TokensPrompt(prompt_token_ids=list(prompt)) for prompt in work.prompts]
        outputs = engine.generate(prompts, params, use_tqdm=False)
        return sum(len(response.token_ids) for output in outputs for response in output.outputs)

    return generate


def tokens_per_second(run: Callable[[], int], device: str) -> float:
    start = time.perf_counter()
    tokens = run()
    if device != "cpu":
        torch.cuda.synchronize()
    return tokens / (time.perf_counter() - start)


def compare(
    arguments: argparse.Namespace,
    model: PreTrainedModel,
    variant: str,
    workers: Workers | None,
    other: Generate,
) -> list[float]:
    work = build_work(arguments, variant)
    ratios = []
    for repeat in range(-1, arguments.repeats):  # the first pair warms up and is not counted
        ours = tokens_per_second(
            lambda seed=repeat: engine_tokens(model, work, seed, arguments.max_rows, workers),
            arguments.device,
        )
        theirs = tokens_per_second(lambda seed=repeat: other(work, seed), arguments.device)
        name = "warm-up" if repeat < 0 else f"pair {repeat + 1}/{arguments.repeats}"
        print(
            f"{variant:>5} {name:>9}: engine {ours:8.0f} tokens/s, {arguments.against} {theirs:8.0f}, "
            f"{ours / theirs:.2f}×",
            flush=True,
        )
        if repeat >= 0:
            ratios.append(ours / theirs)
    return ratios


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variant", choices=("limit", "eos", "both"), default="both")
    parser.add_argument("--against", choices=("generate", "continuous", "vllm"), default="generate")
    parser.add_argument("--repeats", type=int, default=5, help="counted pairs per variant (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of the other side (default 2)")
    parser.add_argument(
        "--workers", type=int, default=2, help="processes of the engine, of one thread (default 2)"
    )
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--samples", type=int, default=8, help="responses per prompt (default 8)")
    parser.add_argument("--limit", type=int, default=64, help="longest response in tokens (default 64)")
    parser.add_argument("--prompt-min", type=int, default=33, help="shortest prompt in tokens (default 33)")
    parser.add_argument("--prompt-max", type=int, default=49, help="longest prompt in tokens (default 49)")
    parser.add_argument("--max-rows", type=int, default=512, help="rows the engine decodes together")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=1000)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    torch.set_num_threads(arguments.threads)
    model = build_model(arguments)
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    print(f"{millions:.1f}M parameters, {arguments.prompts} prompts × {arguments.samples}")
    variants = ("limit", "eos") if arguments.variant == "both" else (arguments.variant,)
    with ExitStack() as stack:
        workers = None
        if arguments.workers > 1:
            workers = Workers([Scorer(model, model.device)], count=arguments.workers)
            stack.callback(workers.close)
        if arguments.against == "vllm":
            other = vllm_generate(model, arguments)
        else:
            tokens = continuous_tokens if arguments.against == "continuous" else generate_tokens
            other = partial(tokens, model)
        medians = {
            variant: statistics.median(compare(arguments, model, variant, workers, other))
            for variant in variants
        }
    for variant, ratio in medians.items():
        print(f"{variant}: median of {arguments.repeats} pairs {ratio:.2f}× {arguments.against}")


if __name__ == "__main__":
    main(sys.argv[1:])
