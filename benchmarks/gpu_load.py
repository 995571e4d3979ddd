"""The models and loads of `gpu.py`, and what all of its parts do with them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from prorl.build import learner_settings
from prorl.cluster.capacity import Size
from prorl.config.recipe import load_recipe
from prorl.config.schema import ShapeConfig
from prorl.control.plan import hparams_at, make_plan
from prorl.learn.base_model import build_model
from prorl.learn.learner import TorchLearner
from prorl.learn.parallel import Ranks
from prorl.local.engine import LocalEngine
from prorl.types import (
    Action,
    Batch,
    Completion,
    Engine,
    HParams,
    PromptActions,
    Request,
    Sampling,
    log_probs,
    token_ids,
)

SAMPLES = 8  # responses per prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A model and how hard to try it."""

    shape: ShapeConfig
    vocabulary: int
    prompt: int  # tokens
    response: int
    batches: tuple[int, ...]  # rows decoded together
    packed: tuple[int, ...]  # tokens of a micro-batch
    repeats: int
    nano: tuple[str, ...]  # overrides of the nano run
    long: int  # tokens of the longest response that is compared
    dtype: str  # of matrix products


LOADS = {
    "1.5b": Load(
        shape=ShapeConfig(
            architecture="qwen2",
            hidden_size=1536,
            layers=28,
            heads=12,
            kv_heads=2,
            intermediate_size=8960,
            context=32_768,
        ),
        vocabulary=151_936,
        prompt=256,
        response=256,
        batches=(64, 128, 256, 512),
        packed=(8192, 16_384),
        repeats=3,
        nano=("steps=20", "model.warmup.steps=100", "threads=8"),
        long=16_384,
        dtype="bfloat16",
    ),
    "tiny": Load(
        shape=ShapeConfig(
            architecture="qwen2",
            hidden_size=64,
            layers=2,
            heads=2,
            kv_heads=1,
            intermediate_size=64,
            context=512,
        ),
        vocabulary=500,
        prompt=12,
        response=16,
        batches=(8, 16),
        packed=(64, 128),
        repeats=1,
        nano=(
            "steps=3",
            "threads=1",
            "model.warmup.steps=1",
            "model.warmup.corpus_problems=200",
            "model.warmup.shape.layers=1",
            "model.warmup.shape.hidden_size=32",
            "sampling.prompts_per_step=4",
            "sampling.response_limit=8",
            "dynamic_sampling.min_spread=0",
        ),
        long=300,
        dtype="float32",
    ),
}


def make_model(load: Load, device: torch.device) -> PreTrainedModel:
    torch.manual_seed(0)
    with device:  # initialised where it will live: a minute faster than on the host
        return build_model(load.shape, load.vocabulary, seed=0)


def make_learner(
    load: Load, device: torch.device, ranks: Ranks | None = None, **changes: Any
) -> TorchLearner:
    """With a reference, checkpointing, and old log-probs of its own, as the recipe `prorl_v2` has it."""
    said = {"micro_batch_tokens": load.packed[-1], "dtype": load.dtype} | changes
    config = load_recipe("prorl_v2", [f"learner.{key}={json.dumps(value)}" for key, value in said.items()])
    model = make_model(load, device)
    if ranks:  # which shard what lies on the host
        model = model.cpu()
    return TorchLearner(model, learner_settings(config), with_reference=True, pad_id=0, ranks=ranks)


def still() -> HParams:
    """Hyperparameters of one update that changes no weight."""
    hparams = hparams_at(make_plan(load_recipe("prorl_v2")), 0)
    return replace(hparams, learning_rate=0.0, updates_per_step=1)


def keep(row: Mapping[str, Any]) -> None:
    """Replaced in the process of a part."""


def timed(work: Callable[[], Any]) -> float:
    """Seconds; what is timed here ends with a copy to the host, or is waited for."""
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def say(row: Mapping[str, Any]) -> None:
    """Print a row, and give it to whoever keeps what a part has found so far."""
    keep(row)
    parts = (
        f"{name} {value:,.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
    )
    print("  " + ", ".join(part for part in parts if not part.endswith("None")), flush=True)


def size_of(model: PreTrainedModel, shape: ShapeConfig) -> Size:
    return Size(
        parameters=model.num_parameters(),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_width=shape.hidden_size // shape.heads,
        context=shape.context,
    )


def random_tokens(load: Load, count: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, load.vocabulary, (count,), generator=generator).tolist())


def random_prompts(load: Load, count: int) -> list[tuple[int, ...]]:
    return [random_tokens(load, load.prompt, seed) for seed in range(count)]


def random_batch(load: Load, sequences: int, length: int) -> Batch:
    """One response per prompt, `length` tokens in all: nothing is shared, nothing padded."""
    prompt = min(load.prompt, length // 2)
    groups = []
    for seed in range(sequences):
        tokens = random_tokens(load, length, seed)
        response = tokens[prompt:]
        logps = log_probs([-6.0] * len(response))
        action = Action(tokens=token_ids(response), engine_logps=logps, advantage=(-1.0) ** seed)
        groups.append(PromptActions(prompt=tokens[:prompt], actions=(action,)))
    return tuple(groups)


def make_engine(model: PreTrainedModel, rows: int) -> LocalEngine:
    return LocalEngine(model, eos_ids=(), pad_id=0, max_rows=rows)


def decode_all(
    engine: Engine, load: Load, rows: int, *, limit: int, temperature: float = 1.0
) -> list[Completion]:
    sampling = Sampling(temperature=temperature, top_p=1.0, limit=limit)
    for draw, prompt in enumerate(random_prompts(load, rows // SAMPLES)):
        engine.submit(Request(draw=draw, prompt=prompt, samples=SAMPLES, seed=draw, sampling=sampling))
    completions: list[Completion] = []
    while finished := engine.poll():
        completions += finished
    return completions
