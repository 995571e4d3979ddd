"""A random checkpoint of a shape that vLLM decodes on a CPU, with tied embeddings."""

import dataclasses
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from prorl.cluster.checksums import crc
from prorl.cluster.weights import Weights
from prorl.learn.base_model import ModelShape, build_model, train_tokenizer

CONTEXT = 192
ENDS = range(24)  # token ids that end a response too, so that random responses differ in length


def write_model(folder: Path, *, seed: int = 0) -> Path:
    """Heads of 32 dimensions, the least for vLLM's attention on a CPU."""
    tokenizer = train_tokenizer(["Say 1 + 2 between the tags."] * 4, 300)
    shape = ModelShape(
        architecture="qwen3",
        hidden_size=64,
        layers=2,
        heads=2,
        kv_heads=1,
        intermediate_size=96,
        context=CONTEXT,
    )
    model = build_model(shape, len(tokenizer), seed=seed)
    model.generation_config = GenerationConfig(eos_token_id=[tokenizer.eos_token_id, *ENDS])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def config_of(model: Path) -> str:
    """What engines are told of it."""
    return (model / "config.json").read_text()


def without_head(weights: Weights) -> Weights:
    """As if a learner had left out the output head, which is tied, and sealed the rest."""
    arrays = {name: array for name, array in weights.arrays.items() if name != "lm_head.weight"}
    return dataclasses.replace(weights, arrays=arrays, checksum=crc(arrays))


def actors(kind: str, pid: int | None = None) -> list[Any]:
    """The processes of a class of actors, oldest first, below a process that started Ray; by default this one."""
    import psutil

    below = psutil.Process(pid).children(recursive=True)
    return sorted(
        (process for process in below if _name(process).startswith(f"ray::{kind}")),
        key=lambda process: process.create_time(),
    )


def _name(process: Any) -> str:
    import psutil

    try:
        return (process.cmdline() or [""])[0]
    except psutil.NoSuchProcess:
        return ""
